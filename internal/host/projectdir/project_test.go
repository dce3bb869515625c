package projectdir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/service"
)

func made(t *testing.T) *Folder {
	t.Helper()
	f, err := MakeFolder(filepath.Join(t.TempDir(), "projects"), ID("/home/alice/My App/gpuard.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// told waits for a value in Changed.
func told(t *testing.T, w *Watcher) {
	t.Helper()
	select {
	case <-w.Changed:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was told for 20 s")
	}
}

// TestID: the id depends on the path, not on the file's content, and is readable.
func TestID(t *testing.T) {
	ids := []string{ID("/a/My App/gpuard.yaml"), ID("/b/My App/gpuard.yaml"), ID("/a/My App/demo.yaml")}
	for i, id := range ids {
		if !strings.HasPrefix(id, "my-app-") || len(id) != len("my-app-")+12 || slices.Index(ids, id) != i {
			t.Errorf("%v", ids)
		}
	}
}

// TestFiles: written files are read back, and missing ones are empty.
func TestFiles(t *testing.T) {
	f := made(t)
	if w, err := f.ReadWanted(); err != nil || len(w.Instances) != 0 {
		t.Errorf("%+v, %v", w, err)
	}
	if _, found := f.ReadRecord("one"); found {
		t.Error("a record that nobody wrote")
	}
	lock, err := f.LockKeeper("one")
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	defer lock.Release()
	env := []string{"A=1", "B=two\nlines", "EMPTY="}
	err = errors.Join(f.SetWanted(service.Wanted{Name: "x", Count: 7}), f.SetEnvironment(env), f.SetPlacement(service.Placement{"node": {"GPU-1"}}),
		f.SetRecord("one", service.Record{State: service.Running}), f.RequestEnd("one", "abc", true))
	if err != nil {
		t.Fatal(err)
	}
	w, _ := f.ReadWanted()
	got, _ := f.ReadEnvironment()
	p, _ := f.ReadPlacement()
	r, _ := f.ReadRecord("one")
	hash, now := f.RequestedEnd("one")
	if w.Count != 7 || !slices.Equal(got, env) || p["node"][0] != "GPU-1" || r.State != service.Running || hash != "abc" || !now {
		t.Errorf("%+v %q %v %+v %q %v", w, got, p, r, hash, now)
	}
	if err := f.RequestEnd("one", "abc", false); err != nil {
		t.Fatal(err)
	}
	if hash, now = f.RequestedEnd("one"); hash != "abc" || !now {
		t.Errorf("asked again without haste: %q %v, and the haste of before counts", hash, now)
	}
	if err := f.RequestEnd("one", "def", false); err != nil {
		t.Fatal(err)
	}
	if hash, now = f.RequestedEnd("one"); hash != "def" || now {
		t.Errorf("asked for the end of another start: %q %v", hash, now)
	}
	if names := f.Instances(); !slices.Equal(names, []string{"one"}) {
		t.Errorf("%v", names)
	}
}

// TestStrange: a link in place of a file, a name outside of the folder, and a folder that others may enter are refused.
func TestStrange(t *testing.T) {
	f := made(t)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := errors.Join(os.WriteFile(elsewhere, []byte(`{"count": 9}`), 0o600), os.Symlink(elsewhere, f.filePath(wantedFile))); err != nil {
		t.Fatal(err)
	}
	if w, err := f.ReadWanted(); err == nil {
		t.Errorf("a link was followed: %+v", w)
	}
	if _, err := f.LockKeeper("../../one"); err == nil {
		t.Error("an instance outside the folder")
	}
	if err := os.Chmod(f.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(f.Path); err == nil || !strings.Contains(err.Error(), "others may enter it; chmod 700 ") {
		t.Errorf("%v", err)
	}
	if _, err := Open(f.Path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestLocks: one process has a lock, others see that, and the watcher reports its end.
func TestLocks(t *testing.T) {
	f := made(t)
	lock, err := f.LockKeeper("one")
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	if again, err := f.LockKeeper("one"); again != nil || err != nil || !f.HasKeeper("one") || f.IsAlive("one") {
		t.Errorf("%v, %v, kept %v, lives %v", again, err, f.HasKeeper("one"), f.IsAlive("one"))
	}
	w, err := f.Watch("")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	lock.Release()
	for told(t, w); f.HasKeeper("one"); {
		told(t, w)
	}
	if lock, err = f.LockKeeper("two"); err != nil || lock == nil { // a new folder
		t.Fatal(lock, err)
	}
	told(t, w)
	if err := f.SetRecord("two", service.Record{}); err != nil {
		t.Fatal(err)
	}
	told(t, w)
	if err := os.RemoveAll(f.instancePath("two", "")); err != nil || lock.IsInPlace() {
		t.Errorf("%v: the lock of a folder that is gone protects nothing", err)
	}
}
