package setup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/edit"
	"gpuard/internal/gate"
)

// TestMachineLogins: logins start a program that only root can change.
func TestMachineLogins(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc/zsh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/zsh/zshrc"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(root, "gpuard")
	if err := os.WriteFile(open, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o775); err != nil {
		t.Fatal(err)
	}
	sh, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(root, "open") // where others can put something else into its place, or into that of a link
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "gpuard"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sh, filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	for program, trusted := range map[string]bool{sh: true, open: false, filepath.Join(folder, "gpuard"): false, filepath.Join(folder, "link"): false, filepath.Join(root, "none"): false} {
		w, err := Machine{Setup: &Setup{Host: &machine.Host{Root: root}, System: true}, Program: program}.Wish()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"etc/profile.d/gpuard.sh", "etc/fish/conf.d/gpuard.fish", "etc/zsh/zprofile"} {
			i := slices.IndexFunc(w.Changes, func(c edit.Change) bool { return c.Path == filepath.Join(root, name) })
			if trusted != (i >= 0) {
				t.Errorf("%s: %s is part of it: %v", program, name, !trusted)
			} else if trusted && !strings.Contains(w.Changes[i].Content, program+" env --login") {
				t.Errorf("%s says %q", name, w.Changes[i].Content)
			}
		}
		if said := strings.Contains(strings.Join(w.Notes, "\n"), "logins are left as they are"); said == trusted {
			t.Errorf("%s: it is said: %v", program, said)
		}
	}
}

// TestRootsOwn: a file of another user is not root's, whatever its mode.
func TestRootsOwn(t *testing.T) {
	gate.Need(t, "root")
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()         //nolint:errcheck // it was killed
	defer cmd.Process.Kill() //nolint:errcheck // it sleeps
	for pid, roots := range map[int]bool{cmd.Process.Pid: false, os.Getpid(): true} {
		if err := checkRootOwned(fmt.Sprintf("/proc/%d/stat", pid)); (err == nil) != roots {
			t.Errorf("process %d: %v", pid, err)
		}
	}
}
