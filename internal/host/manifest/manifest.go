// Package manifest keeps the record of what gpuard setup wrote: one file, changed under a lock, that goes away with its last
// entry. It writes none of the files that the record is about.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/edit"
)

const schema = "gpuard.record/1"

// limit is the largest record that is read, in bytes: of some ten thousand files.
const limit = 4 << 20

// Manifest is the record, locked.
type Manifest struct {
	edit.Record

	path   string
	folder *os.File // locked; the record lies in it
	saved  []byte   // what the file says; nil: not known
}

// Peek reads the record without locking it; one that is not there is empty.
func Peek(path string) (edit.Record, error) {
	r := edit.Record{Schema: schema}
	data, err := read(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("cannot read the record of what was set up, %s: %w", path, err)
	}
	if err := json.Unmarshal(data, &r); err != nil || r.Schema != schema {
		return r, fmt.Errorf("cannot read the record of what was set up: %s is damaged, or of another version; move it away, and delete what was set up by hand", path)
	}
	return r, nil
}

// read is what a record says: a file of this user's or of root's, of a size that records have.
func read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) // a pipe without a writer would stop us
	if errors.Is(err, unix.ELOOP) {
		return nil, errors.New("it is a symbolic link; put the file itself there")
	}
	var at *os.PathError
	if errors.As(err, &at) {
		return nil, at.Err
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > limit:
		return nil, errors.New("it is nothing that gpuard wrote; move it away, and delete what was set up by hand")
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != os.Geteuid() {
		return nil, errors.New("it belongs to another user; move it away, and delete what was set up by hand")
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// Open locks the record, and makes its folder where there is none. Close ends that. busy is called when somebody else has
// had the lock for a second.
func Open(path string, busy func()) (*Manifest, error) {
	for {
		m, err := try(path, busy)
		if m != nil || err != nil {
			return m, err
		}
	}
}

// try is nil without an error when the folder went away while its lock was waited for.
func try(path string, busy func()) (*Manifest, error) {
	dir := filepath.Dir(path)
	made := missing(dir)
	if err := rootsOwn(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // nothing in it is secret
		return nil, fmt.Errorf("cannot keep a record of what is set up: %w", err)
	}
	folder, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // again
	}
	if err != nil {
		return nil, fmt.Errorf("cannot keep a record of what is set up: %w", err)
	}
	if err := locked(folder, busy); err != nil {
		_ = folder.Close()
		return nil, fmt.Errorf("cannot lock the record of what is set up in %s: %w", dir, err)
	}
	mine, err := folder.Stat()
	now, lost := os.Stat(dir)
	if err != nil {
		_ = folder.Close()
		return nil, fmt.Errorf("cannot read the record of what is set up: %w", err)
	}
	if lost != nil || !os.SameFile(mine, now) {
		_ = folder.Close()
		return nil, nil //nolint:nilnil,nilerr // again
	}
	m := &Manifest{path: path, folder: folder}
	if owner := mine.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		_ = folder.Close()
		return nil, fmt.Errorf("cannot keep a record of what is set up: %s belongs to another user; ask root to remove it (sudo rm -r %[1]s), or set XDG_STATE_HOME to a folder of your own", dir)
	}
	if m.Record, err = Peek(path); err != nil {
		_ = folder.Close()
		return nil, err
	}
	m.saved, err = json.MarshalIndent(m.Record, "", "  ")
	m.remember(made)
	return m, err
}

// rootsOwn is an error where root would make folders in the home of somebody, who could not write there from then on.
func rootsOwn(dir string) error {
	for ; os.Geteuid() == 0; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if errors.Is(err, os.ErrNotExist) && dir != filepath.Dir(dir) {
			continue
		}
		if err == nil && info.Sys().(*syscall.Stat_t).Uid != 0 {
			return fmt.Errorf("cannot keep a record of what is set up: %s belongs to another user; call this as that user, or with your own HOME", dir)
		}
		break
	}
	return nil
}

func locked(f *os.File, busy func()) error {
	done := make(chan error, 1)
	go func() {
		for {
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
				done <- err
				return
			}
		}
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Second):
		busy()
		return <-done
	}
}

// missing are the folders of a path that are not there, the outermost first.
func missing(dir string) (list []string) {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			slices.Reverse(list)
			return list
		}
		list = append(list, dir)
	}
}

func (m *Manifest) remember(folders []string) {
	for _, f := range folders {
		if !slices.Contains(m.Folders, f) {
			m.Folders = append(m.Folders, f)
		}
	}
}

// Prepare makes the folders for files, after it has remembered which of them were not there, and saves the record.
func (m *Manifest) Prepare(files []string) error {
	var dirs []string
	for _, file := range files {
		dirs = append(dirs, missing(filepath.Dir(file))...)
	}
	m.remember(dirs)
	if err := m.Save(); err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // as everybody makes them
			return fmt.Errorf("cannot make a folder: %w", err)
		}
		if os.Geteuid() == 0 { // for everybody, whatever root's umask
			if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // as everybody makes them
				return fmt.Errorf("cannot make a folder: %w", err)
			}
		}
	}
	return nil
}

// Save writes the record, wholly or not at all.
func (m *Manifest) Save() error {
	data, err := json.MarshalIndent(m.Record, "", "  ")
	if err != nil {
		return err
	}
	next := m.path + ".new" // nobody else writes it: the folder is locked. What lies there is of somebody who was killed
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot write the record of what is set up: %w", err)
	}
	if bytes.Equal(data, m.saved) {
		return nil
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("cannot write the record of what is set up: %w", err)
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(next, m.path)
	}
	if err != nil {
		_ = os.Remove(next)
		return fmt.Errorf("cannot write the record of what is set up: %w", err)
	}
	m.saved = data
	return nil
}

// Close saves the record and unlocks it. Folders that were made and are empty go; so does a record without an entry.
func (m *Manifest) Close() error {
	defer m.folder.Close() //nolint:errcheck // nothing is written through it
	if len(m.Entries) == 0 {
		if err := os.Remove(m.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot remove the record of what was set up: %w", err)
		}
		_ = os.Remove(m.path + ".new") // of somebody who was killed
		m.empty()
		_ = unix.Rmdir(filepath.Dir(m.path)) // it has gpuard's name, so it goes whoever made it, when nothing else is in it
		return nil
	}
	m.empty()
	return m.Save()
}

// Tidy removes what somebody left who was killed, of a record without entries.
func Tidy(path string, busy func()) error {
	if _, err := os.Lstat(filepath.Dir(path)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	m, err := Open(path, busy)
	if err != nil {
		return err
	}
	return m.Close()
}

// empty removes folders that were made and that nobody uses, the innermost first.
func (m *Manifest) empty() {
	inward := slices.SortedFunc(slices.Values(m.Folders), func(a, b string) int { return len(b) - len(a) })
	for _, dir := range inward {
		if err := unix.Rmdir(dir); err == nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			m.Folders = slices.DeleteFunc(m.Folders, func(f string) bool { return f == dir })
		}
	}
}
