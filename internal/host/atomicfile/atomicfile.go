// Package atomicfile gives a file of a user a new text, wholly or not at all, and refuses where anything else about the
// file would change with it.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ReplaceText writes after instead of before, into a new file that takes the name of the old one, so that a reader sees
// one of the two. Mode, owner and extended attributes (access lists, labels of SELinux) stay. It refuses a file that is
// not regular, has more names (hard links), may not be written by this user, or has a text other than before.
func ReplaceText(path string, before, after []byte) error {
	p, old, err := openReplaceable(path)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}

	defer p.close()
	err = replaceOld(p, old, before, after)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}

	return nil
}

// CheckReplaceable is the error that ReplaceText would begin with, and that of a folder that takes no new file.
func CheckReplaceable(path string) error {
	p, _, err := openReplaceable(path)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}

	p.close()

	return CheckWritable(path)
}

// openReplaceable opens the folder of a file, and returns the data of that file, which can be replaced.
func openReplaceable(path string) (p *folderEntry, old unix.Stat_t, err error) {
	p, err = openFolderOf(path)
	if err != nil {
		return nil, old, err
	}

	old, err = p.checkReplaceable()
	if err != nil {
		p.close()
		return nil, old, err
	}

	return p, old, nil
}

// replaceOld puts the new text in the old one's place. After an error it removes the name of the new file.
func replaceOld(p *folderEntry, old unix.Stat_t, before, after []byte) (err error) {
	f, named, err := p.createTemporary()
	if err != nil {
		return err
	}

	defer f.Close() //nolint:errcheck // synced before it gets its name
	defer func() {
		if err != nil && named {
			_ = p.dir.Remove(p.temporaryName())
		}
	}()

	err = p.fillNewFile(old, f, after)
	if err != nil {
		return err
	}

	err = p.checkUnchanged(old, before)
	if err != nil {
		return err
	}

	if !named {
		err = p.removeTemporary()
		if err != nil {
			return err
		}

		err = p.dir.LinkFile(f, p.temporaryName())
		if err != nil {
			return err
		}

		named = true
	}

	return p.dir.Rename(p.temporaryName(), p.name)
}

// fillNewFile fills the new file. The file system has it before it takes the name, so that a crash leaves one of the
// two.
func (p *folderEntry) fillNewFile(old unix.Stat_t, f *os.File, text []byte) error {
	if _, err := f.Write(text); err != nil {
		return err
	}

	var now unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &now); err != nil || now.Uid != old.Uid || now.Gid != old.Gid {
		if err := f.Chown(int(old.Uid), int(old.Gid)); err != nil {
			return fmt.Errorf("it would get another owner: %w", err)
		}
	}

	from, err := p.openChecked(old)
	if err != nil {
		return err
	}

	defer from.Close() //nolint:errcheck // read only
	if err := copyAttributes(from, f); err != nil {
		return err
	}
	if err := unix.Fchmod(int(f.Fd()), old.Mode&0o7777); err != nil {
		// After chown, which clears set-user-ID.
		return err
	}

	return f.Sync()
}

// copyAttributes gives the new file the extended attributes of the old one.
func copyAttributes(from, to *os.File) error {
	// XATTR_LIST_MAX of linux/limits.h.
	names := make([]byte, 1<<16)
	n, err := unix.Flistxattr(int(from.Fd()), names)
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("it would lose its extended attributes: %w", err)
	}

	// XATTR_SIZE_MAX.
	value := make([]byte, 1<<16)
	have := make([]byte, 1<<16)
	for _, name := range bytes.Split(bytes.TrimSuffix(names[:n], []byte{0}), []byte{0}) {
		size, err := unix.Fgetxattr(int(from.Fd()), string(name), value)
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
