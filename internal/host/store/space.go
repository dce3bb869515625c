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

// In a user namespace that has only a part of the ids, a process does not know its own uid outside: it can read its
// number in the parent namespace, but not whether that is the machine's own. So the name of its folder is random,
// begins with spacePrefix, and says nothing about the owner: that is the owner whom the kernel names to each reader.
const (
	spacePrefix     = "ns-"
	foldersPerOwner = 4 // of that kind that are read; claims make only one
)

func spaceNamed(name string) bool {
	random, ok := strings.CutPrefix(name, spacePrefix)
	return ok && len(random) == 8 && plainASCII(random, 'f')
}

// idsHere are the ids of this process's user namespace. A kernel without user namespaces has no such files.
func idsHere() space.IDs {
	if link, err := os.Readlink("/proc/self/ns/user"); err == nil && link == space.FirstUserNamespace {
		return space.IDs{}
	}
	own, err := os.ReadFile("/proc/self/uid_map")
	if errors.Is(err, os.ErrNotExist) {
		return space.IDs{}
	}
	overflow, _ := os.ReadFile("/proc/sys/fs/overflowuid")
	return space.Of(string(own), string(overflow))
}

// Anonymous is the error where the caller's own files look like those of others, so that no lease can be the caller's.
func Anonymous() error { return anonymous(idsHere()) }

func anonymous(ids space.IDs) error {
	if !ids.Hides(uint32(os.Geteuid())) {
		return nil
	}
	return errors.New("cannot lease a GPU here: this user namespace has no place for your user id, so your leases look like " +
		"those of everybody else; start gpuard outside of it, or where your id has a place (unshare --map-current-user)")
}

// judge says whose a folder of that name counts as when it belongs to uid, and whether it counts at all. Where the
// owner is hidden it does: what is locked in there may be a lease.
func judge(ids space.IDs, name string, uid uint32) (owner uint32, counts bool) {
	named, isUID := userNamed(name)
	switch {
	case ids.Hides(uid):
		return ids.StandIn(name), true
	case ids.Part() || !isUID: // the name counts in the ids of another namespace, or not at all
		return uid, true
	}
	return named, uid == named || uid == 0
}

// foreign reports whether a file of uid is known to be neither root's nor that of the folder's owner.
func foreign(ids space.IDs, uid, owner uint32) bool {
	if ids.Part() && (owner == 0 || ids.Hides(uid) || ids.Hides(owner)) {
		return false // 0 may be root, in whose folders of users their files count
	}
	return uid != owner && uid != 0
}

// ownName is the name of the caller's folder in sub, "leases" or "tickets". In a user namespace it is the one that is
// the caller's by the kernel's word, or a new one.
func (f *Folder) ownName(root *sys.Dir, sub string) (string, error) {
	if !f.ids.Part() {
		return strconv.Itoa(os.Geteuid()), nil
	}
	if err := anonymous(f.ids); err != nil {
		return "", err
	}
	name, err := ownIn(root, sub)
	if err == nil && name == "" {
		name = fmt.Sprintf("%s%08x", spacePrefix, rand.Uint32())
	}
	return name, err
}

// ownIn finds the first folder in sub that was made in a user namespace and is the caller's, "" without one.
func ownIn(root *sys.Dir, sub string) (string, error) {
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
		if !spaceNamed(name) {
			continue
		}
		st, err := dir.Look(name)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Uid == uint32(os.Geteuid()) {
			return name, nil
		}
	}
	return "", nil
}
