package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"gpuard/internal/host/files"
	"gpuard/internal/host/sys"
)

// WriteFile writes a file that the caller named, in place of what it had. As everywhere, it follows no link of another
// user.
func WriteFile(path string, data []byte, mode uint32) error {
	file, err := sys.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)

	return errors.Join(err, file.Close())
}

// ReadFile reads a file that the caller named, or a pipe; it waits for neither for ever.
func ReadFile(path string) ([]byte, error) { return files.ReadNamed(path, 1<<20) }

// CheckWritable is why a file that the caller named could not be written later; nil if it can, as it seems.
func CheckWritable(path string) error {
	file, err := sys.OpenFile(path, os.O_WRONLY, 0)
	switch {
	case err == nil:
		defer file.Close() //nolint:errcheck // nothing was written
		if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() && info.Mode()&os.ModeCharDevice == 0 {
			return errNoFile
		}
		return nil
	case errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.EISDIR):
		return errNoFile
	case !errors.Is(err, os.ErrNotExist):
		return withoutPath(err)
	}

	folder, err := sys.FollowDir(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("there is no folder %s", filepath.Dir(path))
	}
	if err != nil {
		return withoutPath(err)
	}

	defer folder.Close() //nolint:errcheck // nothing was written

	return withoutPath(folder.CheckWritable())
}

var errNoFile = errors.New("it is no file")

// withoutPath is the error without the path, which the caller names.
func withoutPath(err error) error {
	if at := (*os.PathError)(nil); errors.As(err, &at) {
		return at.Err
	}
	return err
}
