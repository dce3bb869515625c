package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/sys"
)

// folderEntry is a name in an open folder, so that the file that is checked, the one that is written and the temporary
// file are in the same folder whatever happens to the path.
type folderEntry struct {
	dir  *sys.Dir
	name string
}

// openFolderOf opens the folder of a path.
func openFolderOf(path string) (*folderEntry, error) {
	dir, err := sys.FollowDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	return &folderEntry{dir, filepath.Base(path)}, nil
}

func (p *folderEntry) close() { _ = p.dir.Close() }

// checkReplaceable returns the file's data, and refuses a file that cannot be replaced without another change.
func (p *folderEntry) checkReplaceable() (st unix.Stat_t, err error) {
	st, err = p.dir.Lstat(p.name)
	if err != nil {
		return st, err
	}

	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return st, errors.New("it is a symbolic link: name the file itself")
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return st, errors.New("it is not a regular file")
	case st.Nlink > 1:
		return st, errors.New("it has further names (hard links), which would keep the old text")
	case st.Mode&0o222 == 0:
		return st, errors.New("it is read-only")
	}

	return st, unix.Faccessat(int(p.dir.Fd()), p.name, unix.W_OK, 0)
}

// openChecked opens the file that was looked at.
func (p *folderEntry) openChecked(old unix.Stat_t) (*os.File, error) {
	fd, err := p.dir.Open(p.name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}

	f := os.NewFile(uintptr(fd), filepath.Join(p.dir.Name(), p.name)) //nolint:gosec // a descriptor
	var now unix.Stat_t
	err = unix.Fstat(fd, &now)
	if err == nil && (now.Ino != old.Ino || now.Dev != old.Dev) {
		err = errChanged
	}

	if err != nil {
		_ = f.Close()
		return nil, err
	}

	return f, nil
}

var errChanged = errors.New("it was changed meanwhile: look again")

// checkUnchanged checks again just before the rename: the user may have an editor open.
func (p *folderEntry) checkUnchanged(old unix.Stat_t, before []byte) error {
	f, err := p.openChecked(old)
	if err != nil {
		return err
	}

	defer f.Close() //nolint:errcheck // read only
	text, err := io.ReadAll(io.LimitReader(f, int64(len(before))+1))
	if err == nil && string(text) != string(before) {
		err = errChanged
	}

	return err
}
