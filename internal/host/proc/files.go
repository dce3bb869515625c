package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/core/space"
)

// LockHolders lists the processes that hold a lock for writing on the file with this device number and inode, in order
// of PID. Processes that only read the file, as every look at the leases does, are not in the list. It is empty before
// Linux 4.1, whose fdinfo does not show locks. Only root can read the descriptors of other users' processes, so for
// other callers those are missing.
func (f FS) LockHolders(dev, ino uint64) []job.Blocker {
	pids, err := f.listPIDs()
	if err != nil {
		return nil
	}

	var out []job.Blocker
	var names *userNames
	for _, pid := range pids {
		if !f.holdsLock(pid, dev, ino) {
			continue
		}
		if names == nil {
			names = f.loadUserNames()
		}
		if p := f.readProcessInfo(pid, names); p.State != StateGone {
			out = append(out, newBlocker(pid, p))
		}
	}

	return out
}

// listPIDs lists all processes, lowest first.
func (f FS) listPIDs() ([]int, error) {
	entries, err := os.ReadDir(f.root)
	if err != nil {
		return nil, fmt.Errorf("cannot list the processes: %w", err)
	}

	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}

	slices.Sort(pids)

	return pids, nil
}

// holdsLock reports whether one of /proc/PID/fd is that file with a lock of its own, which fdinfo lists
// (proc_pid_fdinfo(5)). Such a link leads to the open file itself: no path is resolved and nothing is opened.
// AT_STATX_DONT_SYNC keeps a dead file server from blocking the call (statx(2)).
func (f FS) holdsLock(pid int, dev, ino uint64) bool {
	dir := filepath.Join(f.root, strconv.Itoa(pid), "fd")
	d, err := os.Open(dir)
	if err != nil {
		return false
	}

	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		var st unix.Statx_t
		err := unix.Statx(int(d.Fd()), name, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_INO, &st)
		if err != nil || st.Ino != ino || unix.Mkdev(st.Dev_major, st.Dev_minor) != dev {
			continue
		}

		info, err := f.readFile(64<<10, strconv.Itoa(pid), "fdinfo", name)
		if err == nil && slices.ContainsFunc(strings.Split(string(info), "\n"), isWriteLock) {
			return true
		}
	}

	return false
}

// isWriteLock reports whether a line of fdinfo is a lock for writing. Who may only read a file can lock it for reading.
func isWriteLock(line string) bool {
	return strings.HasPrefix(line, "lock:") && strings.Contains(line, " WRITE ")
}

// IsMountPoint reports whether path itself, a file or a folder, is a mount point in the caller's mount namespace
// (proc_pid_mountinfo(5)), or lies below one that shows the same folder of a disk, as docker run -v /var/tmp:/var/tmp
// does: whose a tmpfs is does not show. It does not resolve symbolic links in path.
func (f FS) IsMountPoint(path string) (bool, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return false, fmt.Errorf("cannot tell whether %s is a mount point: %w", path, err)
	}

	b, err := f.readFile(64<<20, "self", "mountinfo")
	if err != nil {
		return false, fmt.Errorf("cannot tell whether %s is a mount point: %w", path, err)
	}
	if len(b) == 0 {
		return false, fmt.Errorf("cannot tell whether %s is a mount point: %s is empty", path, filepath.Join(f.root, "self/mountinfo"))
	}

	return slices.ContainsFunc(space.ParseMounts(string(b)), func(m space.Mount) bool {
		same := m.Root == m.Point && m.Point != "/" && m.Kind != "overlay" && strings.HasPrefix(abs, m.Point+"/")
		return m.Point == abs || same
	}), nil
}
