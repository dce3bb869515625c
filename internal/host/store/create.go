package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Create makes the folder at path unless somebody else just did: built aside, modes set by fchmod because
// a umask would leave a lock that others cannot open, then moved into place in one step.
// Only the last part of path may be missing; a vacant folder of the caller's own is taken over.
func Create(path string) error {
	aside := filepath.Join(filepath.Dir(path), asidePrefix+randomHex(6))
	if err := unix.Mkdir(aside, 0o700); err != nil {
		return fmt.Errorf("cannot create the state folder %s: %w", path, err)
	}
	defer os.RemoveAll(aside) //nolint:errcheck // gone after a successful rename; otherwise nothing more can be done
	if err := fill(aside); err != nil {
		return fmt.Errorf("cannot create the state folder %s: %w", path, err)
	}
	err := unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = unix.Rename(aside, path) // a file system without the flag; a folder replaces nothing but an empty folder
	}
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) {
		err = takeOver(aside, path)
	}
	if err != nil {
		return fmt.Errorf("cannot create the state folder %s: %w", path, err)
	}
	return nil
}

// takeOver replaces an empty folder of our own; anything else that stands there is left to Open to judge.
func takeOver(aside, path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
		return nil //nolint:nilerr // gone again, or not ours: Open says what it is
	}
	err := unix.Rename(aside, path) // the kernel replaces a folder only while it is empty
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		if Vacant(path) {
			return moveIn(aside, path)
		}
		return nil
	}
	return err
}

// asidePrefix begins the name of a folder that is being built.
const asidePrefix = ".gpuard."

// Part is a folder or a file that a new state folder has.
type Part struct {
	Name    string // "" is the state folder itself
	Mode    uint32 // all twelve bits
	Folder  bool
	Content string
}

// Parts lists what Create makes, for those who have another program make the same. It is in the order in which the parts are
// moved in: without its format a folder counts as unfinished.
func Parts() []Part {
	return []Part{
		{Mode: 0o1777, Folder: true},
		{Name: "leases", Mode: 0o1777, Folder: true},
		{Name: "tickets", Mode: 0o1777, Folder: true},
		{Name: "lock", Mode: 0o666},
		{Name: "format", Mode: 0o644, Content: strconv.Itoa(Format) + "\n"},
	}
}

// inside are the names of the parts of a state folder.
func inside() (names []string) {
	for _, p := range Parts()[1:] {
		names = append(names, p.Name)
	}
	return names
}

// Vacant reports whether the folder has no format yet and holds nothing that is not ours: it is empty, or the state of
// invented machines ("machines") or a project's ("projects-UID") came first, perhaps beside what a Create that was interrupted has moved in.
func Vacant(path string) bool {
	entries, err := os.ReadDir(path)
	if err != nil {
		return false
	}
	invented := false
	for _, e := range entries {
		switch name := e.Name(); {
		case (name == "machines" || strings.HasPrefix(name, "projects-")) && e.IsDir():
			invented = true
		case name == "format" || !slices.Contains(inside(), name) && !strings.HasPrefix(name, asidePrefix):
			return false
		}
	}
	return invented || len(entries) == 0
}

// moveIn puts the parts beside what the caller's own folder has already. Another process of the same user may do the same
// at the same time: each part is moved once, whoever's it is.
func moveIn(aside, path string) error {
	if err := unix.Chmod(path, 0o1777); err != nil {
		return err
	}
	for _, name := range inside() {
		err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(aside, name), unix.AT_FDCWD, filepath.Join(path, name), unix.RENAME_NOREPLACE)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return nil
}

func fill(dir string) error {
	parts := Parts()
	for _, p := range parts[1:] {
		at := filepath.Join(dir, p.Name)
		if !p.Folder {
			if err := writeNew(at, []byte(p.Content), os.FileMode(p.Mode)); err != nil {
				return err
			}
			continue
		}
		if err := unix.Mkdir(at, 0o700); err != nil {
			return err
		}
		if err := unix.Chmod(at, p.Mode); err != nil {
			return err
		}
	}
	return unix.Chmod(dir, parts[0].Mode)
}

// writeNew creates a file that must not exist, readable by nobody else until it is complete.
func writeNew(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(path)
	}
	return err
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails since Go 1.24
	return hex.EncodeToString(b)
}
