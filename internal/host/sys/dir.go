// Package sys is what several host packages need from the kernel: folders by descriptor, processes by pidfd, and
// changes of files by inotify. In folders that may belong to another user it follows no link, so that nothing can be
// exchanged between a check and the act that relies on it. It decides nothing.
package sys

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is an open folder. What happens to its path afterwards does not matter to its methods: they work in that very
// folder, and a name that they take is a single name in it.
type Dir struct{ *os.File }

// OpenAt opens a path below the folder dirFD, of which no part may be a link or a place where something is mounted. It
// does not wait for the other end of a FIFO. A path with ".." is refused as one that leads out (EXDEV).
func OpenAt(dirFD int, path string, flags int) (int, error) {
	flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC
	if flags&(unix.O_PATH|unix.O_DIRECTORY) == 0 {
		// The runtime would ask its poller for a folder that does not block.
		flags |= unix.O_NONBLOCK
	}

	if goesUp(path) {
		return -1, unix.EXDEV
	}

	fd, err := unix.Openat2(dirFD, path, &unix.OpenHow{ //nolint:gosec // flags are positive
		Flags: uint64(flags), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})

	if !isUnsupported(err) {
		return fd, err
	}

	return openAtParts(dirFD, path, flags)
}

// goesUp reports whether a part of the path is "..". The kernel is not asked about such a path: while anything is
// renamed or mounted on the machine it cannot tell where that leads (openat2(2), EAGAIN).
func goesUp(path string) bool {
	return strings.Contains(path, "..") && slices.Contains(strings.Split(path, "/"), "..")
}

// openAtParts is OpenAt without openat2. It goes into what is mounted there.
func openAtParts(dirFD int, path string, flags int) (int, error) {
	parts := strings.Split(path, "/")
	if goesUp(path) || slices.Contains(parts, "") {
		// As openat2(2) says it.
		return -1, unix.EXDEV
	}

	for i, part := range parts[:len(parts)-1] {
		next, err := unix.Openat(dirFD, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if i > 0 {
			_ = unix.Close(dirFD)
		}
		if err != nil {
			return -1, err
		}
		dirFD = next
	}

	fd, err := unix.Openat(dirFD, parts[len(parts)-1], flags, 0)
	if len(parts) > 1 {
		_ = unix.Close(dirFD)
	}

	return fd, err
}

// isUnsupported reports that there is no openat2: before Linux 5.6, or under a seccomp filter of that time.
func isUnsupported(err error) bool { return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) }

// withFD calls f with the folder's descriptor, which stays open meanwhile.
func (d *Dir) withFD(op, name string, f func(fd int) error) error {
	err := error(unix.EINVAL)
	if name != "" && name != ".." && !strings.Contains(name, "/") {
		raw, rerr := d.SyscallConn()
		if rerr != nil {
			return rerr
		}
		if cerr := raw.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
			err = cerr
		}
	}
	if err != nil {
		return &os.PathError{Op: op, Path: filepath.Join(d.Name(), name), Err: err}
	}

	return nil
}

