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
	"gpuard/internal/host/sys"
)

const schema = "gpuard.record/1"

// limit is the largest record that is read, in bytes: of some ten thousand files.
const limit = 4 << 20

// Manifest is the record, locked.
type Manifest struct {
	edit.Record

	path   string
	folder *sys.Dir // locked; the record lies in it
	saved  []byte   // what the file says; nil: not known
}

// Peek reads the record without locking it; one that is not there is empty.
func Peek(path string) (edit.Record, error) {
	r := edit.Record{Schema: schema}
	dir, err := sys.Enter(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("cannot read the record of what was set up, %s: %w", path, err)
	}
	defer dir.Close() //nolint:errcheck // read only
	return peek(dir, path)
}

func peek(dir *sys.Dir, path string) (edit.Record, error) {
	r := edit.Record{Schema: schema}
	data, err := read(dir, filepath.Base(path))
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
func read(dir *sys.Dir, name string) ([]byte, error) {
	fd, err := dir.Open(name, unix.O_RDONLY)
	if errors.Is(err, unix.ELOOP) {
		return nil, errors.New("it is a symbolic link; put the file itself there")
	}
	var at *os.PathError
	if errors.As(err, &at) {
		return nil, at.Err
	}
	f := os.NewFile(uintptr(fd), name) //nolint:gosec // a descriptor
	defer f.Close()                    //nolint:errcheck // read only
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
	if err := create(made); err != nil {
		return nil, fmt.Errorf("cannot keep a record of what is set up: %w", err)
	}
	folder, err := enter(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // again
	}
	if err != nil {
		return nil, fmt.Errorf("cannot keep a record of what is set up: %w", err)
	}
	if err := locked(folder.File, busy); err != nil {
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
	if m.Record, err = peek(folder, path); err != nil {
		_ = folder.Close()
		return nil, err
	}
	m.saved, err = json.MarshalIndent(m.Record, "", "  ")
	m.remember(made)
	return m, err
}

// enter opens a folder so that it can be locked.
func enter(path string) (*sys.Dir, error) {
	at, err := sys.Enter(path)
	if err != nil {
		return nil, err
	}
	defer at.Close() //nolint:errcheck // nothing is written through it
	return at.Dir(".")
}

// create makes folders, the outermost first, as everybody makes them; those of root are for everybody, whatever root's umask.
func create(folders []string) error {
	for _, path := range folders {
		above, err := sys.Enter(filepath.Dir(path))
		if err != nil {
			return err
		}
		mkdir := above.Mkdir
		if os.Geteuid() == 0 {
			mkdir = above.Make
		}
		err = mkdir(filepath.Base(path), 0o755)
		_ = above.Close()
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
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
	if err := create(dirs); err != nil {
		return fmt.Errorf("cannot make a folder: %w", err)
	}
	return nil
}

// Save writes the record, wholly or not at all.
func (m *Manifest) Save() error {
	data, err := json.MarshalIndent(m.Record, "", "  ")
	if err != nil {
		return err
	}
	name := filepath.Base(m.path)
	next := name + ".new" // nobody else writes it: the folder is locked. A killed process may have left one
	err = m.folder.Remove(next)
	if errors.Is(err, unix.EISDIR) {
		err = m.folder.Rmdir(next)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot write the record of what is set up: %w", err)
	}
	if bytes.Equal(data, m.saved) {
		return nil
	}
	f, err := m.folder.Create(next)
	if err != nil {
		return fmt.Errorf("cannot write the record of what is set up: %w", err)
	}
	_, err = f.Write(append(data, '\n'))
	if os.Geteuid() == 0 && err == nil { // everybody may see what root set up
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = m.folder.Rename(next, name)
	}
	if err != nil {
		_ = m.folder.Remove(next)
		return fmt.Errorf("cannot write the record of what is set up: %w", err)
	}
	m.saved = data
	return nil
}

// Close saves the record and unlocks it. Folders that were made and are empty go; so does a record without an entry.
func (m *Manifest) Close() error {
	defer m.folder.Close() //nolint:errcheck // nothing is written through it
	if len(m.Entries) == 0 {
		if err := m.folder.Remove(filepath.Base(m.path)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot remove the record of what was set up: %w", err)
		}
		_ = m.folder.Remove(filepath.Base(m.path) + ".new") // of a process that was killed
		m.empty()
		_ = rmdir(filepath.Dir(m.path)) // it has gpuard's name, so it goes whoever made it, when nothing else is in it
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
		if err := rmdir(dir); err == nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			m.Folders = slices.DeleteFunc(m.Folders, func(f string) bool { return f == dir })
		}
	}
}

// rmdir removes an empty folder.
func rmdir(path string) error {
	above, err := sys.Enter(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer above.Close() //nolint:errcheck // nothing is written through it
	return above.Rmdir(filepath.Base(path))
}
