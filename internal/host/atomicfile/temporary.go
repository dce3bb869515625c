package atomicfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// A new text is written into a file without a name, which the kernel removes when the process is killed. It has a
// temporary name only between link and rename. That name contains the file's, so that the next change of the file, or
// Tidy, removes it. On file systems without unnamed files it has the temporary name from the start.

// temporaryName is the temporary name of the new text.
func (p *folderEntry) temporaryName() string {
	sum := sha256.Sum256([]byte(p.name))
	return ".gpuard-" + hex.EncodeToString(sum[:8])
}

// createTemporary is a locked file for the new text; named says that it has the name aside already.
func (p *folderEntry) createTemporary() (f *os.File, named bool, err error) {
	f, err = p.dir.CreateTemp()
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) {
		err = p.removeTemporary()
		if err != nil {
			return nil, false, err
		}

		f, err = p.dir.Create(p.temporaryName())
		named = true
	}
	if err != nil {
		return nil, false, err
	}

	return f, named, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// RemoveTemporary removes the temporary file of a process that was killed while it changed path. It fails if a process
// is changing path now.
func RemoveTemporary(path string) error {
	p, err := openFolderOf(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}

	defer p.close()

	return p.removeTemporary()
}

func (p *folderEntry) removeTemporary() error {
	// To write: NFS locks no other.
	fd, err := p.dir.Open(p.temporaryName(), unix.O_RDWR)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}

	defer unix.Close(fd) //nolint:errcheck // nothing was written
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.New("another process is changing it right now: try again")
	}

	return p.dir.Remove(p.temporaryName())
}
