package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

// writeUserFile writes a text into a user's file.
func writeUserFile(t testing.TB, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSetupFileMoved: a file that its user has moved, with a symbolic link in its place, is still known to gpuard, and
// belongs to the user: it stays when gpuard's lines go.
func TestSetupFileMoved(t *testing.T) {
	t.Parallel()
	for _, mine := range []string{"export A=1\n", ""} {
		for _, again := range []bool{true, false} {
			home, bin := makeEditedHome(t), makeProgramFolder(t)
			file, moved := filepath.Join(home, ".bashrc"), filepath.Join(home, "dots", "bashrc")
			if mine != "" {
				writeUserFile(t, file, mine)
			}
			if got := runCommand(t, setupCommand(t, home, bin, "shell", "bash")); got.code != 0 {
				t.Fatalf("%+v", got)
			}
			if err := errors.Join(os.Rename(file, moved), os.Symlink("dots/bashrc", file)); err != nil {
				t.Fatal(err)
			}
			if again {
				before := readTree(t, filepath.Dir(moved))
				if got := runCommand(t, setupCommand(t, home, bin, "shell", "bash")); got.code != 0 || !strings.Contains(got.out, "unchanged: ~/dots/bashrc") {
					t.Errorf("%+v", got)
				}
				checkSameTree(t, "after the same once more", before, readTree(t, filepath.Dir(moved)))
			}
			if got := runCommand(t, setupCommand(t, home, bin, "shell", "bash", "--remove")); got.code != 0 {
				t.Errorf("%+v", got)
			}
			if text, err := os.ReadFile(moved); err != nil || string(text) != mine {
				t.Errorf("%q became %q (%v)", mine, text, err)
			}
			if got := runCommand(t, setupCommand(t, home, bin)); !strings.Contains(got.out, "nothing is set up") {
				t.Errorf("%+v", got)
			}
		}
	}
}

// TestSetupRecordLost: without its record gpuard knows its lines by their marks, and takes them away once it was asked
// to have them.
func TestSetupRecordLost(t *testing.T) {
	t.Parallel()
	home, bin := makeEditedHome(t), makeProgramFolder(t)
	before := readTree(t, home)
	direnv := func(flag string) {
		t.Helper()
		if got := runCommand(t, setupCommand(t, home, bin, "direnv", flag)); got.code != 0 {
			t.Fatalf("%+v", got)
		}
	}
	direnv("--device=0")
	if err := os.RemoveAll(filepath.Join(home, ".local/state/gpuard")); err != nil {
		t.Fatal(err)
	}
	direnv("--device=0")
	direnv("--remove")
	checkSameTree(t, "after --remove", before, readTree(t, home))
}

// TestSetupCannot: where one of the files cannot be written, none is, and --dry-run says so, too.
func TestSetupCannot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hinder func(home string) error
		want   string
		target []string
	}{
		"a hard link": {func(home string) error { return os.Link(filepath.Join(home, ".envrc"), filepath.Join(home, "mine")) }, "hard links", []string{"direnv", "--device", "0"}},
		"read-only":   {func(home string) error { return os.Chmod(filepath.Join(home, ".envrc"), 0o444) }, "read-only", []string{"direnv", "--device", "0"}},
		"a link to nothing": {func(home string) error { return os.Symlink("none/bashrc", filepath.Join(home, ".bashrc")) },
			"a symbolic link to what is not there; make that file, or delete the link", []string{"shell", "bash"}},
		"a folder": {func(home string) error { return os.Mkdir(filepath.Join(home, ".bashrc"), 0o755) }, "not a plain file", []string{"shell", "bash"}},
		"a folder that is a file": {func(home string) error { return os.WriteFile(filepath.Join(home, ".config"), nil, 0o600) },
			".config", []string{"shell", "fish"}},
		"the second file of two": {func(home string) error {
			place := filepath.Join(home, ".config/fish")
			return errors.Join(os.MkdirAll(place, 0o755), os.WriteFile(filepath.Join(place, "conf.d"), nil, 0o600))
		}, "conf.d", []string{"shell", "fish"}},
		"a record of another version": {func(home string) error {
			place := filepath.Join(home, ".local/state/gpuard")
			return errors.Join(os.MkdirAll(place, 0o755), os.WriteFile(filepath.Join(place, "setup.json"), []byte(`{"schema":"gpuard.record/9"}`), 0o600))
		}, "setup.json is damaged, or of another version", []string{"direnv", "--device", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			home, bin := makeEditedHome(t), makeProgramFolder(t)
			if err := c.hinder(home); err != nil {
				t.Fatal(err)
			}
			before := readTree(t, home)
			for _, flags := range [][]string{{"--dry-run"}, {}} {
				if got := runCommand(t, setupCommand(t, home, bin, append(slices.Clone(c.target), flags...)...)); got.code != 1 || got.out != "" || !strings.Contains(got.err, c.want) {
					t.Errorf("%q: %+v", flags, got)
				}
			}
			checkSameTree(t, "after a refusal", before, readTree(t, home))
		})
	}
}

