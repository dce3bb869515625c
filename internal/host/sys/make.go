package sys

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// StagedFolder is a new folder that is being filled, under a temporary name in the parent of the final one.
type StagedFolder struct {
	*Dir
	// It has the name that it is for.
	Placed bool
	name   string
	parent *Dir
}

// AsidePrefix begins the name of a folder that is being made.
const AsidePrefix = ".gpuard."

// MakeAside makes such a folder in d, for its owner only.
func (d *Dir) MakeAside() (*StagedFolder, error) {
	name := AsidePrefix + rand.Text()[:12]
	dir, err := d.makeFolder(name, 0o700)
	if err != nil {
		return nil, err
	}

	return &StagedFolder{Dir: dir, name: name, parent: d}, nil
}

// MakeFolder makes a folder in d with exactly this mode, whatever the umask. The error is os.ErrExist where something
// has the name, also where another process has used the folder before its mode was set: then the mode stays as it is.
func (d *Dir) MakeFolder(name string, mode uint32) error {
	dir, err := d.makeFolder(name, mode)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // its mode is set

	return dir.SetMode(mode)
}

func (d *Dir) makeFolder(name string, mode uint32) (*Dir, error) {
	if err := d.Mkdir(name, mode|0o700); err != nil {
		return nil, err
	}

	dir, err := d.Dir(name)
	if err != nil {
		_ = d.Rmdir(name)
		return nil, err
	}

	err = dir.checkFresh()
	if err != nil {
		_ = dir.Close()
		_ = d.Rmdir(name)
		return nil, err
	}

	return dir, nil
}

// checkFresh is an error unless this can be a folder that the caller just made: the owner of the one above may have
// exchanged it for another folder of the caller's.
func (d *Dir) checkFresh() error {
	st, err := d.Status()
	if err != nil {
		return err
	}

	_, err = d.Readdirnames(1)
	if errors.Is(err, io.EOF) && st.Uid == uint32(os.Geteuid()) {
		return nil
	}

	return fmt.Errorf("%s is not as it was made: %w", d.Name(), os.ErrExist)
}

// Place gives the folder the name that it is for, if that is free: else the error is os.ErrExist.
func (s *StagedFolder) Place(as string) error {
	err := s.parent.Move(s.name, s.parent, as)
	s.Placed = err == nil
	return err
}

// Replace gives the folder the name that it is for in place of an empty folder.
func (s *StagedFolder) Replace(as string) error {
	err := s.parent.Rename(s.name, as)
	s.Placed = err == nil
	return err
}

// Discard closes the folder, and removes it if it is empty and still aside.
func (s *StagedFolder) Discard() {
	_ = s.Close()
	if !s.Placed {
		_ = s.parent.Rmdir(s.name)
	}
}

// MkdirAll makes the folder at a path, and those above it that are missing, as the umask leaves them. It goes where
// Follow goes.
func MkdirAll(path string, mode uint32) error {
	fd, err := walkPath(filepath.Clean(path), true, nil, mode)
	if err != nil {
		return &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return unix.Close(fd)
}

// Mkdir makes the folder at an absolute path with exactly this mode, in one step, where it is missing; those above it
// must be there. The error is os.ErrExist where something has the name.
func Mkdir(path string, mode uint32) error {
	parent, err := FollowDir(filepath.Dir(path))
	if errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "mkdir", Path: path, Err: unix.ENOENT}
	}
	if err != nil {
		return err
	}

	defer parent.Close() //nolint:errcheck // nothing is written through it

	switch _, err := parent.Lstat(filepath.Base(path)); {
	case err == nil:
		return &os.PathError{Op: "mkdir", Path: path, Err: unix.EEXIST}
	case !errors.Is(err, unix.ENOENT):
		return err
	}

	aside, err := parent.MakeAside()
	if err != nil {
		return err
	}

	defer aside.Discard()
	if err := aside.SetMode(mode); err != nil {
		return err
	}

	return aside.Place(filepath.Base(path))
}
