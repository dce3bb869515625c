package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/sys"
)

// CreateFolder makes the state folder at path, or leaves to Open what another process made there first. It builds the
// folder under a temporary name, with modes that the umask does not narrow (other users could not open the lock), and
// moves it into place in one step. Only the last part of path may be missing. A vacant folder of the caller is taken
// over (see Vacant).
func CreateFolder(path string) error {
	if err := buildFolder(path); err != nil {
		return fmt.Errorf("cannot create the state folder %s: %w", path, err)
	}
	return nil
}

func buildFolder(path string) error {
	parent, err := sys.FollowDir(filepath.Dir(path))
	if err != nil {
		return err
	}

	defer parent.Close() //nolint:errcheck // nothing is written through it
	aside, err := parent.MakeAside()
	if err != nil {
		return err
	}

	defer discardParts(aside)
	if err := fillFolder(aside.Dir); err != nil {
		return err
	}

	err = aside.Place(filepath.Base(path))
	if errors.Is(err, os.ErrExist) {
		err = takeOverFolder(aside, parent, filepath.Base(path))
	}

	return err
}

// discardParts removes the parts that were not moved into place.
func discardParts(aside *sys.StagedFolder) {
	for _, p := range FolderParts()[1:] {
		switch {
		case aside.Placed:
		case p.Folder:
			_ = aside.Rmdir(p.Name)
		default:
			_ = aside.Remove(p.Name)
		}
	}
	aside.Discard()
}

// takeOverFolder replaces an empty folder of the caller, or completes a vacant one. Open judges anything else at that
// path.
func takeOverFolder(aside *sys.StagedFolder, parent *sys.Dir, name string) error {
	dir, err := parent.Dir(name)
	if err != nil {
		return nil //nolint:nilerr // gone again, or not a folder: Open reports it
	}

	defer dir.Close() //nolint:errcheck // nothing is written through it
	if st, err := dir.Status(); err != nil || int(st.Uid) != os.Geteuid() {
		return nil //nolint:nilerr // another user's: Open reports it
	}

	// The kernel replaces a folder only while it is empty.
	err = aside.Replace(name)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		if isVacantDir(dir) {
			return moveParts(aside.Dir, dir)
		}
		return nil
	}

	return err
}

// FolderPart is a folder or a file of a new state folder.
type FolderPart struct {
	// "" is the state folder itself.
	Name    string
	Mode    uint32 // all twelve bits
	Folder  bool
	Content string
}

// FolderParts lists what Create makes, for callers that have another program (systemd-tmpfiles) make the same. The
// parts are moved into place in this order; a folder without the last one, its format, counts as unfinished.
func FolderParts() []FolderPart {
	return []FolderPart{
		{Mode: 0o1777, Folder: true},
		{Name: "leases", Mode: 0o1777, Folder: true},
		{Name: "tickets", Mode: 0o1777, Folder: true},
		{Name: "lock", Mode: 0o666},
		{Name: "format", Mode: 0o644, Content: strconv.Itoa(Format) + "\n"},
	}
}

// partNames returns the names of the parts in a state folder.
func partNames() (names []string) {
	for _, p := range FolderParts()[1:] {
		names = append(names, p.Name)
	}
	return names
}

// InventedName is the name of the invented machine whose state is in a folder; "" for that of the hardware.
func InventedName(folder string) string {
	above, name := filepath.Split(folder)
	if filepath.Base(above) != "machines" {
		return ""
	}
	return name
}

// IsVacant reports whether the folder at path can become a state folder: it is empty, or it has no format yet and holds
// the state of invented machines ("machines") or what users keep ("user-UID"), and otherwise only parts that an
// interrupted Create left.
func IsVacant(path string) bool {
	root, err := sys.FollowDir(path)
	if err != nil {
		return false
	}
	defer root.Close() //nolint:errcheck // read only

	return isVacantDir(root)
}

func isVacantDir(root *sys.Dir) bool {
	dir, err := root.Dir(".")
	if err != nil {
		return false
	}

	defer dir.Close() //nolint:errcheck // read only
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return false
	}

	invented := false
	for _, e := range entries {
		name := e.Name()
		switch {
		case (name == "machines" || strings.HasPrefix(name, "user-")) && e.IsDir():
			invented = true
		case name == "format" || !slices.Contains(partNames(), name) && !strings.HasPrefix(name, sys.AsidePrefix):
			return false
		}
	}

	return invented || len(entries) == 0
}

// moveParts moves the parts into a folder of the caller that has content already. Another process of the same user may
// do so at the same time: each part is moved by only one of them.
func moveParts(aside, dir *sys.Dir) error {
	if err := dir.SetMode(0o1777); err != nil {
		return err
	}
	for _, name := range partNames() {
		if err := aside.Move(name, dir, name); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

func fillFolder(dir *sys.Dir) error {
	parts := FolderParts()
	for _, p := range parts[1:] {
		if !p.Folder {
			if err := dir.Write(p.Name, []byte(p.Content), p.Mode); err != nil {
				return err
			}
			continue
		}
		part, err := dir.Own(p.Name, p.Mode)
		if err != nil {
			return err
		}
		_ = part.Close()
	}
	return dir.SetMode(parts[0].Mode)
}
