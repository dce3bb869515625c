package rewrite

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A new text is written into a file without a name, which the kernel takes away with a process that is killed. Only between
// getting the name beside the old file and taking the old one's place could it stay: the name tells whose it was, so that the
// next change of the same file, or Tidy, takes it away. File systems that know no files without a name give it at once.

// aside is the name beside path that a new text of it has for a moment.
func aside(path string) string {
	sum := sha256.Sum256([]byte(filepath.Base(path)))
	return filepath.Join(filepath.Dir(path), ".gpuard-"+hex.EncodeToString(sum[:8]))
}

// temporary is a locked file for the new text of path; named says that it has the name aside already.
func temporary(path string) (f *os.File, named bool, err error) {
	fd, err := unix.Open(filepath.Dir(path), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		f = os.NewFile(uintptr(fd), aside(path))
	} else if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) {
		if err = Tidy(path); err == nil {
			f, err = os.OpenFile(aside(path), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
			named = true
		}
	}
	if err != nil {
		return nil, false, err
	}
	return f, named, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// name gives a file without a name that of path, which nothing may have.
func name(f *os.File, path string) error {
	err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &os.LinkError{Op: "link", Old: f.Name(), New: path, Err: err}
	}
	return nil
}

// Tidy takes away what somebody left beside path who was killed while changing it. Somebody who is changing it now is an error.
func Tidy(path string) error {
	left, err := os.OpenFile(aside(path), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) // to write: NFS locks no other
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer left.Close() //nolint:errcheck // nothing was written
	if err := unix.Flock(int(left.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.New("somebody is changing it right now: try again")
	}
	return os.Remove(aside(path))
}
