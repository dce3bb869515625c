// Package files reads files and folders: small ones that others wrote (a bounded piece of a plain file, never a device
// or a pipe), and what the caller named (also a pipe). It never waits for ever, and understands nothing of what is in
// them.
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxFileSize is the largest file that is read, in bytes.
const maxFileSize = 4 << 20

// maxEntries is the most that is listed of one folder.
const maxEntries = 1000

// Text is a file's content, its time of change, owner and mode. The error is os.ErrNotExist if there is no file.
type Text struct {
	Content  []byte
	Modified time.Time
	Access
}

// Access is the owner of a file or a folder, and its permission bits.
type Access struct {
	UID, GID uint32
	Mode     fs.FileMode
}

// IsOwnedBy reports whether it belongs to a user or to root.
func (a Access) IsOwnedBy(uid uint32) bool { return a.UID == uid || a.UID == 0 }

// CanOthersWrite reports whether users other than its owner may write it. A group with the owner's own number is the
// owner's alone. That a folder is sticky does not matter: it keeps what is there from others, and lets them add to it.
func (a Access) CanOthersWrite() bool {
	return a.Mode&0o002 != 0 || a.Mode&0o020 != 0 && a.GID != a.UID
}

// ReadFile reads the file at path, through symbolic links.
func ReadFile(path string) (Text, error) { return ReadUpTo(path, maxFileSize) }

// ReadUpTo reads a file that may be larger than Read takes: up to most bytes.
func ReadUpTo(path string, most int64) (Text, error) {
	// A pipe without a writer would stop us.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Text{}, withoutPath(err)
	}
	defer file.Close() //nolint:errcheck // read only

	return readPlain(file, most)
}

// readPlain reads an open file of at most so many bytes, when it is a plain one.
func readPlain(file *os.File, most int64) (Text, error) {
	info, err := file.Stat()
	switch {
	case err != nil:
		return Text{}, withoutPath(err)
	case !info.Mode().IsRegular():
		return Text{}, errors.New("it is " + kindName(info.Mode()) + ", and must be a plain file")
	}

	content, err := io.ReadAll(io.LimitReader(file, most+1))
	switch {
	case err != nil:
		return Text{}, withoutPath(err)
	case int64(len(content)) > most:
		return Text{}, fmt.Errorf("it is larger than %d MiB", most>>20)
	}

	text := Text{Content: content, Modified: info.ModTime(), Access: Access{Mode: info.Mode().Perm()}}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		text.UID, text.GID = st.Uid, st.Gid
	}

	return text, nil
}

// ListNames lists the entries of a folder whose names end in one of the endings, sorted; no endings: all. A folder that
// is not there has none.
func ListNames(folder string, endings ...string) ([]string, error) {
	dir, err := os.Open(folder)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, withoutPath(err)
	}

	defer dir.Close() //nolint:errcheck // read only
	names, err := dir.Readdirnames(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, withoutPath(err)
	}

	names = slices.DeleteFunc(names, func(name string) bool {
		return len(endings) > 0 && !slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(name, e) })
	})

	slices.Sort(names)

	return names, nil
}

// Exists reports whether something of this name is there, whatever it is.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// IsWritable reports whether the caller may write to a file, or connect to a socket.
func IsWritable(path string) bool { return unix.Access(path, unix.W_OK) == nil }

// kindName is what a file is that is no plain one.
func kindName(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// withoutPath is the error without the path, which the caller knows.
func withoutPath(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
