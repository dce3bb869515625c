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

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/space"
	"gpuard/internal/host/sys"
)

// IDs are the user ids that can be told apart here. Where procfs does not say, all can.
func (f FS) IDs() space.IDs {
	if link, err := os.Readlink(filepath.Join(f.root, "self", "ns", "user")); err == nil && link == space.FirstUserNamespace {
		return space.IDs{}
	}
	own, err := f.read(64<<10, "self", "uid_map")
	if err != nil {
		return space.IDs{}
	}
	overflow, _ := f.read(64, "sys", "fs", "overflowuid")
	return space.Of(string(own), string(overflow))
}

// Root reports whether this process is root of the machine. In a user namespace that another user made, uid 0 is not: there the
// kernel's own files belong to a user who is hidden.
func (f FS) Root() bool {
	var st unix.Stat_t
	return os.Geteuid() == 0 && (unix.Stat(f.root, &st) != nil || st.Uid == 0)
}

// User is the login name of uid, or the number where no name is known.
func (f FS) User(uid uint32) string { return f.users().of(uid) }

// userNames remembers names during one call; safe for several goroutines.
type userNames struct {
	mu    sync.Mutex
	known map[uint32]string
	ids   space.IDs
	ask   bool // users of a directory service are not in the file: ask the name service for those
}

// users reads passwd(5): name, password, uid, … separated by colons. The first entry of a uid wins, as in libc.
func (f FS) users() *userNames {
	names := &userNames{known: map[uint32]string{}, ids: f.IDs(), ask: f.root == "/proc"}
	entries(f.passwd, func(uid uint32, name string) {
		if _, taken := names.known[uid]; !taken {
			names.known[uid] = name
		}
	})
	return names
}

func passwdEntry(line string) (uid uint32, name string, ok bool) {
	fields := strings.SplitN(line, ":", 4)
	if len(fields) < 4 || strings.HasPrefix(line, "#") {
		return 0, "", false
	}
	n, err := strconv.ParseUint(fields[2], 10, 32)
	name = gpu.Clean(fields[0])
	return uint32(n), name, err == nil && name != ""
}

// Account adds their names to the ids of a user, as far as they are wanted: all that the files have (passwd(5), group(5)), and of ids that stand in neither
// that of the machine's name service.
func (f FS) Account(u policy.User, users, groups bool) policy.User {
	if users {
		u.Names = named(f.passwd, "passwd", []uint32{u.UID}, f.root == "/proc")
	}
	if groups {
		u.Groups = named(f.group, "group", u.GIDs, f.root == "/proc")
	}
	return u
}

// Exists reports whether anybody has the name: database is passwd or group.
func (f FS) Exists(database, name string) bool {
	path := f.passwd
	if database == "group" {
		path = f.group
	}
	found := false
	entries(path, func(_ uint32, n string) { found = found || n == name })
	if !found && f.root == "/proc" {
		_, found = asked(database, name)
	}
	return found
}

func named(path, database string, ids []uint32, ask bool) (names []string) {
	known := map[uint32]bool{}
	entries(path, func(id uint32, name string) {
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
		more, _ := asked(database, rest...)
		names = append(names, more...)
	}
	return names
}

// entries goes through a file of names: name, password, id, … separated by colons.
func entries(path string, each func(id uint32, name string)) {
	b, _ := sys.ReadSome(path, 16<<20) // what was read before an error is still true
	for line := range strings.Lines(string(b)) {
		if id, name, ok := passwdEntry(line); ok {
			each(id, name)
		}
	}
}

func (n *userNames) of(uid uint32) string {
	if n.ids.Hides(uid) {
		return space.HiddenUser
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if name, ok := n.known[uid]; ok {
		return name
	}
	name := strconv.FormatUint(uint64(uid), 10)
	if n.ask {
		if found, ok := getent(uid); ok {
			name = found
		}
	}
	n.known[uid] = name
	return name
}

// getent is the name of an id that stands in no file.
func getent(uid uint32) (string, bool) {
	names, all := asked("passwd", strconv.FormatUint(uint64(uid), 10))
	if !all || len(names) == 0 {
		return "", false
	}
	return names[0], true
}

// asked asks the machine's name service (nsswitch.conf(5)) the way a program without libc can: a child that is given
// up when a directory server does not answer. all says that each key was found.
func asked(database string, keys ...string) (names []string, all bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	cmd := exec.CommandContext(ctx, "getent", append([]string{"--", database}, keys...)...)
	cmd.WaitDelay = 100 * time.Millisecond
	out, err := cmd.Output() // what it knows it says, also where it does not know all
	for line := range strings.Lines(string(out)) {
		id, name, ok := passwdEntry(line)
		if ok && (slices.Contains(keys, name) || slices.Contains(keys, strconv.FormatUint(uint64(id), 10))) {
			names = append(names, name)
		}
	}
	return names, err == nil
}
