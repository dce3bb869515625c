package setup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/app"
	"gpuard/internal/core/edit"
)

// TestMachineLogins: logins start a program of root's, and none that somebody else could change.
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
	for program, trusted := range map[string]bool{sh: true, open: false, filepath.Join(root, "none"): false} {
		w, err := Machine{Setup: &Setup{App: &app.App{Root: root}, System: true}, Program: program}.Wish()
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
