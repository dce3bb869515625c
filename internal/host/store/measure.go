package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/host/sys"
)

// measureName is the file in a user's lease folder by whose locks the processes that measure shares agree who measures
// which (package quotawatch). Nobody else can open it: who could, could lock it.
const measureName = "measure"

// MeasureFile opens the file by which the processes agree that measure leases like this one of the caller. It is made when
// it is missing.
func (f *Folder) MeasureFile(l job.Lease) (file *os.File, err error) {
	root, err := f.open()
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	dir, err := f.openUser(root, "leases", folderName(&l), uint32(os.Geteuid()))
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // nothing is written through it
	if file, err = openOwn(dir, measureName); errors.Is(err, os.ErrNotExist) {
		if file, err = dir.Create(measureName); errors.Is(err, os.ErrExist) {
			file, err = openOwn(dir, measureName)
		}
	}
	return file, err
}

// openOwn opens a regular file that only the caller can open.
func openOwn(dir *sys.Dir, name string) (*os.File, error) {
	fd, err := dir.Open(name, unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name)) //nolint:gosec // a descriptor
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != uint32(os.Geteuid()) || st.Mode&0o077 != 0) {
		err = fmt.Errorf("cannot use %s: it is not a file of its owner alone; remove it", file.Name())
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}
