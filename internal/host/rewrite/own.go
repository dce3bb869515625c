package rewrite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Create writes a file that is not there, wholly or not at all, with exactly this mode. The error is os.ErrExist where
// something has that name meanwhile.
func Create(path string, text []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".gpuard-*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it has the other name by now
	_, err = f.Write(text)
	if err == nil {
		err = unix.Fchmod(int(f.Fd()), uint32(mode.Perm()))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, f.Name(), unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // a file system that cannot
		err = os.Link(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// Remove removes a file that holds exactly before.
func Remove(path string, before []byte) error {
	info, err := os.Lstat(path)
	if err == nil {
		err = same(path, info, before)
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	return nil
}