// TestSetupRemoveBesideOdd: a changed file does not keep the others from being removed.
func TestSetupRemoveBesideOdd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(file string) error
		code   int
	}{
		"a folder in its place": {func(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o755)) }, 1},
		"another text":          {func(file string) error { return os.WriteFile(file, []byte("mine\n"), 0o600) }, 1},
		"gone":                  {os.Remove, 0},
		"a file in place of its folder": {func(file string) error {
			return errors.Join(os.RemoveAll(filepath.Dir(file)), os.WriteFile(filepath.Dir(file), nil, 0o600))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			home, bin := makeEditedHome(t), makeProgramFolder(t)
			if got := runCommand(t, setupCommand(t, home, bin, "shell", "fish")); got.code != 0 {
				t.Fatalf("%+v", got)
			}
			if err := c.change(filepath.Join(home, ".config/fish/completions/gpuard.fish")); err != nil {
				t.Fatal(err)
			}
			if got := runCommand(t, setupCommand(t, home, bin, "shell", "fish", "--remove")); got.code != c.code || c.code == 1 && !strings.Contains(got.err, "it was changed") {
				t.Errorf("%+v", got)
			}
			if _, err := os.Lstat(filepath.Join(home, ".config/fish/conf.d")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the other file stayed (%v)", err)
			}
			if got := runCommand(t, setupCommand(t, home, bin)); strings.Contains(got.out, "nothing is set up") != (c.code == 0) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestSetupHomeOfAnother: root makes no folders in another user's home, who could not use them.
func TestSetupHomeOfAnother(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	home, bin := filepath.Join(quietDir(t), "home"), makeProgramFolder(t)
	if err := errors.Join(os.Mkdir(home, 0o755), os.Chown(home, aliceUID, aliceUID)); err != nil {
		t.Fatal(err)
	}
	if got := runCommand(t, setupCommand(t, home, bin, "shell", "bash")); got.code != 1 || !strings.Contains(got.err, home+" belongs to another user") {
		t.Errorf("%+v", got)
	}
	if left := readTree(t, home); len(left) != 1 {
		t.Errorf("%q", left)
	}
}

// makeSmallHome is a home on a file system with few bytes, as seen through the process that has it.
func makeSmallHome(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-ec", `mount -t tmpfs -o size=64k none "$0"; echo; read line`, t.TempDir())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "root", cmd.Args[len(cmd.Args)-1], "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	return home
}

// fillFileSystem leaves so many pages of the file system of a home.
func fillFileSystem(t *testing.T, home string, free int64) {
	t.Helper()
	f, err := os.Create(filepath.Join(home, "..", "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = io.Copy(f, zeroReader{})
	if size, _ := f.Seek(0, io.SeekEnd); !errors.Is(err, unix.ENOSPC) || f.Truncate(max(0, size-free*4096)) != nil {
		t.Fatalf("the file system does not become full: %v", err)
	}
}

type zeroReader struct{}

func (zeroReader) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestSetupDiskFull: wherever the file system becomes full, everything is there in the end, or nothing.
func TestSetupDiskFull(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root", "pidns")
	bin, refused := makeProgramFolder(t), 0
	for free := range int64(8) {
		for _, earlier := range [][]string{nil, {"shell", "fish", "--no-prompt"}, {"shell", "fish", "--login"}} {
			home := makeSmallHome(t)
			writeUserFile(t, filepath.Join(home, ".config/fish/config.fish"), "set -x A 1\n")
			empty := readTree(t, home)
			if earlier != nil {
				if got := runCommand(t, setupCommand(t, home, bin, earlier...)); got.code != 0 {
					t.Fatalf("%+v", got)
				}
			}
			before := readTree(t, home)
			fillFileSystem(t, home, free)
			got := runCommand(t, setupCommand(t, home, bin, "shell", "fish"))
			switch {
			case got.code == 0:
			case got.code != 1 || got.out != "" || !strings.Contains(got.err, syscall.ENOSPC.Error()) || strings.Count(got.err, "cannot ") != 1:
				t.Errorf("%d pages free, after %q: %+v", free, earlier, got)
			default:
				refused++
				checkSameTree(t, "with a full disk", before, readTree(t, home))
			}
			if err := os.Remove(filepath.Join(home, "..", "fill")); err != nil {
				t.Fatal(err)
			}
			if got := runCommand(t, setupCommand(t, home, bin, "shell", "fish", "--remove")); got.code != 0 {
				t.Errorf("%+v", got)
			}
			checkSameTree(t, "after --remove", empty, readTree(t, home))
		}
	}
	if refused < 3 || refused > 21 {
		t.Errorf("the disk was full %d times of 24", refused)
	}
}

// TestSetupRemoveListed: what the list names can be taken away by that name, wherever one is.
func TestSetupRemoveListed(t *testing.T) {
	t.Parallel()
	home, bin := makeEditedHome(t), makeProgramFolder(t)
	before := readTree(t, home)
	repo := filepath.Join(home, "a repo")
	if err := os.MkdirAll(filepath.Join(repo, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := setupCommand(t, home, bin, "github")
	cmd.Dir = repo
	mustRun(t, cmd)
	if err := os.Rename(repo, filepath.Join(home, "..", "elsewhere")); err != nil {
		t.Fatal(err)
	}
	name := "github " + repo
	if got := runCommand(t, setupCommand(t, home, bin)); got.out != name+"\n" {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{2, "it is in no repository of git; go to one, or type git init; or remove it by the name that gpuard setup lists: gpuard setup --remove NAME", []string{"github", "--remove"}},
		{2, `cannot take "github" away: it is not set up; gpuard setup lists all setups`, []string{"--remove", "github"}},
		{0, "", []string{"--dry-run", "--remove", name}},
		{0, "already gone: ~/a repo/.github/workflows/gpuard.yml", []string{"--remove", name}},
		{2, "cannot take", []string{"--remove", name}},
	} {
		if got := runCommand(t, setupCommand(t, home, bin, c.args...)); got.code != c.code || !strings.Contains(got.out+got.err, c.want) {
			t.Errorf("%q: %+v", c.args, got)
		}
	}
	checkSameTree(t, "after --remove", before, readTree(t, home))
}
