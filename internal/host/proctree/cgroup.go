package proctree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/cgroupfs"
)

// cgroup is a control group (cgroups(7), version 2) in which the command is started. It has no limits. Its use is that
// a process does not leave it by losing its parent, and that one write to cgroup.killMembers ends all processes in it.
// A nil
// *cgroup means that there is none, and has no members.
type cgroup struct {
	// cgroupfs.Prefix, the PID of its maker, a point and a number.
	dir  string
	file *os.File
}

// newCgroup makes a cgroup below that of this process. It returns nil if this process may not do that, or if the kernel
// has no cgroup.killMembers (before Linux 5.14).
func newCgroup(number int) *cgroup {
	parent := cgroupfs.Own("")
	if parent == "" || cgroupfs.Fixed(parent) != "" {
		return nil
	}

	removeStaleCgroups(parent)
	g := &cgroup{dir: filepath.Join(parent, fmt.Sprintf("%s%d.%d", cgroupfs.Prefix, os.Getpid(), number))}
	if err := os.Mkdir(g.dir, 0o755); err != nil { //nolint:gosec // all users may read it
		return nil
	}

	file, err := os.Open(g.dir)
	g.file = file
	if err != nil || unix.Access(filepath.Join(g.dir, "cgroup.kill"), unix.W_OK) != nil {
		g.emptyAndRemove()
		return nil
	}

	return g
}

// maxSetupTime is longer than a cgroup is empty before its command is in it.
const maxSetupTime = 10 * time.Second

// removeStaleCgroups removes empty cgroups that ended processes left, and those of this process. Not new ones: in
// another PID namespace their maker seems to have ended, and it would have to do without.
func removeStaleCgroups(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, cgroupfs.Prefix+"[0-9]*"))
	for _, dir := range left {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), cgroupfs.Prefix), ".")
		pid, err := strconv.Atoi(number)
		info, statErr := os.Stat(dir)
		if err != nil || statErr != nil {
			continue
		}

		if pid == os.Getpid() || time.Since(info.ModTime()) > maxSetupTime && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			cgroupfs.Prune(dir)
		}
	}
}

// listMembers lists the processes in the cgroup and in cgroups below it.
func (c *cgroup) listMembers() (pids []int) {
	if c == nil {
		return nil
	}
	for _, dir := range cgroupfs.Folders(c.dir) {
		pids = append(pids, cgroupfs.Processes(dir)...)
	}
	return pids
}

// killMembers moves the spared processes out of the cgroup, and ends all that are in it. One in a cgroup below stays
// there, because that may have limits, or be the wall of a job; then Kill ends the others one by one.
func (c *cgroup) killMembers(spared []int) {
	if c == nil {
		return
	}
	own := cgroupfs.Processes(c.dir)
	stays := func(pid int) bool { return !slices.Contains(own, pid) }
	if !slices.ContainsFunc(spared, stays) && c.moveOut(spared) {
		// If that fails, Kill ends them one by one.
		_ = os.WriteFile(filepath.Join(c.dir, "cgroup.kill"), []byte("1"), 0)
	}
}

// moveOut moves processes to the parent cgroup, which is that of this process. ok is false if one could not be moved.
func (c *cgroup) moveOut(pids []int) (ok bool) {
	ok = true
	for _, pid := range pids {
		err := os.WriteFile(filepath.Join(filepath.Dir(c.dir), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		ok = ok && (err == nil || errors.Is(err, unix.ESRCH))
	}
	return ok
}

// emptyAndRemove moves the remaining processes out and removes the cgroup. It does not move processes out of cgroups
// that the command made below, because those may have limits; then the cgroup stays.
func (c *cgroup) emptyAndRemove() {
	if c == nil {
		return
	}
	for try := range 20 {
		// The processes may start others meanwhile, and one that ends is in it to its end.
		if cgroupfs.Prune(c.dir) {
			break
		}
		c.moveOut(cgroupfs.Processes(c.dir))
		time.Sleep(time.Duration(try) * time.Millisecond)
	}
	if c.file != nil {
		_ = c.file.Close()
	}
}
