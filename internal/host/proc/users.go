package proc

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/policy"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/space"
	"gpuard/internal/host/sys"
)

// IDs returns the user ids that this user namespace can distinguish; all of them if procfs has no uid_map.
func (f FS) IDs() space.IDs {
	if link, err := os.Readlink(filepath.Join(f.root, "self", "ns", "user")); err == nil && link == space.FirstUserNamespace {
		return space.IDs{}
	}

	own, err := f.readFile(64<<10, "self", "uid_map")
	if err != nil {
		return space.IDs{}
	}

	overflow, _ := f.readFile(64, "sys", "fs", "overflowuid")

	return space.ParseIDs(string(own), string(overflow))
}

// IsRoot reports whether this process is root of the machine. In the user namespace of another user, uid 0 is not:
// there the files of procfs belong to a uid that is not mapped.
func (f FS) IsRoot() bool {
	var st unix.Stat_t
	return os.Geteuid() == 0 && (unix.Stat(f.root, &st) != nil || st.Uid == 0)
}

// User is the login name of uid, or the number if it has no name.
func (f FS) User(uid uint32) string { return f.loadUserNames().lookupName(uid) }

// nameCacheTime is how long a name, or that there is none, counts: a directory service may answer again, and people get
// accounts.
const nameCacheTime = time.Minute

// userNames keeps names, because each that is not in the file costs a process. It is safe for several goroutines.
type userNames struct {
	mu    sync.Mutex
	known map[uint32]string
	ids   space.IDs
	// Whether to ask the name service for uids that are not in the file, such as those of a directory service.
	ask bool
	// When the file was read.
	read time.Time
}

// loadUserNames are the names of passwd(5). The first entry of a uid counts, as in libc.
func (f FS) loadUserNames() *userNames {
	n := f.names
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.read) < nameCacheTime {
		return n
	}

	n.read, n.known, n.ids, n.ask = time.Now(), map[uint32]string{}, f.IDs(), f.root == "/proc"
	eachEntry(f.passwd, func(uid uint32, name string) {
		if _, taken := n.known[uid]; !taken {
			n.known[uid] = name
		}
	})

	return n
}

func passwdEntry(line string) (uid uint32, name string, ok bool) {
	fields := strings.SplitN(line, ":", 4)
	if len(fields) < 4 || strings.HasPrefix(line, "#") {
		return 0, "", false
	}

	n, err := strconv.ParseUint(fields[2], 10, 32)
	name = prose.Clean(fields[0])

	return uint32(n), name, err == nil && name != ""
}

// AddNames adds the names of the user and of the groups to u, if asked for: every name in the files (passwd(5),
// group(5)), and for ids that are not in the files the name from the name service.
func (f FS) AddNames(u policy.User, users, groups bool) policy.User {
	if users {
		u.Names = namesOfIDs(f.passwd, "passwd", []uint32{u.UID}, f.root == "/proc")
	}
	if groups {
		u.Groups = namesOfIDs(f.group, "group", u.GIDs, f.root == "/proc")
	}
	return u
}

// AccountExists reports whether there is a user (database "passwd") or a group ("group") of that name.
func (f FS) AccountExists(database, name string) bool {
	path := f.passwd
	if database == "group" {
		path = f.group
	}

	found := false
	eachEntry(path, func(_ uint32, n string) { found = found || n == name })
	if !found && f.root == "/proc" {
		_, found = nameService(database, name)
	}

	return found
}

// namesOfIDs returns the names of ids: all that the file has, and for other ids the one of the name service if ask is
// set.
func namesOfIDs(path, database string, ids []uint32, ask bool) (names []string) {
	known := map[uint32]bool{}
	eachEntry(path, func(id uint32, name string) {
		if slices.Contains(ids, id) {
			known[id] = true
			names = append(names, name)
		}
	})

	var rest []string
	for _, id := range ids {
		if !known[id] {
			rest = append(rest, strconv.FormatUint(uint64(id), 10))
		}
	}

	if ask && len(rest) > 0 {
		more, _ := nameService(database, rest...)
		names = append(names, more...)
	}

	return names
}

// eachEntry calls each for every line of a file like passwd(5): name, password, id, … separated by colons.
func eachEntry(path string, each func(id uint32, name string)) {
	// What was read before an error is still true.
	b, _ := sys.ReadSome(path, 16<<20)
	for line := range strings.Lines(string(b)) {
		if id, name, ok := passwdEntry(line); ok {
			each(id, name)
		}
	}
}

func (u *userNames) lookupName(uid uint32) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids.Hides(uid) {
		return space.HiddenUser
	}
	if name, ok := u.known[uid]; ok {
		return name
	}

	name := strconv.FormatUint(uint64(uid), 10)
	if u.ask {
		if found, ok := getent(uid); ok {
			name = found
		}
	}

	u.known[uid] = name

	return name
}

// getent returns the name of a uid from the name service.
func getent(uid uint32) (string, bool) {
	names, all := nameService("passwd", strconv.FormatUint(uint64(uid), 10))
	if !all || len(names) == 0 {
		return "", false
	}
	return names[0], true
}

// nameService asks the machine's name service (nsswitch.conf(5)) through getent(1), because gpuard does not use libc.
// The child is killed if a directory server does not answer in time. all says that each key was found.
func nameService(database string, keys ...string) (names []string, all bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	cmd := exec.CommandContext(ctx, "getent", append([]string{"--", database}, keys...)...)
	cmd.WaitDelay = 100 * time.Millisecond

	// If some keys are unknown, it fails and still prints the others.
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		id, name, ok := passwdEntry(line)
		if ok && (slices.Contains(keys, name) || slices.Contains(keys, strconv.FormatUint(uint64(id), 10))) {
			names = append(names, name)
		}
	}

	return names, err == nil
}
