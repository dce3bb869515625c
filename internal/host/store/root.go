package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/sys"
)

// The state folder may belong to another user, who can replace everything in it at any time. So each operation opens it
// anew and works by descriptor from there (sys.Dir). Files are written only in folders whose owner was checked after
// the open.

// openFolder opens the state folder. It checks only that this is a folder and no symbolic link.
func (f *Folder) openFolder() (*sys.Dir, error) { return openRoot(f.Path) }

func openRoot(path string) (*sys.Dir, error) {
	root, err := sys.OpenDir(path)
	if failed := (*os.PathError)(nil); errors.As(err, &failed) {
		failed.Op = "cannot use the state folder"
	}
	return root, err
}

// lockFolder takes the folder lock and returns the folder that contains it. If the folder or its lock was replaced
// since it was opened, it is checked again. End with release.
func (f *Folder) lockFolder() (*sys.Dir, error) {
	root, replaced, err := f.lock.acquire(f.Deadline)
	if err != nil || !replaced {
		return root, err
	}
	if _, err := f.newReader().checkFolder(root); err != nil {
		f.unlockFolder(root)
		return nil, err
	}

	return root, nil
}

func (f *Folder) unlockFolder(root *sys.Dir) {
	_ = root.Close()
	ended := f.ended
	f.ended = nil
	f.lock.release()
	if len(ended) > 0 && f.Ended != nil {
		f.Ended(ended)
	}
}

func formatUID(uid uint32) string { return strconv.FormatUint(uint64(uid), 10) }

// openOwnFolder opens the caller's folder of that name in leases or tickets for writing. It makes the folder if there
// is none.
func openOwnFolder(root *sys.Dir, sub, name string) (*sys.Dir, error) {
	dir, err := root.Dir(sub + "/" + name)
	if err == nil {
		if st, err := dir.Status(); err == nil && st.Uid == uint32(os.Geteuid()) && st.Mode&0o7777 == 0o755 {
			return dir, nil
		}
		_ = dir.Close()
	}

	top, err := root.Dir(sub)
	if err != nil {
		return nil, fmt.Errorf("cannot use %s: %w", filepath.Join(root.Name(), sub), err)
	}

	defer top.Close() //nolint:errcheck // nothing is written through it

	return explainOwnError(top.Own(name, 0o755))
}

// explainOwnError adds to the error of Dir.Own what to do, for a folder that has the caller's name and belongs to
// another user.
func explainOwnError(dir *sys.Dir, err error) (*sys.Dir, error) {
	var foreign *sys.ForeignError
	switch {
	case errors.As(err, &foreign):
		return nil, fmt.Errorf("cannot use %s: it belongs to uid %d, not to you; ask them or root to remove it: sudo rm -r %s", foreign.Path, foreign.UID, foreign.Path)
	case err != nil:
		return nil, fmt.Errorf("cannot use your folder: %w", err)
	}
	return dir, nil
}

// openUser opens a user's folder in leases or tickets. It must belong to that user or to root.
func (f *Folder) openUser(root *sys.Dir, sub, name string, uid uint32) (*sys.Dir, error) {
	dir, err := root.Dir(sub + "/" + name)
	if err != nil {
		return nil, err
	}
	if st, err := dir.Status(); err != nil || isForeign(f.ids, st.Uid, uid) {
		_ = dir.Close()
		return nil, fmt.Errorf("%s belongs to uid %d", dir.Name(), st.Uid)
	}

	return dir, nil
}

// openIn opens a path below the folder dirFD and follows no symbolic link there. With unix.AT_FDCWD, path is absolute,
// and only its last two parts must not be links.
func openIn(dirFD int, path string, flags int) (int, error) {
	if dirFD != unix.AT_FDCWD {
		return sys.OpenAt(dirFD, path, flags)
	}

	above, err := sys.OpenDir(filepath.Dir(path))
	if err != nil {
		return -1, err
	}

	defer above.Close() //nolint:errcheck // nothing is written through it

	return above.Open(filepath.Base(path), flags)
}
