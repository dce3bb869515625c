package sweep

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"gpuard/internal/app/runner"
)

// TestDiscard: of a sweep that cannot be nothing stays, and nothing of what has been put in the place of its folder
// goes.
func TestDiscard(t *testing.T) {
	top := t.TempDir()
	dir, thesis := filepath.Join(top, "sweep"), filepath.Join(top, "thesis")
	for _, path := range []string{dir, thesis} {
		if err := errors.Join(os.MkdirAll(filepath.Join(path, "runs", "1"), 0o700), os.WriteFile(filepath.Join(path, "runs", "1", "log"), nil, 0o600),
			os.WriteFile(filepath.Join(path, lockFile), nil, 0o600), os.WriteFile(filepath.Join(path, requestFile), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() //nolint:errcheck // read only
	s := &Sweep{Folder: &runner.Folder{Dir: dir, Lock: lock}}
	if err := errors.Join(os.Rename(dir, dir+"2"), os.Rename(thesis, dir)); err != nil {
		t.Fatal(err)
	}
	s.discardFolder()
	for _, name := range []string{lockFile, requestFile, "runs/1/log"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(os.Rename(dir, thesis), os.Rename(dir+"2", dir)); err != nil {
		t.Fatal(err)
	}
	s.discardFolder()
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
