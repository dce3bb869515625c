// Package cgroupfs finds the control group of this process (cgroups(7)), of version 1 and of version 2, and removes
// groups that nobody uses. It decides nothing and moves no process.
//
//	dir := cgroupfs.Own("devices") // /sys/fs/cgroup/devices/jobs
//	why := cgroupfs.Fixed(dir)     // "" a group can be made below
//	gone := cgroupfs.Prune(filepath.Join(dir, "gpuard-wall-7"))
package cgroupfs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Prefix begins the name of every group that gpuard makes.
const Prefix = "gpuard-"

// Own returns the folder of this process's group in the hierarchy of this controller of version 1, or for "" in that of
// version 2; "" if that is not mounted here.
func Own(controller string) string {
	self, selfErr := os.ReadFile("/proc/self/cgroup")
	mounts, mountsErr := os.ReadFile("/proc/self/mountinfo")
	if selfErr != nil || mountsErr != nil {
		return ""
	}

	dir := Find(string(self), string(mounts), controller)
	magic := int64(unix.CGROUP2_SUPER_MAGIC)
	if controller != "" {
		magic = unix.CGROUP_SUPER_MAGIC
	}

	var fs unix.Statfs_t
	if dir == "" || unix.Statfs(dir, &fs) != nil || int64(fs.Type) != magic { //nolint:unconvert // 32 bits elsewhere
		return ""
	}

	return dir
}

// Find is Own by the texts of /proc/PID/cgroup and of /proc/self/mountinfo (proc_pid_mountinfo(5)).
func Find(self, mounts, controller string) string {
	own := pathOf(self, controller)
	if !strings.HasPrefix(own, "/") || path.Clean(own) != own {
		// "/..": outside of this cgroup namespace.
		return ""
	}

	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if !isHierarchy(after, controller) || len(fields) < 5 || strings.Contains(fields[4], `\`) {
			continue
		}

		below, err := filepath.Rel(fields[3], own)
		if err == nil && filepath.IsLocal(below) {
			return filepath.Join(fields[4], below)
		}
	}

	return ""
}

// pathOf is the path of a process in a hierarchy, from its /proc/PID/cgroup: "0::/path" in version 2,
// "N:controllers:/path" in version 1.
func pathOf(self, controller string) (own string) {
	for line := range strings.Lines(self) {
		number, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		isOne := controller != "" && slices.Contains(strings.Split(controllers, ","), controller)
		if isOne || controller == "" && number == "0" && controllers == "" {
			own = group
		}
	}
	return own
}

// isHierarchy reports whether the end of a line of mountinfo, "TYPE SOURCE OPTIONS", is that of the hierarchy.
func isHierarchy(line, controller string) bool {
	f := strings.Fields(line)
	if controller == "" {
		return len(f) > 0 && f[0] == "cgroup2"
	}
	return len(f) > 2 && f[0] == "cgroup" && slices.Contains(strings.Split(f[2], ","), controller)
}

// Fixed says why this process may not make groups below dir; "" where it may. Permission to write is not enough:
// systemd manages every group that it did not delegate (docs/CGROUP_DELEGATION.md of systemd/systemd). It marks a
// delegated one with an extended attribute, or makes the user own it inside of a folder that the user does not own.
func Fixed(dir string) string {
	for _, p := range []string{dir, filepath.Join(dir, "cgroup.procs")} {
		err := unix.Access(p, unix.W_OK)
		if err != nil {
			return fmt.Sprintf("nothing can be written in the control group %s (%v)", dir, err)
		}
	}

	// If controllers are enabled for the groups below, a command's group would get the share of one process. Only the
	// root group can have such controllers and processes too ("no internal processes", cgroups(7)). Version 1 has no
	// such file.
	enabled, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil && !errors.Is(err, os.ErrNotExist) || strings.TrimSpace(string(enabled)) != "" {
		return fmt.Sprintf("the control group %s shares its resources among the groups below, so one more would change the shares", dir)
	}

	// sd_booted(3).
	_, err = os.Stat("/run/systemd/system")
	if errors.Is(err, os.ErrNotExist) || isDelegated(dir) {
		return ""
	}

	return fmt.Sprintf("systemd manages the control group %s and did not delegate it", dir)
}

// isDelegated reports whether systemd left a group to this user. In a group of gpuard's that is as in the one around
// it.
func isDelegated(dir string) bool {
	for strings.HasPrefix(filepath.Base(dir), Prefix) {
		dir = filepath.Dir(dir)
	}
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 2)
		n, err := unix.Getxattr(dir, name, value)
		if err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	var own, above unix.Stat_t
	return os.Geteuid() != 0 && unix.Stat(dir, &own) == nil && unix.Stat(filepath.Dir(dir), &above) == nil &&
		int(own.Uid) == os.Geteuid() && own.Uid != above.Uid
}

// Processes lists the processes in this group only.
func Processes(dir string) (pids []int) {
	text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for word := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(word)
		if err == nil && pid > 0 {
			// 0: in a PID namespace that is not below ours.
			pids = append(pids, pid)
		}
	}
	return pids
}

// Folders returns a group's own folder and then those below it.
func Folders(dir string) (dirs []string) {
	_ = filepath.WalkDir(dir, func(p string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, p)
		}
		return nil
	})
	return dirs
}

// Prune removes a group and those below, if there is no process in them, and reports whether it is gone. The kernel
// removes none that has a process.
func Prune(dir string) bool {
	dirs := Folders(dir)
	if len(dirs) == 0 {
		return true
	}

	for _, d := range dirs {
		if !isEmpty(d) {
			return false
		}
	}

	var err error
	slices.Reverse(dirs)

	for _, d := range dirs {
		err = unix.Rmdir(d)
	}

	return err == nil || errors.Is(err, unix.ENOENT)
}

// isEmpty reports whether no process is in a group. Version 2 says so, also of a group of threads, whose cgroup.procs
// cannot be read.
func isEmpty(dir string) bool {
	events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	if err == nil {
		return strings.Contains(string(events), "populated 0")
	}
	processes, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))

	return err == nil && len(processes) == 0 || errors.Is(err, os.ErrNotExist)
}
