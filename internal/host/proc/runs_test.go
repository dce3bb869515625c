package proc

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRuns(t *testing.T) {
	const daemon = "nv-fabricmanager" // longer than the kernel keeps
	for name, c := range map[string]struct {
		namespace string
		files     map[string]string
		runs, see bool
	}{
		"it runs":             {"pid:[4026531836]", map[string]string{"1/stat": statLine(1, "systemd", "S", 0, 1), "70/stat": statLine(70, "nv-fabricmanage", "S", 1, 9)}, true, true},
		"it does not":         {"pid:[4026531836]", map[string]string{"1/stat": statLine(1, "systemd", "S", 0, 1), "70/stat": statLine(70, "nv-fabric", "S", 1, 9)}, false, true},
		"it is dead":          {"pid:[4026531836]", map[string]string{"1/stat": statLine(1, "systemd", "S", 0, 1), "70/stat": statLine(70, "nv-fabricmanage", "Z", 1, 9)}, false, true},
		"a container":         {"pid:[4026532441]", map[string]string{"1/stat": statLine(1, "bash", "S", 0, 1)}, false, false},
		"others are hidden":   {"pid:[4026531836]", map[string]string{"70/stat": statLine(70, "bash", "S", 1, 9)}, false, false},
		"no namespace to see": {"", map[string]string{"1/stat": statLine(1, "systemd", "S", 0, 1)}, false, false},
	} {
		f := tree(t, c.files)
		if c.namespace != "" {
			if err := os.MkdirAll(filepath.Join(f.root, "self/ns"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(c.namespace, filepath.Join(f.root, "self/ns/pid")); err != nil {
				t.Fatal(err)
			}
		}
		if runs, sees := f.IsProgramRunning(daemon); runs != c.runs || sees != c.see {
			t.Errorf("%s: runs %v, seen %v", name, runs, sees)
		}
	}
}

func TestMissing(t *testing.T) {
	for link, want := range map[string]string{
		"pid:[4026531836]": "there is no such process",
		"pid:[4026532441]": "there is no such process in this PID namespace; outside of it the numbers are others",
	} {
		f := tree(t, map[string]string{"7/stat": statLine(7, "python", "Z", 1, 9)})
		if err := os.MkdirAll(filepath.Join(f.root, "self/ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(link, filepath.Join(f.root, "self/ns/pid")); err != nil {
			t.Fatal(err)
		}
		if got := f.MissingReason(8); got != want {
			t.Errorf("%s: %q, want %q", link, got, want)
		}
		if got, want := f.MissingReason(7), "it has ended, and its parent, process 1, has not collected it"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
