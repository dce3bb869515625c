package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Folder is an open folder. What is asked of it is asked of this very folder, whatever has its name by then.
type Folder struct {
	Path string
	Access
	fd   int
	stat unix.Stat_t
}

// WalkUp opens the current folder and its parents, one after the other, until each returns true. It stops after the
// home folder, after the root of a git repository, and before another file system. Then it returns the last folder, and
// in a few words why it stopped.
func WalkUp(home string, each func(*Folder) (found bool)) (last, why string, err error) {
	path, err := unix.Getwd()
	if err != nil {
		return "", "", fmt.Errorf("cannot find the current folder: %w", err)
	}

	dir, err := openFolder(unix.AT_FDCWD, ".", path)
	if err != nil {
		return "", "", fmt.Errorf("cannot open the current folder: %w", err)
	}

	for {
		if each(dir) {
			_ = unix.Close(dir.fd)
			return "", "", nil
		}

		above, why := dir.openParent(home)
		_ = unix.Close(dir.fd)
		if above == nil {
			return dir.Path, why, nil
		}

		dir = above
	}
}

// openParent opens the next folder; nil, and why, at the end.
func (f *Folder) openParent(home string) (up *Folder, why string) {
	var st unix.Stat_t
	switch {
	case home != "" && unix.Stat(home, &st) == nil && isSameFile(&st, &f.stat):
		return nil, "your home folder"
	case unix.Fstatat(f.fd, ".git", &st, unix.AT_SYMLINK_NOFOLLOW) == nil:
		return nil, "the root of a git repository"
	}

	up, err := openFolder(f.fd, "..", filepath.Dir(f.Path))
	switch {
	case err != nil:
		return nil, "the folder above it cannot be opened"
	case isSameFile(&up.stat, &f.stat):
		why = "the root of all folders"
	case up.stat.Dev != f.stat.Dev:
		why = "where its file system begins"
	default:
		return up, ""
	}

	_ = unix.Close(up.fd)

	return nil, why
}

func isSameFile(a, b *unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

// openFolder needs no more than the right to enter the folder.
func openFolder(at int, name, path string) (*Folder, error) {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}

	d := &Folder{Path: path, fd: fd}
	if err := unix.Fstat(fd, &d.stat); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}

	d.Access = Access{d.stat.Uid, d.stat.Gid, fs.FileMode(d.stat.Mode & 0o777)}

	return d, nil
}

// EntryAccess returns the owner and the mode of an entry of the folder; of a symbolic link itself. The error is
// os.ErrNotExist if there is no such entry, or no folder.
func (f *Folder) EntryAccess(name string) (Access, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(f.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Access{}, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return Access{}, os.ErrNotExist
	}

	return Access{st.Uid, st.Gid, fs.FileMode(st.Mode & 0o777)}, nil
}

// ReadFile reads a plain file of the folder, through symbolic links: users who may write the folder decide where they
// lead. The error is os.ErrNotExist if there is none, or no folder.
func (f *Folder) ReadFile(name string) (Text, error) {
	fd, err := unix.Openat(f.fd, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return Text{}, err
	}

	file := os.NewFile(uintptr(fd), name)
	defer file.Close() //nolint:errcheck // read only
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return Text{}, os.ErrNotExist
	}

	return readPlain(file, maxFileSize)
}
