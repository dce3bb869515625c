package atomicfile

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
func Create(path string, text []byte, mode fs.FileMode) error {
	if err := createFile(path, text, mode); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

func createFile(path string, text []byte, mode fs.FileMode) error {
	p, err := openFolderOf(path)
	if err != nil {
		return err
	}

	defer p.close()
	f, named, err := p.createTemporary()
	if err != nil {
		return err
	}

	defer f.Close() //nolint:errcheck // synced before it gets its name
	if named {
		defer p.dir.Remove(p.temporaryName()) //nolint:errcheck // its other name
	}

	_, err = f.Write(text)
	if err != nil {
		return err
	}

	err = unix.Fchmod(int(f.Fd()), uint32(mode.Perm()))
	if err != nil {
		return err
	}

	err = f.Sync()
	if err != nil {
		return err
	}

	return p.dir.LinkFile(f, p.name)
}

// CheckWritable is an error where no file at path can come or go: its folder, or the one in which that would be made,
// is not this user's to write.
func CheckWritable(path string) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		err := checkFolder(dir)

		if errors.Is(err, os.ErrNotExist) && dir != filepath.Dir(dir) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot write %s: %w", path, &os.PathError{Op: "access", Path: dir, Err: err})
		}

		return nil
	}
}

// checkFolder is an error unless dir is a folder that this user may write.
func checkFolder(dir string) error {
	err := unix.Access(dir, unix.W_OK|unix.X_OK)
	if err != nil {
		return err
	}

	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return unix.ENOTDIR
	}

	return nil
}

// Remove removes a file that holds exactly before.
func Remove(path string, before []byte) error {
	err := removeUnchanged(path, before)
	if err != nil {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}

	return nil
}

func removeUnchanged(path string, before []byte) error {
	p, err := openFolderOf(path)
	if err != nil {
		return err
	}

	defer p.close()
	old, err := p.dir.Lstat(p.name)
	if err != nil {
		return err
	}

	err = p.checkUnchanged(old, before)
	if err != nil {
		return err
	}

	return p.dir.Remove(p.name)
}