// Dir opens the folder at a path below d.
func (d *Dir) Dir(path string) (*Dir, error) {
	fd, err := d.Open(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &Dir{os.NewFile(uintptr(fd), filepath.Join(d.Name(), path))}, nil //nolint:gosec // a descriptor
}

// Open opens a path below d, which is checked as OpenAt does.
func (d *Dir) Open(path string, flags int) (fd int, err error) {
	err = d.withFD("open", ".", func(at int) (err error) {
		fd, err = OpenAt(at, path, flags)
		return err
	})
	if failed := (*os.PathError)(nil); errors.As(err, &failed) {
		failed.Path = filepath.Join(d.Name(), path)
		return -1, failed
	}
	return fd, err
}

// Status is fstat(2) of the folder.
func (d *Dir) Status() (st unix.Stat_t, err error) {
	err = d.withFD("stat", ".", func(fd int) error { return unix.Fstat(fd, &st) })
	return st, err
}

// CheckWritable is why the caller can make nothing in the folder; nil where that is allowed.
func (d *Dir) CheckWritable() error {
	return d.withFD("access", ".", func(fd int) error { return unix.Faccessat(fd, ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS) })
}

// Symlink makes a symbolic link in the folder.
func (d *Dir) Symlink(to, name string) error {
	return d.withFD("symlink", name, func(fd int) error { return unix.Symlinkat(to, fd, name) })
}

// Lstat is lstat(2) of a name in the folder.
func (d *Dir) Lstat(name string) (st unix.Stat_t, err error) {
	err = d.withFD("lstat", name, func(fd int) error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

// Create makes a file that must not exist, for its owner only, and opens it for reading and writing.
func (d *Dir) Create(name string) (file *os.File, err error) {
	err = d.withFD("create", name, func(at int) error {
		fd, err := unix.Openat(at, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		file = os.NewFile(uintptr(fd), filepath.Join(d.Name(), name)) //nolint:gosec // a descriptor

		return err
	})
	return file, err
}

// Write makes a file that must not exist. Other users cannot read it before it is complete.
func (d *Dir) Write(name string, data []byte, mode uint32) error {
	file, err := d.Create(name)
	if err != nil {
		return err
	}

	err = cmp.Or(fillFile(file, data, mode), file.Close())
	if err != nil {
		_ = d.Remove(name)
	}

	return err
}

func fillFile(file *os.File, data []byte, mode uint32) error {
	_, err := file.Write(data)
	if err != nil {
		return err
	}

	err = unix.Fchmod(int(file.Fd()), mode)
	if err != nil {
		return &os.PathError{Op: "chmod", Path: file.Name(), Err: err}
	}

	return nil
}

// Replace writes a file anew in one step.
func (d *Dir) Replace(name string, data []byte, mode uint32) error {
	fresh := NewPrefix + rand.Text()
	err := d.Write(fresh, data, mode)
	if err != nil {
		return err
	}

	err = d.Rename(fresh, name)
	if err != nil {
		_ = d.Remove(fresh)
	}

	return err
}

// NewPrefix begins the name of a file that Replace has not finished.
const NewPrefix = ".new-"

// CreateTemp makes a file in the folder that has no name and ends with this process, for reading and writing by its
// owner only.
func (d *Dir) CreateTemp() (file *os.File, err error) {
	err = d.withFD("create", ".", func(at int) error {
		fd, err := unix.Openat(at, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		file = os.NewFile(uintptr(fd), filepath.Join(d.Name(), "(without a name)")) //nolint:gosec // a descriptor

		return err
	})
	return file, err
}

// LinkFile gives an open file a name in the folder, which must be free.
func (d *Dir) LinkFile(file *os.File, as string) error {
	return d.withFD("link", as, func(fd int) error {
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", file.Fd()), fd, as, unix.AT_SYMLINK_FOLLOW)
	})
}

// SetMode gives the folder exactly this mode, whatever the umask: all twelve bits count.
func (d *Dir) SetMode(mode uint32) error {
	return d.withFD("chmod", ".", func(fd int) error { return unix.Fchmod(fd, mode) })
}

// Mkdir makes a folder in d. Its mode is as the umask leaves it.
func (d *Dir) Mkdir(name string, mode uint32) error {
	return d.withFD("mkdir", name, func(fd int) error { return unix.Mkdirat(fd, name, mode) })
}

// Mkfifo makes a FIFO for its owner only.
func (d *Dir) Mkfifo(name string) error {
	return d.withFD("mkfifo", name, func(fd int) error { return unix.Mkfifoat(fd, name, 0o600) })
}

// Rename gives what has a name in d another name in it, in place of what has that one.
func (d *Dir) Rename(name, as string) error {
	return d.withFD("rename", name, func(fd int) error { return unix.Renameat(fd, name, fd, as) })
}

// Move moves a name into another folder, or gives it another name, where that is free: else the error is os.ErrExist.
// On a file system that cannot tell, what is in the way must not be an empty folder.
func (d *Dir) Move(name string, to *Dir, as string) error {
	return d.withFD("rename", name, func(fd int) error {
		at := int(to.Fd())
		err := unix.Renameat2(fd, name, at, as, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
			err = unix.Renameat(fd, name, at, as)
		}

		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) {
			err = unix.EEXIST
		}

		return err
	})
}

// Remove removes a name that is no folder.
func (d *Dir) Remove(name string) error {
	return d.withFD("unlink", name, func(fd int) error { return unix.Unlinkat(fd, name, 0) })
}

// Rmdir removes an empty folder.
func (d *Dir) Rmdir(name string) error {
	return d.withFD("rmdir", name, func(fd int) error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) })
}

// Touch sets the times of a name in the folder to now; "." is the folder itself.
func (d *Dir) Touch(name string) error {
	// Unlike a given time, all users who may write the file may set it.
	now := unix.Timespec{Nsec: unix.UTIME_NOW}
	return d.withFD("touch", name, func(fd int) error {
		return unix.UtimesNanoAt(fd, name, []unix.Timespec{now, now}, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// ForeignError says that something else than a folder of the caller's has its name.
type ForeignError struct {
	Path string
	UID  uint32 // its owner
}

func (f *ForeignError) Error() string { return fmt.Sprintf("%s belongs to uid %d", f.Path, f.UID) }

// Own opens the caller's own folder of that name in d, which it makes where it is missing, and gives it exactly this
// mode. Where something else has the name the error is a *ForeignError.
func (d *Dir) Own(name string, mode uint32) (*Dir, error) {
	own, err := d.Dir(name)
	if errors.Is(err, unix.ENOENT) {
		if err := d.Mkdir(name, mode); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
		own, err = d.Dir(name)
	}

	if errors.Is(err, unix.EACCES) {
		own, err = d.openUnreadable(name, mode)
	}

	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		if st, lerr := d.Lstat(name); lerr == nil {
			err = &ForeignError{filepath.Join(d.Name(), name), st.Uid}
		}
	}

	if err != nil {
		return nil, err
	}

	st, err := own.Status()
	if err == nil && st.Uid != uint32(os.Geteuid()) {
		err = &ForeignError{own.Name(), st.Uid}
	}

	// Also that of an older folder: a mkdir under a narrow umask that was killed before this left it unreadable for
	// others.
	if err == nil && st.Mode&0o7777 != mode {
		err = own.SetMode(mode)
	}

	if err != nil {
		_ = own.Close()
		return nil, err
	}

	return own, nil
}

// openUnreadable opens a folder of the caller's that a umask made unreadable even for its owner. A descriptor that does
// not read is no good for fchmod(2), so this goes by its name below /proc, which means the folder that was checked.
func (d *Dir) openUnreadable(name string, mode uint32) (*Dir, error) {
	fd, err := d.Open(name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}

	at := &Dir{os.NewFile(uintptr(fd), filepath.Join(d.Name(), name))} //nolint:gosec // a descriptor
	defer at.Close()                                                   //nolint:errcheck // nothing was written
	st, err := at.Status()
	switch {
	case err != nil:
		return nil, err
	case st.Uid != uint32(os.Geteuid()):
		return nil, &ForeignError{at.Name(), st.Uid}
	}

	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode); err != nil {
		return nil, &os.PathError{Op: "chmod", Path: at.Name(), Err: err}
	}

	return at.Dir(".")
}
