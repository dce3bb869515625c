package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
)

// TestUnprotected: the remedy makes the folder that everybody then uses, also while there are leases in the other one.
func TestUnprotected(t *testing.T) {
	a := written(t, invented(t, "demo:1xL4"), map[string]string{"self/ns/x": ""})
	a.PrivateState = true
	best := filepath.Join(a.Run, "gpuard")
	note := a.unprotected("/run/lock/gpuard", 4242)
	for _, part := range []string{"the user 4242 owns the lease folder /run/lock/gpuard", `sudo "$(command -v gpuard)" setup machine`} {
		if !strings.Contains(note, part) {
			t.Errorf("%q is not in %q", part, note)
		}
	}
	if note := a.unprotected("/run/lock/gpuard", 0); note != "" {
		t.Errorf("of root's folder: %s", note)
	}
	before, err := a.folder(gpu.Machine{}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close() //nolint:errcheck // read only
	remedy := *a
	remedy.Env = []string{"GPUARD_STATE=" + best}
	for _, app := range []*App{&remedy, a} {
		f, err := app.folder(gpu.Machine{}, true)
		if err != nil {
			t.Fatal(err)
		}
		if f.Path != best || before.Path == best || !strings.Contains(strings.Join(f.Others, " "), before.Path) {
			t.Errorf("leases go to %s beside %v, and went to %s", f.Path, f.Others, before.Path)
		}
		_ = f.Close()
	}
}

// TestFolderBehindALink: where another user has put a link on the way to the state of an invented machine, nothing is made behind it.
func TestFolderBehindALink(t *testing.T) {
	gate.Need(t, "root")
	const mallory = 4003
	own, home := t.TempDir(), t.TempDir()
	link := filepath.Join(own, "machines")
	if err := errors.Join(os.Symlink(home, link), os.Lchown(link, mallory, mallory)); err != nil {
		t.Fatal(err)
	}
	m := invented(t, "demo:1xL4")
	a := written(t, m, nil)
	a.Machine, a.Env = "demo:1xL4", []string{"GPUARD_STATE=" + own}
	if _, err := a.folder(m, true); err == nil || !strings.Contains(err.Error(), link+" is a symbolic link of uid 4003") {
		t.Errorf("%v", err)
	}
	if names, err := os.ReadDir(home); err != nil || len(names) != 0 {
		t.Errorf("there is %v now, %v", names, err)
	}
}
