package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/sys"
)

// measureName is the file in a user's lease folder by whose locks the processes that measure leases agree who measures
// which, and in which they note what they have measured (package quotawatch). Nobody else can open it: who could, could
// lock it.
const measureName = "measure"

// MeasureFile opens the file by which the processes agree that measure the leases of the caller. A missing one is made
// if that is asked for.
func (f *Folder) MeasureFile(missing bool) (file *os.File, err error) {
	root, err := f.openFolder()
	if err != nil {
		return nil, err
	}

	defer root.Close() //nolint:errcheck // nothing is written through it
	name, err := f.ownFolderName(root, "leases")
	if err != nil {
		return nil, err
	}

	dir, err := f.openUser(root, "leases", name, uint32(os.Geteuid()))
	if err != nil {
		return nil, err
	}

	defer dir.Close() //nolint:errcheck // nothing is written through it
	file, err = openOwnFile(dir, measureName)
	if missing && errors.Is(err, os.ErrNotExist) {
		file, err = dir.Create(measureName)
		if errors.Is(err, os.ErrExist) {
			file, err = openOwnFile(dir, measureName)
		}
	}

	return file, err
}

// openOwnFile opens a regular file that only the caller can open.
func openOwnFile(dir *sys.Dir, name string) (*os.File, error) {
	fd, err := dir.Open(name, unix.O_RDWR)
	if err != nil {
		return nil, err
	}

	file := os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name)) //nolint:gosec // a descriptor
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != uint32(os.Geteuid()) || st.Mode&0o077 != 0) {
		err = fmt.Errorf("cannot use %s: it is not a file of its owner alone; remove it", file.Name())
	}

	if err != nil {
		_ = file.Close()
		return nil, err
	}

	return file, nil
}
