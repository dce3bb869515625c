// Package ledger keeps a file of lines to which processes of one user append, each line by one write. The file stays
// below a size: when it would grow above it, the older half goes. It follows no link, waits for nothing longer than
// Patience, and does not know what the lines mean.
//
//	err := ledger.AppendLine(filepath.Join(folder, "lines"), line, 8<<20)
//	text, err := ledger.ReadText(folder, "lines", uint32(os.Geteuid()), 8<<20)
package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/sys"
)

// LockPatience is how long AppendLine waits while another process halves the file. After that it appends all the same:
// the line may then be lost, but a stopped process stops no other.
const LockPatience = time.Second

// AppendLine adds a line, which has no line break, to the file at path; the file and its folder are made where they are
// missing, for their owner only. Of most bytes the older half goes. After an error the file may have a part of the
// line, which is none of its lines.
func AppendLine(path string, line []byte, most int64) error {
	dir, err := sys.OpenOwnFolder(filepath.Dir(path), 0o700)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}

	defer dir.Close() //nolint:errcheck // nothing is written through it
	err = appendToFile(dir, filepath.Base(path), line, most)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}

	return nil
}

func appendToFile(dir *sys.Dir, name string, line []byte, most int64) error {
	file, err := openLocked(dir, name)
	if err != nil {
		return err
	}

	defer file.Close() //nolint:errcheck // a write that failed has said so
	info, err := file.Stat()
	if err != nil {
		return err
	}

	text := append(bytes.Clone(line), '\n')
	if size := info.Size(); size > 0 {
		last := make([]byte, 1)
		if _, err := file.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			// A killed process, or a full disk, has left a part of a line.
			text = append([]byte{'\n'}, text...)
		}
		if size+int64(len(text)) > most {
			return dropOlderHalf(dir, name, file, text)
		}
	}

	_, err = file.Write(text)

	return err
}

// openLocked opens the file for appending and locks it, so that no other process halves it meanwhile.
func openLocked(dir *sys.Dir, name string) (*os.File, error) {
	for end := time.Now().Add(LockPatience); ; time.Sleep(time.Millisecond) {
		file, err := openOwnFile(dir, name)
		if err != nil {
			return nil, err
		}

		locked := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		var here, there unix.Stat_t
		err = unix.Fstat(int(file.Fd()), &here)
		if err == nil {
			there, err = dir.Lstat(name)
		}

		if late := time.Now().After(end); late || locked == nil && err == nil && here.Ino == there.Ino {
			return file, nil
		}

		// It is locked, or another file has its name by now.
		_ = file.Close()
	}
}

// openOwnFile opens the file, which has to be the caller's, and makes it where it is missing.
func openOwnFile(dir *sys.Dir, name string) (*os.File, error) {
	fd, err := dir.Open(name, unix.O_RDWR|unix.O_APPEND)
	if errors.Is(err, os.ErrNotExist) {
		err = dir.Write(name, nil, 0o600)
		if err == nil || errors.Is(err, os.ErrExist) {
			fd, err = dir.Open(name, unix.O_RDWR|unix.O_APPEND)
		}
	}

	if err != nil {
		return nil, err
	}

	file := os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name)) //nolint:gosec // a descriptor
	if err := checkOwner(fd, uint32(os.Geteuid())); err != nil {     //nolint:gosec // a uid
		_ = file.Close()
		return nil, err
	}

	return file, nil
}

// checkOwner is an error unless the descriptor is that of a regular file of this user.
func checkOwner(fd int, uid uint32) error {
	var st unix.Stat_t
	switch err := unix.Fstat(fd, &st); {
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("it is not a regular file")
	case st.Uid != uid:
		return fmt.Errorf("it belongs to uid %d", st.Uid)
	}
	return nil
}

// dropOlderHalf puts a new file, with the younger half of the lines and text, in the place of the old one.
func dropOlderHalf(dir *sys.Dir, name string, file *os.File, text []byte) error {
	old, err := io.ReadAll(io.NewSectionReader(file, 0, 1<<30))
	if err != nil {
		return err
	}

	old = old[len(old)/2:]
	_, old, _ = bytes.Cut(old, []byte("\n"))

	return dir.Replace(name, append(old, text...), 0o600)
}

// ReadText returns the text of a file in a folder, both of which have to belong to this user, at most most bytes of it.
// Of another user it follows no link. The error is os.ErrNotExist where there is none.
func ReadText(folder, name string, uid uint32, most int64) ([]byte, error) {
	enter := sys.OpenDir
	if uid == uint32(os.Geteuid()) { //nolint:gosec // a uid
		// One's own links may be followed.
		enter = sys.FollowDir
	}

	dir, err := enter(folder)
	if err != nil {
		return nil, err
	}

	defer dir.Close() //nolint:errcheck // read only
	if st, err := dir.Status(); err != nil || st.Uid != uid {
		return nil, fmt.Errorf("cannot read %s: it belongs to uid %d: %w", folder, st.Uid, os.ErrPermission)
	}

	fd, err := dir.Open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}

	file := os.NewFile(uintptr(fd), filepath.Join(folder, name)) //nolint:gosec // a descriptor
	defer file.Close()                                           //nolint:errcheck // read only
	if err := checkOwner(fd, uid); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w: %w", file.Name(), err, os.ErrPermission)
	}

	return io.ReadAll(io.LimitReader(file, most))
}
