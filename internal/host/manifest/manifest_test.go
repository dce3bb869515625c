package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gpuard/internal/core/edit"
	"gpuard/internal/gate"
)

// TestOddRecord: a file that is not a record of gpuard does not block, is not read to its end, and is not overwritten.
func TestOddRecord(t *testing.T) {
	for name, c := range map[string]struct {
		put  func(path string) error
		want string
	}{
		"a pipe":   {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "nothing that gpuard wrote; move it away"},
		"a folder": {func(path string) error { return os.Mkdir(path, 0o700) }, "nothing that gpuard wrote; move it away"},
		"without an end": {func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) },
			"nothing that gpuard wrote; move it away"},
		"a link": {func(path string) error { return os.Symlink("/dev/zero", path) }, "symbolic link; put the file itself there"},
		"of somebody": {func(path string) error {
			return errors.Join(os.WriteFile(path, []byte(`{"schema":"gpuard.record/1"}`), 0o600), os.Chown(path, 1234, -1))
		},
			"belongs to another user; move it away"},
		"no JSON": {func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) }, "damaged, or of another version; move it away"},
	} {
		path := filepath.Join(t.TempDir(), "setup.json")
		if err := c.put(path); err != nil {
			if os.Geteuid() != 0 && errors.Is(err, os.ErrPermission) {
				continue // only root can change the owner of a file
			}
			t.Fatal(err)
		}
		if _, err := Peek(path); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		if m, err := Open(path, nil); m != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, to write: %v", name, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOddRest: a file or folder under the temporary name of the record does not prevent Save.
func TestOddRest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "setup.json")
	if err := syscall.Mkfifo(path+".new", 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.RecordIntent("x", edit.Step{Change: edit.Change{Path: "/a"}, After: "text\n"})
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := Peek(path); err != nil || len(r.EntriesOf("x")) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := os.Lstat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what lay there stays (%v)", err)
	}
}

// TestBusy: Open calls busy while another process has the lock, and then locks the folder that exists by then.
func TestBusy(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "deep", "setup.json")
		first, err := Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		told := 0
		second, err := Open(path, func() {
			told++
			err := first.Close() // its folder goes with it
			if again {
				err = errors.Join(err, os.Mkdir(filepath.Dir(path), 0o755))
			}
			if err != nil {
				t.Error(err)
			}
		})
		if err != nil || told != 1 {
			t.Fatalf("told %d times, %v", told, err)
		}
		folder, err := os.Open(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			t.Errorf("somebody else can have the lock, too (%v)", err)
		}
		if err := errors.Join(folder.Close(), second.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its folder stays (%v)", err)
		}
	}
}

// TestRootMakesNothingBehindALink: root follows no link of another user to make or remove a folder, and keeps no
// record.
func TestRootMakesNothingBehindALink(t *testing.T) {
	gate.Need(t, "root")
	const mallory = 4003
	home, etc, own := t.TempDir(), t.TempDir(), t.TempDir()
	link := filepath.Join(home, "link")
	if err := errors.Join(os.Mkdir(filepath.Join(etc, "empty"), 0o700), os.Symlink(etc, link), os.Lchown(link, mallory, mallory)); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "symbolic link of uid 4003") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, path := range []string{filepath.Join(link, "setup.json"), filepath.Join(link, "deep", "setup.json")} {
		m, err := Open(path, nil)
		refused("a record", err)
		if m != nil {
			_ = m.Close()
		}
	}
	m, err := Open(filepath.Join(own, "setup.json"), nil)
	if err != nil {
		t.Fatal(err)
	}
	refused("a file's folder", m.PrepareFolders([]string{filepath.Join(link, "deep", "file")}))
	m.Folders = []string{filepath.Join(link, "empty")}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(etc); err != nil || len(names) != 1 || names[0].Name() != "empty" {
		t.Errorf("there is %v now, %v", names, err)
	}
}
