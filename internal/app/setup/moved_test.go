package setup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/edit"
)

// TestMovedFolder: what was set up for a folder is known after the folder was renamed, and in a copy of it: it can be
// changed and removed there, with the folders that were made for it. A file of the user is never taken for one of
// gpuard.
func TestMovedFolder(t *testing.T) {
	home := t.TempDir()
	s := &Setup{Host: &machine.Host{Env: []string{"HOME=" + home}}}
	at := func(name string) string { return filepath.Join(home, name) }
	wish := func(name, text string) ChangePlan {
		return ChangePlan{Key: "conda " + at(name), Changes: []edit.Change{
			{Path: at(name + "/etc/hook"), Content: text}, {Path: at(name + "/rc"), Block: "x", Content: text},
		}}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(errors.Join(os.Mkdir(at("old"), 0o755), os.WriteFile(at("old/rc"), []byte("mine\n"), 0o644)))
	_, err := s.Apply(wish("old", "one\n"))
	must(errors.Join(err, os.CopyFS(at("copy"), os.DirFS(at("old"))), os.CopyFS(at("edited"), os.DirFS(at("old")))))
	must(errors.Join(os.WriteFile(at("edited/etc/hook"), []byte("mine\n"), 0o644), os.Remove(at("edited/rc"))))

	must(errors.Join(os.Mkdir(at("linked"), 0o755), os.Symlink("../old/rc", at("linked/rc"))))
	for _, name := range []string{"edited", "linked"} {
		if r, err := s.Remove("conda "+at(name), false); err != nil || len(r.Files) > 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if r, err := s.Remove("direnv "+at("copy"), true); err != nil || len(r.Files) > 0 {
		t.Errorf("of another target: %+v, %v", r, err)
	}
	if r, err := s.Apply(wish("copy", "two\n")); err != nil || r.Files[0].Action != edit.Update || r.Files[1].Action != edit.Update {
		t.Errorf("the copy: %+v, %v", r, err)
	}
	if keys, err := s.Keys(); err != nil || strings.Join(keys, ",") != "conda "+at("copy")+",conda "+at("old") {
		t.Errorf("set up are %q, %v", keys, err)
	}
	must(os.Rename(at("old"), at("new")))
	for _, name := range []string{"new", "copy"} {
		if r, err := s.Remove("conda "+at(name), false); err != nil || len(r.Files) != 2 || r.Files[0].Action != edit.Delete || r.Files[1].Action != edit.Cut {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if left, err := os.ReadDir(at(name)); err != nil || len(left) != 1 {
			t.Errorf("in %s stay %v, %v", name, left, err)
		}
	}
	if keys, err := s.Keys(); err != nil || len(keys) > 0 {
		t.Errorf("set up are %q, %v", keys, err)
	}
}

// TestWorkflowWithoutGit: what was written into a repository goes from there when git's own folder is gone.
func TestWorkflowWithoutGit(t *testing.T) {
	home := t.TempDir()
	host := &machine.Host{Env: []string{"HOME=" + home}}
	g := GitHub{Host: host, Folder: filepath.Join(home, "repo", "deep"), Command: []string{"true"}}
	if err := os.MkdirAll(filepath.Join(home, "repo", ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := g.Wish()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&Setup{Host: host}).Apply(w); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(home, "repo", ".git")); err != nil {
		t.Fatal(err)
	}
	if key, err := g.Key(); err != nil || key != w.Key {
		t.Errorf("%q, %v; want %q", key, err, w.Key)
	}
	g.Folder = home
	if key, err := g.Key(); err == nil || !strings.Contains(err.Error(), "in no repository of git") {
		t.Errorf("above it: %q, %v", key, err)
	}
}
