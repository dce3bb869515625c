package sys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenFile opens a file to write into, as os.OpenFile does, and follows no link of another user, neither on the way nor
// as the file itself: it would lead to a file of the caller's. With O_NOFOLLOW the file is no link of the caller's
// either. What another user put there, where others may, is written into only if that is the owner of the folder. It
// waits neither for the other end of a pipe nor for a device.
//
// An error that is none of the system's says which link or file it is about.
func OpenFile(path string, flags int, mode uint32) (*os.File, error) {
	file, err := openFile(path, flags, mode)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return file, nil
}

func openFile(path string, flags int, mode uint32) (*os.File, error) {
	w, err := startWalk(path, nil, 0)
	defer w.close()
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(path, "/") {
		return nil, unix.EISDIR
	}

	follow := flags&(unix.O_EXCL|unix.O_NOFOLLOW) == 0
	name, kind, err := w.resolveLeaf(follow)
	if err != nil {
		return nil, err
	}

	flags |= unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	if kind == unix.S_IFLNK && follow {
		// Of /proc: what this process has open already, as /dev/stderr.
		fd, err := unix.Openat(w.at, name, flags&^unix.O_CREAT, 0)
		if err != nil {
			return nil, err
		}
		return newFile(fd, path)
	}

	fd, fresh, err := openLeaf(w.at, name, flags|unix.O_NOFOLLOW, mode)
	if err != nil {
		return nil, err
	}

	if !fresh {
		err = w.checkWritable(fd, name)
		if err == nil && flags&unix.O_TRUNC != 0 {
			err = truncateFile(fd)
		}
	}

	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}

	return newFile(fd, path)
}

// resolveLeaf goes to the folder of the last part of the path, and says what that is: 0 nothing yet, a link only if it
// is one of /proc, or is not to be followed.
func (p *pathWalker) resolveLeaf(follow bool) (name string, kind uint32, err error) {
	for {
		for len(p.rest) > 1 || len(p.rest) == 1 && p.rest[0] == ".." {
			if err := p.walkPart(true); err != nil {
				return "", 0, err
			}
		}

		if len(p.rest) == 0 {
			return ".", unix.S_IFDIR, nil
		}

		name = p.rest[0]
		fd, st, err := openPath(p.at, name, unix.O_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			return name, 0, nil
		}
		if err != nil {
			return "", 0, err
		}

		kind = st.Mode & unix.S_IFMT
		if kind != unix.S_IFLNK || !follow {
			_ = unix.Close(fd)
			return name, kind, nil
		}

		link, err := readTrustedLink(fd, filepath.Join(p.path, name), &st)
		_ = unix.Close(fd)
		if errors.Is(err, errMagic) {
			return name, kind, nil
		}
		if err != nil {
			return "", 0, err
		}

		p.rest = nil
		err = p.followLink(link)
		if err != nil {
			return "", 0, err
		}
	}
}

// openLeaf opens a name in an open folder, and reports whether it has made the file. It empties none: that is for a
// file that was looked at.
func openLeaf(at int, name string, flags int, mode uint32) (fd int, fresh bool, err error) {
	for range 8 {
		// Others may make and remove it meanwhile.
		if flags&unix.O_EXCL == 0 {
			fd, err = unix.Openat(at, name, flags&^(unix.O_CREAT|unix.O_TRUNC), 0)
			if !errors.Is(err, unix.ENOENT) || flags&unix.O_CREAT == 0 {
				return fd, false, err
			}
		}
		fd, err = unix.Openat(at, name, flags|unix.O_EXCL, mode)
		if !errors.Is(err, unix.EEXIST) || flags&unix.O_EXCL != 0 {
			return fd, true, err
		}
	}
	return -1, false, err
}

// checkWritable is an error for what another user may have put into a folder for the caller to write into: the rules of
// fs.protected_regular, fs.protected_fifos and fs.protected_hardlinks, wherever others may write.
func (p *pathWalker) checkWritable(fd int, name string) error {
	var file, dir unix.Stat_t
	path := filepath.Join(p.path, name)
	if err := errors.Join(unix.Fstat(fd, &file), unix.Fstat(p.at, &dir)); err != nil {
		return err
	}

	switch file.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		// Only root can make one.
		return nil
	case unix.S_IFREG, unix.S_IFIFO:
	default:
		return errors.New("it is neither a file nor a pipe")
	}

	if isTrusted(dir.Uid) && !canOthersWrite(p.path, &dir, p.shut.depth > 0) {
		return nil
	}

	// Else a group shares its files.
	chosen := os.Geteuid() == 0 || dir.Mode&unix.S_ISVTX != 0
	switch {
	case chosen && !isTrusted(file.Uid) && file.Uid != dir.Uid:
		return fmt.Errorf("%s belongs to uid %d, who could lay it there; name another file", path, file.Uid)
	case file.Mode&unix.S_IFMT == unix.S_IFREG && file.Nlink > 1:
		return fmt.Errorf("%s has another name (hard link), and others may write in its folder; name another file", path)
	case file.Mode&unix.S_IFMT != unix.S_IFREG || file.Uid != uint32(os.Geteuid()) || keepsLinks(&dir) || linksProtected(): //nolint:gosec // a uid
		return nil
	}

	return fmt.Errorf("%s may have been another name of any file of yours until a moment ago: others may write in its folder, and this machine lets them link your files; name a new file, or sysctl fs.protected_hardlinks=1", path)
}

// keepsLinks reports whether who has laid a link to a file of the caller's in a folder cannot take it away again before
// it is counted: with the sticky bit only the owners of the file and of the folder can.
func keepsLinks(dir *unix.Stat_t) bool { return isTrusted(dir.Uid) && dir.Mode&unix.S_ISVTX != 0 }

// linksProtected reports whether users can link only files of their own, and such that they can write anyway
// (fs.protected_hardlinks in proc_sys_fs(5)). It is a variable for tests.
var linksProtected = func() bool {
	text, err := ReadSome("/proc/sys/fs/protected_hardlinks", 16)
	return err == nil && strings.TrimSpace(string(text)) == "1"
}

// truncateFile cuts a file to nothing; a pipe or a device has nothing to cut.
func truncateFile(fd int) error {
	if err := unix.Ftruncate(fd, 0); !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// newFile is a plain file that blocks as others do, or a pipe or a device that does not.
func newFile(fd int, path string) (*os.File, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		err = unix.SetNonblock(fd, false)
	}

	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}

	return os.NewFile(uintptr(fd), path), nil //nolint:gosec // a descriptor
}

// ResolvePath is where an absolute path leads through links of root's and of the caller's, for what is written there
// later.
func ResolvePath(path string) (string, error) {
	actual, err := resolveExisting(path)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}

	return actual, nil
}

func resolveExisting(path string) (string, error) {
	w, err := startWalk(path, nil, 0)
	defer w.close()
	if err != nil {
		return "", err
	}

	name, kind, err := w.resolveLeaf(true)
	if err != nil {
		return "", err
	}
	if kind == 0 {
		return "", unix.ENOENT
	}

	return filepath.Join(w.path, name), nil
}
