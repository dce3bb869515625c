package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// Of gpuard and of what it starts.
	threadsNeeded = 12
	// A limit below this is worth the time to count who uses it.
	lowProcessLimit = 64
)

// ProcessObstacle says why this user may start no more processes and threads, without which the Go runtime ends with a
// dump; "" if that is not known before it is tried. Only a low limit is compared with what runs: to count takes time.
// The limit counts the threads of the real user, and binds all but root and those with CAP_SYS_RESOURCE or
// CAP_SYS_ADMIN (setrlimit(2), RLIMIT_NPROC).
func ProcessObstacle(root string) string {
	limit := processLimit()
	if limit >= lowProcessLimit || os.Getuid() == 0 || mayExceed(root) {
		return ""
	}

	others := userThreads(root, os.Getuid()) - processThreads(filepath.Join(root, "proc/self/task"), os.Getuid())
	if others+threadsNeeded <= limit {
		return ""
	}

	return fmt.Sprintf("cannot start: this user may have no more processes (ulimit -u is %d, %d are running, and gpuard needs about %d); "+
		"end some, or raise the limit: ulimit -u %d", limit, others, threadsNeeded, others+lowProcessLimit)
}

// ThreadFailureText is the text for a thread that could not be created.
func ThreadFailureText() string {
	limit := "ulimit -u sets no limit, so it is one of the container or of the cgroup, pids.max"
	if n := processLimit(); n < int(^uint(0)>>1) {
		limit = fmt.Sprintf("ulimit -u is %d; a container or a cgroup may have a lower one, pids.max", n)
	}
	return "cannot go on: the system gives this user no more processes (" + limit + "); end some, or raise the limit"
}

// processLimit is the largest number for no limit.
func processLimit() int {
	const none = int(^uint(0) >> 1)
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &limit) != nil || limit.Cur > uint64(none) {
		return none
	}

	return int(limit.Cur)
}

func mayExceed(root string) bool {
	for line := range strings.Lines(readText(root, "proc/self/status")) {
		if mask, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && set&(1<<unix.CAP_SYS_RESOURCE|1<<unix.CAP_SYS_ADMIN) != 0
		}
	}
	return false
}

// userThreads counts the threads of a user.
func userThreads(root string, uid int) (n int) {
	folders, _ := filepath.Glob(filepath.Join(root, "proc", "[0-9]*", "task"))
	for _, folder := range folders {
		n += processThreads(folder, uid)
	}
	return n
}

// processThreads counts those of a process by its folder of them, 0 if it is not the user's.
func processThreads(folder string, uid int) int {
	info, err := os.Stat(folder)
	if err != nil {
		return 0
	}

	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != uid || st.Nlink < 2 {
		return 0
	}

	// A link from the folder of each thread.
	return int(st.Nlink) - 2
}
