package proctree

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is a control group (cgroups(7), version 2) in which the command is started. It has no limits. Its use is that
// a process does not leave it by losing its parent, and that one write to cgroup.kill ends all processes in it. A nil
// *cgroup means that there is none, and has no members.
type cgroup struct {
	dir  string
	file *os.File
}

// groupPrefix begins a cgroup's name, and is followed by the PID of its maker, a point and a number.
const groupPrefix = "gpuard-"

// newGroup makes a cgroup below that of this process. It returns nil if this process may not do that (see divisible),
// or if the kernel has no cgroup.kill (before Linux 5.14).
func newGroup(number int) *cgroup {
	self, err1 := os.ReadFile("/proc/self/cgroup")
	mounts, err2 := os.ReadFile("/proc/self/mountinfo")
	parent := ownGroup(string(self), string(mounts))
	var fs unix.Statfs_t
	if err1 != nil || err2 != nil || parent == "" || unix.Statfs(parent, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC || !divisible(parent) {
		return nil
	}
	sweep(parent)
	g := &cgroup{dir: filepath.Join(parent, fmt.Sprintf("%s%d.%d", groupPrefix, os.Getpid(), number))}
	if err := os.Mkdir(g.dir, 0o755); err != nil { //nolint:gosec // all users may read it
		return nil
	}
	file, err := os.Open(g.dir)
	if err == nil {
		err = unix.Access(filepath.Join(g.dir, "cgroup.kill"), unix.W_OK)
	}
	if g.file = file; err != nil {
		g.remove()
		return nil
	}
	return g
}

// ownGroup returns the folder of this process's cgroup in the hierarchy of version 2, also on machines that have
// version 1 too; "" if it is not mounted here. self is /proc/self/cgroup, mounts is /proc/self/mountinfo
// (proc_pid_mountinfo(5)).
func ownGroup(self, mounts string) string {
	own := ""
	for line := range strings.Lines(self) {
		if rest, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); found {
			own = rest
		}
	}
	if !strings.HasPrefix(own, "/") || path.Clean(own) != own { // "/..": outside of this cgroup namespace
		return ""
	}
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if !strings.HasPrefix(after, "cgroup2 ") || len(fields) < 5 || strings.Contains(fields[4], `\`) {
			continue
		}
		below, err := filepath.Rel(fields[3], own)
		if err == nil && filepath.IsLocal(below) {
			return filepath.Join(fields[4], below)
		}
	}
	return ""
}

// divisible reports whether this process may make cgroups below dir. Permission to write is not enough: systemd manages
// every cgroup that it did not delegate (docs/CGROUP_DELEGATION.md of systemd/systemd). It marks a delegated one with
// an extended attribute, or makes the user own it inside of a folder that the user does not own.
func divisible(dir string) bool {
	for _, p := range []string{dir, filepath.Join(dir, "cgroup.procs")} {
		if unix.Access(p, unix.W_OK) != nil {
			return false
		}
	}
	// If controllers are enabled for the groups below, the command's group would get the share of one process. Only the
	// root cgroup can have such controllers and processes too ("no internal processes", cgroups(7)).
	if b, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control")); err != nil || strings.TrimSpace(string(b)) != "" {
		return false
	}
	if _, err := os.Stat("/run/systemd/system"); errors.Is(err, os.ErrNotExist) { // sd_booted(3)
		return true
	}
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 2)
		if n, err := unix.Getxattr(dir, name, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	var own, above unix.Stat_t
	return os.Geteuid() != 0 && unix.Stat(dir, &own) == nil && unix.Stat(filepath.Dir(dir), &above) == nil &&
		int(own.Uid) == os.Geteuid() && own.Uid != above.Uid
}

// beingMade is longer than a cgroup is empty before its command is in it.
const beingMade = 10 * time.Second

// sweep removes empty cgroups that ended processes left, and those of this process. Not new ones: in another PID namespace
// their maker seems to have ended, and it would have to do without.
func sweep(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"[0-9]*"))
	for _, dir := range left {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), groupPrefix), ".")
		pid, err := strconv.Atoi(number)
		info, statErr := os.Stat(dir)
		if err != nil || statErr != nil {
			continue
		}
		if pid == os.Getpid() || time.Since(info.ModTime()) > beingMade && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = (&cgroup{dir: dir}).prune()
		}
	}
}

// members lists the processes in the cgroup and in cgroups below it.
func (g *cgroup) members() (pids []int) {
	for _, dir := range g.folders() {
		pids = append(pids, pidsIn(dir)...)
	}
	return pids
}

// pidsIn lists the processes in this cgroup only.
func pidsIn(dir string) (pids []int) {
	b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for word := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 { // 0: in a PID namespace that is not below ours
			pids = append(pids, pid)
		}
	}
	return pids
}

// folders returns the cgroup's own folder and then those below it.
func (g *cgroup) folders() (dirs []string) {
	if g == nil {
		return nil
	}
	_ = filepath.WalkDir(g.dir, func(p string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, p)
		}
		return nil
	})
	return dirs
}

// kill moves the spared processes out of the cgroup, and ends all that are in it.
func (g *cgroup) kill(spared []int) {
	if g == nil {
		return
	}
	if g.release(spared) {
		_ = os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0) // if that fails, Kill ends them one by one
	}
}

// release moves processes to the parent cgroup, which is that of this process. ok is false if one could not be moved.
func (g *cgroup) release(pids []int) (ok bool) {
	ok = true
	for _, pid := range pids {
		err := os.WriteFile(filepath.Join(filepath.Dir(g.dir), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		ok = ok && (err == nil || errors.Is(err, unix.ESRCH))
	}
	return ok
}

// remove moves the remaining processes out and removes the cgroup. It does not move processes out of cgroups that the
// command made below, because those may have limits; then the cgroup stays.
func (g *cgroup) remove() {
	if g == nil {
		return
	}
	for try := range 20 { // the processes may start others meanwhile, and one that ends is in it to its end
		if g.prune() {
			break
		}
		g.release(pidsIn(g.dir))
		time.Sleep(time.Duration(try) * time.Millisecond)
	}
	if g.file != nil {
		_ = g.file.Close()
	}
}

// prune removes the cgroup and those below, if there is no process in them.
func (g *cgroup) prune() bool {
	events, err := os.ReadFile(filepath.Join(g.dir, "cgroup.events"))
	if err != nil || !strings.Contains(string(events), "populated 0") {
		return errors.Is(err, os.ErrNotExist)
	}
	dirs := g.folders()
	slices.Reverse(dirs)
	for _, dir := range dirs {
		err = unix.Rmdir(dir)
	}
	return err == nil
}
