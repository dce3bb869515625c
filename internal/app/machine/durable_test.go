package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/sys"
)

// TestHostFolder: two hosts that share a home have different folders, and one host has the same after a boot.
func TestHostFolder(t *testing.T) {
	const id, other, boot, later = "0123456789abcdef0123456789abcdef\n", "1123456789abcdef0123456789abcdef\n", "b1", "b2"
	a := hostFolder("gpu07", id, boot, "")
	for name, tt := range map[string]struct {
		folder string
		same   bool
	}{
		"after a boot":                         {hostFolder("gpu07", id, later, ""), true},
		"another id":                           {hostFolder("gpu07", other, boot, ""), false},
		"a copy of its image":                  {hostFolder("gpu08", id, boot, ""), false},
		"a container that has its name and id": {hostFolder("gpu07", id, boot, "4026532441"), false},
		"without an id":                        {hostFolder("gpu07", "", boot, ""), false},
	} {
		if (tt.folder == a) != tt.same {
			t.Errorf("%s: %s, and %s", name, tt.folder, a)
		}
	}
	for _, id := range []string{"", "uninitialized\n", "00000000000000000000000000000000\n", "0123"} {
		if x, y := hostFolder("gpu07", id, boot, ""), hostFolder("gpu07", "", later, ""); x != y {
			t.Errorf("%q: %s, and %s", id, x, y)
		}
		for _, name := range []string{"", "localhost", "(none)"} { // nothing is known of it
			if x, y := hostFolder(name, id, boot, ""), hostFolder(name, id, later, ""); x == y {
				t.Errorf("%q %q: %s on two boots", name, id, x)
			}
		}
	}
	for name, want := range map[string]string{"gpu07": "gpu07", "a-b.example.org": "a-b.example.org", "../x/y": "_x_y", "": ""} {
		folder := hostFolder(name, id, boot, "")
		if got := (&Host{}).NameOfHost(folder); got != want && want != "" || filepath.Base(folder) != folder || strings.HasPrefix(folder, ".") {
			t.Errorf("%q: %s is that of %q", name, folder, got)
		}
	}
}

// TestDurablePath: what one host keeps in a shared home is nothing of another's.
func TestDurablePath(t *testing.T) {
	home := t.TempDir()
	host := func(id string) *Host {
		root := t.TempDir()
		err := errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o755), os.WriteFile(filepath.Join(root, "etc/machine-id"), []byte(strings.Repeat(id, 32)), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		return &Host{Root: root, Proc: proc.New("/proc"), Env: []string{"HOME=" + home}}
	}
	seen := map[string]bool{}
	for _, id := range []string{"a", "b", "a"} {
		for _, name := range []string{"queue", "projects"} {
			path, err := host(id).MakeDurable(name)
			again, oerr := host(id).OpenDurable(name)
			if err != nil || oerr != nil || path != again || !strings.HasPrefix(path, home+"/.local/state/gpuard/hosts/") {
				t.Errorf("%s, %v; %s, %v", path, err, again, oerr)
			}
			seen[path] = true
		}
	}
	if len(seen) != 4 {
		t.Errorf("%v", seen)
	}
	h := host("c")
	if path, err := h.OpenDurable("queue"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s, %v", path, err)
	}
	for _, env := range []string{"GPUARD_STATE=relative", "HOME="} {
		h.Env = []string{env}
		if path, err := h.DurablePath("queue"); err == nil {
			t.Errorf("%s: %s", env, path)
		}
	}
	h.Env = []string{"HOME=" + home, "GPUARD_STATE=" + filepath.Join(home, "state")}
	if path, err := h.MakeDurable("queue"); err != nil || !strings.HasPrefix(path, home+"/state/user-") || !strings.HasPrefix(h.HomePath("seen"), home+"/.local") {
		t.Errorf("%s, %v, %s", path, err, h.HomePath("seen"))
	}
	if info, err := os.Stat(filepath.Join(home, "state")); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("%v, %v", info, err)
	}
}

// folders are the names in a folder.
func folders(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestRenamed: a machine that changes its name has the folder that it had until the next boot, and a copy of its image,
// which has another boot, never.
func TestRenamed(t *testing.T) {
	home := t.TempDir()
	renamed := func(boot, name string) *Host {
		root := t.TempDir()
		for _, file := range []struct{ path, text string }{{"etc/machine-id", strings.Repeat("a", 32)}, {"proc/sys/kernel/random/boot_id", strings.Repeat(boot, 36)}, {"proc/sys/kernel/hostname", name}} {
			path := filepath.Join(root, file.path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(file.text+"\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		return &Host{Root: root, Proc: proc.New(filepath.Join(root, "proc")), Env: []string{"HOME=" + home}}
	}
	made := func(h *Host) string {
		t.Helper()
		_, berr := h.MakeDurable("queue/env")
		path, err := h.MakeDurable("queue")
		again, oerr := h.OpenDurable("queue")
		inside, _ := os.ReadDir(path)
		if err != nil || oerr != nil || berr != nil || path != again || len(inside) != 1 || len(folders(t, filepath.Dir(path))) != 1 {
			t.Fatal(path, err, again, oerr, berr, inside)
		}
		return path
	}
	first := made(renamed("1", "gpu07"))
	if second := made(renamed("1", "dhcp-12")); second != first {
		t.Errorf("after a change of its name: %s, before %s", second, first)
	}
	if copied := made(renamed("2", "gpu08")); copied == first {
		t.Errorf("a copy of its image has %s", copied)
	}
	if later := made(renamed("3", "gpu07")); later != first {
		t.Errorf("after a boot: %s, before %s", later, first)
	}
	links, err := filepath.Glob(home + "/.local/state/gpuard/hosts/.boot-*")
	if err != nil || len(links) != 2 {
		t.Errorf("links of boots that are over stay: %v, %v", links, err)
	}
}

// TestDurableAmongOthers: below a folder that a group may write nothing is kept, and the error says what to type.
func TestDurableAmongOthers(t *testing.T) {
	gate.Need(t, "root")
	home := t.TempDir()
	h := &Host{Proc: proc.New("/proc"), Env: []string{"HOME=" + home}}
	if _, err := h.MakeDurable("queue"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown(home, 0, 4077), unix.Chmod(home, 0o775), os.Chmod(filepath.Dir(home), 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, by := range map[string]func(string) (string, error){"made": h.MakeDurable, "opened": h.OpenDurable} {
		if path, err := by("queue"); err == nil || !strings.Contains(err.Error(), "the group 4077 may write in "+home) || !strings.Contains(err.Error(), "chmod g-w "+home) {
			t.Errorf("%s: %s, %v", name, path, err)
		}
	}
	if note := h.EndedNote(); !strings.Contains(note, "leave no lines for gpuard history: the group 4077 may write in "+home) {
		t.Error(note)
	}
	ours := filepath.Join(home, ".local/state/gpuard")
	for path, want := range map[string]string{ours: "sudo rm -r " + ours, home: "set XDG_STATE_HOME to a folder of your own"} {
		err := h.AdviseOwn(&sys.ForeignError{Path: path, UID: 4003})
		if !strings.Contains(err.Error(), want) || path == home && strings.Contains(err.Error(), "rm -r") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
