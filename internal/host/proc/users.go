package proc

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"gpuard/internal/core/gpu"
)

// User is the login name of uid, or the number where no name is known.
func (f FS) User(uid uint32) string { return f.users().of(uid) }

// userNames remembers names during one call; safe for several goroutines.
type userNames struct {
	mu    sync.Mutex
	known map[uint32]string
	ask   bool // users of a directory service are not in the file: ask the name service for those
}

// users reads passwd(5): name, password, uid, … separated by colons. The first entry of a uid wins, as in libc.
func (f FS) users() *userNames {
	names := &userNames{known: map[uint32]string{}, ask: f.root == "/proc"}
	file, err := os.Open(f.passwd)
	if err != nil {
		return names
	}
	defer file.Close()
	b, _ := io.ReadAll(io.LimitReader(file, 16<<20)) // what was read before an error is still true
	for line := range strings.Lines(string(b)) {
		uid, name, ok := passwdEntry(line)
		if _, taken := names.known[uid]; ok && !taken {
			names.known[uid] = name
		}
	}
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

func (n *userNames) of(uid uint32) string {
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

// getent asks the machine's name service (nsswitch.conf(5)) the way a program without libc can: a child that is given
// up when a directory server does not answer.
func getent(uid uint32) (string, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	cmd := exec.CommandContext(ctx, "getent", "passwd", strconv.FormatUint(uint64(uid), 10))
	cmd.WaitDelay = 100 * time.Millisecond
	out, err := cmd.Output()
	if err != nil {
		return "", false
	}
	found, name, ok := passwdEntry(string(out))
	return name, ok && found == uid
}
