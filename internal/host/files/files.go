// Package files reads small files and folders that others wrote: a bounded piece of a plain file, never a device, a pipe that
// nobody writes to, or a file without an end. It understands nothing of what is in them.
package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// limit is the largest file that is read, in bytes.
const limit = 4 << 20

// entries is the most that is listed of one folder.
const entries = 1000

// Text is a file's content, when it was last changed, whose it is and who may write it. The error is os.ErrNotExist when there
// is none.
type Text struct {
	Content  []byte
	Modified time.Time
	UID, GID uint32
	Mode     os.FileMode // its permission bits
}

// Read reads the file behind path, through symbolic links.
func Read(path string) (Text, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer would stop us
	if err != nil {
		return Text{}, bare(err)
	}
	defer file.Close() //nolint:errcheck // read only
	info, err := file.Stat()
	switch {
	case err != nil:
		return Text{}, bare(err)
	case !info.Mode().IsRegular():
		return Text{}, errors.New("it is not a plain file")
	}
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return Text{}, bare(err)
	case len(content) > limit:
		return Text{}, fmt.Errorf("it is larger than %d MiB", limit>>20)
	}
	text := Text{Content: content, Modified: info.ModTime(), Mode: info.Mode().Perm()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		text.UID, text.GID = st.Uid, st.Gid
	}
	return text, nil
}

// Names lists the entries of a folder whose names end in one of the endings, sorted; no endings: all. A folder that is not
// there has none.
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

// bare leaves the path out, which whoever asks knows.
func bare(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
