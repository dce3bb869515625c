package tree

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

// cgroup is a control group (cgroups(7), version 2) that the command is started in. It has no limits: it is there because
// nobody gets out of it by leaving a parent, and because all that is in it dies at one word to the kernel. A nil *cgroup is
// one that could not be had, and nobody is in it.
type cgroup struct {
	dir  string
	file *os.File
}

// groupPrefix is followed by the PID of the one who made it, a point and a number.
const groupPrefix = "gpuard-"

// newGroup makes one below our own, where that is ours to divide; nil where it is not, or where the kernel cannot end one
// (before Linux 5.14).
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
	if err := os.Mkdir(g.dir, 0o755); err != nil { //nolint:gosec // everybody may see it
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

// ownGroup is the folder of our cgroup in the hierarchy of version 2, also beside hierarchies of version 1; "" where none can
// be seen. self is /proc/self/cgroup, mounts is /proc/self/mountinfo (proc_pid_mountinfo(5)).
func ownGroup(self, mounts string) string {
	own := ""
	for line := range strings.Lines(self) {
		if rest, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); found {
			own = rest
		}
	}
	if !strings.HasPrefix(own, "/") || path.Clean(own) != own { // "/..": outside of our cgroup namespace
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

// divisible reports whether we may make cgroups below this one. Being allowed to write is not enough: under systemd everything
// is systemd's that it did not delegate (docs/CGROUP_DELEGATION.md of systemd/systemd), which it marks with an extended
// attribute, or by giving a user a folder in one that is not the user's.
func divisible(dir string) bool {
	for _, p := range []string{dir, filepath.Join(dir, "cgroup.procs")} {
		if unix.Access(p, unix.W_OK) != nil {
			return false
		}
	}
	// A controller that is given to the groups below would count the command as one, and give it the share of one process.
	// Only the first cgroup of all can have that and processes too ("no internal processes", cgroups(7)).
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

// sweep removes what others left who were killed. A cgroup with somebody in it stays; one that is just being made fails its
// maker, who then does without.
func sweep(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"[0-9]*"))
	for _, dir := range left {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), groupPrefix), ".")
		pid, err := strconv.Atoi(number)
		if err == nil && (pid == os.Getpid() || errors.Is(unix.Kill(pid, 0), unix.ESRCH)) {
			_ = (&cgroup{dir: dir}).prune()
		}
	}
}

// members lists who is in it, and in what was made below it.
func (g *cgroup) members() (pids []int) {
	for _, dir := range g.folders() {
		pids = append(pids, inside(dir)...)
	}
	return pids
}

// inside lists who is in this very folder.
func inside(dir string) (pids []int) {
	b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for word := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 { // 0: in a PID namespace that is not below ours
			pids = append(pids, pid)
		}
	}
	return pids
}

// folders are its own and those below it, which come later.
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

// kill ends all that are in it, but for those that are let out before.
func (g *cgroup) kill(spared []int) {
	if g == nil {
		return
	}
	if g.release(spared) {
		_ = os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0) // what is left is ended one by one
	}
}

// release lets processes out, to where this process is; ok is false when one could not be.
func (g *cgroup) release(pids []int) (ok bool) {
	ok = true
	for _, pid := range pids {
		err := os.WriteFile(filepath.Join(filepath.Dir(g.dir), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		ok = ok && (err == nil || errors.Is(err, unix.ESRCH))
	}
	return ok
}

// remove lets out who lives on, and removes it. It stays while somebody is in a cgroup that the command made below it: that
// one may have limits.
func (g *cgroup) remove() {
	if g == nil {
		return
	}
	for range 20 { // who is let out may have started others meanwhile
		if g.prune() {
			break
		}
		g.release(inside(g.dir))
	}
	if g.file != nil {
		_ = g.file.Close()
	}
}

// prune removes it and what is below, if nobody is in there.
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
