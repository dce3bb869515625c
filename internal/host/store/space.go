package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/space"
	"gpuard/internal/host/sys"
)

// A process in a user namespace that maps only some ids does not know its uid outside: it can read its uid in the
// parent namespace, but not whether that is the machine's first. So its folder has a random name that begins with
// spacePrefix and says nothing about the owner; each reader takes the owner that the kernel reports.
const (
	spacePrefix = "ns-"
	// Folders of that kind that are read; claims make only one.
	maxFoldersPerOwner = 4
)

func isSpaceName(name string) bool {
	random, ok := strings.CutPrefix(name, spacePrefix)
	return ok && len(random) == 8 && isPlainASCII(random, 'f')
}

// namespaceIDs returns the ids of this process's user namespace. A kernel without user namespaces has no uid_map.
func namespaceIDs() space.IDs {
	if link, err := os.Readlink("/proc/self/ns/user"); err == nil && link == space.FirstUserNamespace {
		return space.IDs{}
	}

	own, err := os.ReadFile("/proc/self/uid_map")
	if errors.Is(err, os.ErrNotExist) {
		return space.IDs{}
	}

	overflow, _ := os.ReadFile("/proc/sys/fs/overflowuid")

	return space.ParseIDs(string(own), string(overflow))
}

// CheckUserKnown returns an error if the caller's own files appear here as those of unknown users: then gpuard could
// not recognise a lease as the caller's.
func CheckUserKnown() error { return checkUserKnown(namespaceIDs()) }

func checkUserKnown(ids space.IDs) error {
	if !ids.Hides(uint32(os.Geteuid())) {
		return nil
	}
	return errors.New("cannot lease a GPU here: this user namespace has no place for your user id, so your leases look like " +
		"those of all other users; start gpuard outside of it, or where your id has a place (unshare --map-current-user)")
}

// folderOwner returns the owner that a folder counts for, by its name and the uid that the kernel reports, and whether
// it counts at all. A folder with a hidden owner counts, because a locked file in it may be a lease.
func folderOwner(ids space.IDs, name string, uid uint32) (owner uint32, counts bool) {
	named, isUID := parseUIDName(name)
	switch {
	case ids.Hides(uid):
		return ids.StandIn(name), true
	case ids.Part() || !isUID:
		// The name is a uid of another namespace, or no uid.
		return uid, true
	}
	return named, uid == named || uid == 0
}

// isForeign reports whether a file of uid is known to belong neither to root nor to the owner of its folder.
func isForeign(ids space.IDs, uid, owner uint32) bool {
	if ids.Part() && (owner == 0 || ids.Hides(uid) || ids.Hides(owner)) {
		// Owner 0 may be root, who may own a folder with the files of another user.
		return false
	}
	return uid != owner && uid != 0
}

// ownFolderName returns the name of the caller's folder in sub, "leases" or "tickets". In a user namespace it is the
// folder that belongs to the caller, or a new name.
func (f *Folder) ownFolderName(root *sys.Dir, sub string) (string, error) {
	if !f.ids.Part() {
		return strconv.Itoa(os.Geteuid()), nil
	}
	if err := checkUserKnown(f.ids); err != nil {
		return "", err
	}

	name, err := findOwnFolder(root, sub)
	if err == nil && name == "" {
		name = fmt.Sprintf("%s%08x", spacePrefix, rand.Uint32())
	}

	return name, err
}

// findOwnFolder returns the name of the caller's first folder in sub that was made in a user namespace, "" if there is
// none.
func findOwnFolder(root *sys.Dir, sub string) (string, error) {
	dir, err := root.Dir(sub)
	if err != nil {
		return "", err
	}

	defer dir.Close() //nolint:errcheck // read only
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return "", err
	}

	slices.Sort(names)

	for _, name := range names {
		if !isSpaceName(name) {
			continue
		}
		st, err := dir.Lstat(name)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Uid == uint32(os.Geteuid()) {
			return name, nil
		}
	}

	return "", nil
}
