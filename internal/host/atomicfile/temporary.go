package atomicfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// A new text is written into a file without a name, which the kernel takes away with a process that is killed. Only between
// getting the name beside the old file and taking the old one's place could it stay: the name tells whose it was, so that the
// next change of the same file, or Tidy, takes it away. File systems that know no files without a name give it at once.

// aside is the name beside the file that a new text of it has for a moment.
func (p *place) aside() string {
	sum := sha256.Sum256([]byte(p.name))
	return ".gpuard-" + hex.EncodeToString(sum[:8])
}

// temporary is a locked file for the new text; named says that it has the name aside already.
func (p *place) temporary() (f *os.File, named bool, err error) {
	f, err = p.dir.Temporary()
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) {
		if err = p.tidy(); err == nil {
			f, err = p.dir.Create(p.aside())
			named = true
		}
	}
	if err != nil {
		return nil, false, err
	}
	return f, named, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// Tidy takes away what somebody left beside path who was killed while changing it. Somebody who is changing it now is an error.
func Tidy(path string) error {
	p, err := find(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.close()
	return p.tidy()
}

func (p *place) tidy() error {
	fd, err := p.dir.Open(p.aside(), unix.O_RDWR) // to write: NFS locks no other
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.New("somebody is changing it right now: try again")
	}
	return p.dir.Remove(p.aside())
}
