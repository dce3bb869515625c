// Package rewrite gives a file of a user a new text, wholly or not at all, and refuses where anything else about the file
// would change with it.
package rewrite

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Replace writes after in the place of before, by a new file that takes the name of the old one: whoever reads meanwhile
// sees one of the two. Mode, owner and extended attributes (access lists, labels of SELinux) stay. It refuses what is not
// a regular file, has further names (hard links), may not be written by this user, or holds anything but before.
func Replace(path string, before, after []byte) error {
	info, err := os.Lstat(path)
	if err == nil {
		err = replaceable(path, info)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	if err := take(path, info, before, after); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// Replaceable is the error that Replace would begin with, and that of a folder that takes no new file.
func Replaceable(path string) error {
	info, err := os.Lstat(path)
	if err == nil {
		err = replaceable(path, info)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return Free(path)
}

// take puts the new text in the old one's place.
func take(path string, info fs.FileInfo, before, after []byte) error {
	f, named, err := temporary(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // synced before it gets its name
	if err = prepare(path, info, f, after); err == nil {
		err = same(path, info, before)
	}
	if err == nil && !named {
		if err = Tidy(path); err == nil {
			err = name(f, aside(path))
			named = err == nil
		}
	}
	if err == nil {
		if err = os.Rename(aside(path), path); err == nil {
			return nil
		}
	}
	if named {
		_ = os.Remove(aside(path))
	}
	return err
}

func replaceable(path string, info fs.FileInfo) error {
	switch {
	case info.Mode().Type() == fs.ModeSymlink:
		return errors.New("it is a symbolic link: name the file itself")
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case status(info).Nlink > 1:
		return errors.New("it has further names (hard links), which would keep the old text")
	case info.Mode()&0o222 == 0:
		return errors.New("it is read-only")
	}
	return unix.Access(path, unix.W_OK)
}

func status(info fs.FileInfo) *syscall.Stat_t { return info.Sys().(*syscall.Stat_t) }

// prepare fills the new file. The file system has it before it takes the name, so that a crash leaves one of the two.
func prepare(path string, old fs.FileInfo, f *os.File, text []byte) error {
	if _, err := f.Write(text); err != nil {
		return err
	}
	if now, err := f.Stat(); err != nil || status(now).Uid != status(old).Uid || status(now).Gid != status(old).Gid {
		if err := f.Chown(int(status(old).Uid), int(status(old).Gid)); err != nil {
			return fmt.Errorf("it would get another owner: %w", err)
		}
	}
	if err := copyAttributes(path, f); err != nil {
		return err
	}
	if err := unix.Fchmod(int(f.Fd()), status(old).Mode&0o7777); err != nil { // after the owner, whose change takes set-user-ID away
		return err
	}
	return f.Sync()
}

// copyAttributes gives the new file the extended attributes of the old one.
func copyAttributes(from string, to *os.File) error {
	names := make([]byte, 1<<16) // XATTR_LIST_MAX of linux/limits.h
	n, err := unix.Listxattr(from, names)
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("it would lose its extended attributes: %w", err)
	}
	value := make([]byte, 1<<16) // XATTR_SIZE_MAX
	have := make([]byte, 1<<16)
	for _, name := range bytes.Split(bytes.TrimSuffix(names[:n], []byte{0}), []byte{0}) {
		size, err := unix.Getxattr(from, string(name), value)
		if err != nil {
			return fmt.Errorf("it would lose its extended attribute %s: %w", name, err)
		}
		if now, err := unix.Fgetxattr(int(to.Fd()), string(name), have); err == nil && bytes.Equal(have[:now], value[:size]) {
			continue
		}
		if err := unix.Fsetxattr(int(to.Fd()), string(name), value[:size], 0); err != nil {
			return fmt.Errorf("it would lose its extended attribute %s: %w", name, err)
		}
	}
	return nil
}

// same looks once more, just before the name changes hands: somebody may have an editor open.
func same(path string, old fs.FileInfo, before []byte) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	now, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(old, now) || !bytes.Equal(text, before) {
		return errors.New("it was changed meanwhile: look again")
	}
	return nil
}
