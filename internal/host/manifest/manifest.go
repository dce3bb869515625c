// Package manifest keeps the record of the files that gpuard setup wrote: one file, changed under a lock and removed
// with its last entry. It writes none of the files that are recorded.
//
//	m, err := manifest.Open(path, func() { warn("another gpuard setup runs") })
//	err = m.Prepare(files) // makes their folders
//	m.Entries = append(m.Entries, entry)
//	err = m.Close() // saves and unlocks
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

// maxRecordSize is the size of the largest record that is read, in bytes: enough for some ten thousand files.
const maxRecordSize = 4 << 20

// Manifest is the locked record.
type Manifest struct {
	edit.Record

	path string
	// Contains the record, and is locked.
	folder *sys.Dir
	// Content of the file; nil: not known.
	saved []byte
}

// Peek reads the record without locking it. A record that does not exist is empty.
func Peek(path string) (edit.Record, error) {
	r := edit.Record{Schema: schema}
	dir, err := sys.FollowDir(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("cannot read the record of what was set up, %s: %w", path, err)
	}

	defer dir.Close() //nolint:errcheck // read only

	return readRecordIn(dir, path)
}

func readRecordIn(dir *sys.Dir, path string) (edit.Record, error) {
	r := edit.Record{Schema: schema}
	data, err := readRecord(dir, filepath.Base(path))
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

// readRecord returns the content of a record. It must be a regular file of this user or root, and not larger than
// limit.
func readRecord(dir *sys.Dir, name string) ([]byte, error) {
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
	case !info.Mode().IsRegular() || info.Size() > maxRecordSize:
		return nil, errors.New("it is nothing that gpuard wrote; move it away, and delete what was set up by hand")
	}

	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != os.Geteuid() {
		return nil, errors.New("it belongs to another user; move it away, and delete what was set up by hand")
	}

	return io.ReadAll(io.LimitReader(f, maxRecordSize))
}

// Open locks the record, and makes its folder if there is none. Close unlocks it. busy is called if another process
// still holds the lock after a second.
func Open(path string, busy func()) (*Manifest, error) {
	for lost := 0; ; {
		m, err := tryOpen(path, busy)
		if errors.Is(err, os.ErrNotExist) && lost < 100 {
			// Another setup has just removed a folder that this one needs.
			lost++
			continue
		}
		if m != nil || err != nil {
			return m, err
		}
	}
}

// tryOpen returns nil without an error if the folder was removed while it waited for the lock.
func tryOpen(path string, busy func()) (*Manifest, error) {
	dir := filepath.Dir(path)
	made := missingFolders(dir)
	if err := refuseForeignHome(dir); err != nil {
		return nil, err
	}
	if err := createFolders(made); err != nil {
		return nil, fmt.Errorf("cannot keep a record of what is set up: %w", err)
	}

	folder, err := openFolder(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // again
	}
	if err != nil {
		return nil, fmt.Errorf("cannot keep a record of what is set up: %w", err)
	}

	if err := flock(folder.File, busy); err != nil {
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

	m.Record, err = readRecordIn(folder, path)
	if err != nil {
		_ = folder.Close()
		return nil, err
	}

	m.saved, err = json.MarshalIndent(m.Record, "", "  ")
	m.rememberFolders(made)

	return m, err
}

// openFolder opens a folder by a descriptor that can be locked, unlike that of sys.FollowDir.
func openFolder(path string) (*sys.Dir, error) {
	at, err := sys.FollowDir(path)
	if err != nil {
		return nil, err
	}
	defer at.Close() //nolint:errcheck // nothing is written through it

	return at.Dir(".")
}

// createFolders makes folders, the outermost first. Those of root get mode 0755 whatever the umask, so that all users
// can read them.
func createFolders(folders []string) error {
	for _, path := range folders {
		above, err := sys.FollowDir(filepath.Dir(path))
		if err != nil {
			return err
		}

		mkdir := above.Mkdir
		if os.Geteuid() == 0 {
			mkdir = above.MakeFolder
		}

		err = mkdir(filepath.Base(path), 0o755)
		_ = above.Close()
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// refuseForeignHome returns an error if root would make folders in the home of another user, who could not write there
// then.
func refuseForeignHome(dir string) error {
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

// flock locks f, and calls busy if that takes longer than a second.
func flock(f *os.File, busy func()) error {
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

// missingFolders returns the folders of a path that do not exist, the outermost first.
func missingFolders(dir string) (list []string) {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			slices.Reverse(list)
			return list
		}
		list = append(list, dir)
	}
}

func (m *Manifest) rememberFolders(folders []string) {
	for _, f := range folders {
		if !slices.Contains(m.Folders, f) {
			m.Folders = append(m.Folders, f)
		}
	}
}

// PrepareFolders makes the folders for files. Before that it records the missing ones and saves the record.
func (m *Manifest) PrepareFolders(files []string) error {
	var dirs []string
	for _, file := range files {
		dirs = append(dirs, missingFolders(filepath.Dir(file))...)
	}

	m.rememberFolders(dirs)
	if err := m.Save(); err != nil {
		return err
	}
	if err := createFolders(dirs); err != nil {
		return fmt.Errorf("cannot make a folder: %w", err)
	}

	return nil
}

// Save replaces the record in one step.
func (m *Manifest) Save() error {
	data, err := json.MarshalIndent(m.Record, "", "  ")
	if err != nil {
		return err
	}

	name := filepath.Base(m.path)

	// No other process writes it: the folder is locked. A killed process may have left one.
	next := name + ".new"
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
	if os.Geteuid() == 0 && err == nil {
		// All users may read what root set up.
		err = f.Chmod(0o644)
	}

	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = m.folder.Rename(next, name)
	}

	if err != nil {
		_ = m.folder.Remove(next)
		return fmt.Errorf("cannot write the record of what is set up: %w", err)
	}

	m.saved = data

	return nil
}

// Close saves the record and unlocks it. It removes recorded folders that are empty, and a record without entries.
func (m *Manifest) Close() error {
	defer m.folder.Close() //nolint:errcheck // nothing is written through it
	if len(m.Entries) == 0 {
		if err := m.folder.Remove(filepath.Base(m.path)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot remove the record of what was set up: %w", err)
		}

		// Left by a killed process.
		_ = m.folder.Remove(filepath.Base(m.path) + ".new")
		m.removeEmptyFolders()

		// Gpuard's own folder, even if another process made it; it stays if it is not empty.
		_ = rmdir(filepath.Dir(m.path))

		return nil
	}
	m.removeEmptyFolders()

	return m.Save()
}

// TidyRecord removes the files that a killed process left of a record without entries.
func TidyRecord(path string, busy func()) error {
	if _, err := os.Lstat(filepath.Dir(path)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	m, err := Open(path, busy)
	if err != nil {
		return err
	}

	return m.Close()
}

// removeEmptyFolders removes the recorded folders that are empty, the innermost first.
func (m *Manifest) removeEmptyFolders() {
	inward := slices.SortedFunc(slices.Values(m.Folders), func(a, b string) int { return len(b) - len(a) })
	for _, dir := range inward {
		if err := rmdir(dir); err == nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			m.Folders = slices.DeleteFunc(m.Folders, func(f string) bool { return f == dir })
		}
	}
}

// rmdir removes an empty folder.
func rmdir(path string) error {
	above, err := sys.FollowDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer above.Close() //nolint:errcheck // nothing is written through it

	return above.Rmdir(filepath.Base(path))
}
