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

// limit is the largest file that is read, in bytes.
const limit = 4 << 20

// entries is the most that is listed of one folder.
const entries = 1000

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

// OwnedBy reports whether it belongs to a user or to root.
func (a Access) OwnedBy(uid uint32) bool { return a.UID == uid || a.UID == 0 }

// OthersWrite reports whether users other than its owner may write it. A group with the owner's own number is the
// owner's alone. That a folder is sticky does not matter: it keeps what is there from others, and lets them add to it.
func (a Access) OthersWrite() bool { return a.Mode&0o002 != 0 || a.Mode&0o020 != 0 && a.GID != a.UID }

// Read reads the file at path, through symbolic links.
func Read(path string) (Text, error) { return ReadUpTo(path, limit) }

// ReadUpTo reads a file that may be larger than Read takes: up to most bytes.
func ReadUpTo(path string, most int64) (Text, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer would stop us
	if err != nil {
		return Text{}, bare(err)
	}
	defer file.Close() //nolint:errcheck // read only
	return content(file, most)
}

// content reads an open file of at most so many bytes, when it is a plain one.
func content(file *os.File, most int64) (Text, error) {
	info, err := file.Stat()
	switch {
	case err != nil:
		return Text{}, bare(err)
	case !info.Mode().IsRegular():
		return Text{}, errors.New("it is " + kind(info.Mode()) + ", and must be a plain file")
	}
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	switch {
	case err != nil:
		return Text{}, bare(err)
	case int64(len(content)) > most:
		return Text{}, fmt.Errorf("it is larger than %d MiB", most>>20)
	}
	text := Text{Content: content, Modified: info.ModTime(), Access: Access{Mode: info.Mode().Perm()}}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		text.UID, text.GID = st.Uid, st.Gid
	}
	return text, nil
}

// Names lists the entries of a folder whose names end in one of the endings, sorted; no endings: all. A folder that is
// not there has none.
func Names(folder string, endings ...string) ([]string, error) {
	dir, err := os.Open(folder)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, bare(err)
	}
	defer dir.Close() //nolint:errcheck // read only
	names, err := dir.Readdirnames(entries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, bare(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return len(endings) > 0 && !slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(name, e) })
	})
	slices.Sort(names)
	return names, nil
}

// Is reports whether something of this name is there, whatever it is.
func Is(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Writable reports whether the caller may write to a file, or connect to a socket.
func Writable(path string) bool { return unix.Access(path, unix.W_OK) == nil }

// kind is what a file is that is no plain one.
func kind(mode fs.FileMode) string {
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

// bare is the error without the path, which the caller knows.
func bare(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
