// Package tree finds, buries and ends the processes below this one, also those that left their parent, process group and
// session. It signals only processes of this tree, by pidfd; it does not know what they are for.
package tree

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"gpuard/internal/host/sys"

	"golang.org/x/sys/unix"
)

// Tree is everything below this process, but for what is spared.
type Tree struct {
	awaited, spare func(pid int) bool
	before         map[int]uint64 // children that were there already, with their start: whose they are, nobody here knows
	stop           chan struct{}
	done           sync.WaitGroup
	told           []int // to end
	group          *cgroup
	groups         int // that were made, or not
}

// late is how long an orphan stays unburied. A child that was started by os/exec ends there within that time: nobody here
// knows which children are whose, and a child that is waited for twice fails its starter.
const late = 300 * time.Millisecond

// Adopt makes this process the parent of what its descendants leave behind (PR_SET_CHILD_SUBREAPER(2const)), and buries it
// when it ends. Somebody else waits for those that are awaited. Processes for which spare says so, and what is below them, are
// not part of the tree, nor are children that this process has already: a script that started something and then became this
// program (exec) left it them. Those in its cgroup are, see Group.
func Adopt(awaited, spare func(pid int) bool) *Tree {
	t := &Tree{awaited: awaited, spare: spare, before: map[int]uint64{}, stop: make(chan struct{})}
	if !childless() {
		for pid, p := range sys.Processes() {
			if p.Parent == os.Getpid() {
				t.before[pid] = p.Start
			}
		}
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // before Linux 3.4 orphans are init's
	t.done.Go(t.bury)
	return t
}

// Group returns the open folder of a cgroup for what is started next; nil where none can be had. It is a new one each time:
// a cgroup whose members were ended at once may end whatever is started in it later, too (seen with Linux 6.18).
func (t *Tree) Group() *os.File {
	t.group.remove()
	t.groups++
	if t.group = newGroup(t.groups); t.group == nil {
		return nil
	}
	return t.group.file
}

// Leave buries what has ended, and nothing after that; what is still below this process becomes init's when it ends.
func (t *Tree) Leave() {
	close(t.stop)
	t.done.Wait()
	t.group.remove()
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// bury waits for orphans that have ended.
func (t *Tree) bury() {
	tick := time.NewTicker(late)
	defer tick.Stop()
	var before []int
	for {
		select {
		case <-t.stop:
			return
		case <-tick.C:
		}
		if !anyEnded() {
			before = nil
			continue
		}
		var ended []int
		for pid, p := range sys.Processes() {
			if p.Parent != os.Getpid() || p.State != 'Z' || t.awaited(pid) {
				continue
			}
			if slices.Contains(before, pid) {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			} else {
				ended = append(ended, pid)
			}
		}
		before = ended
	}
}

// anyEnded asks the kernel whether there is anything to bury, which costs nothing; the list of processes does.
func anyEnded() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo == int32(unix.SIGCHLD)
}

// childless asks the kernel whether this process has no child at all, which is so mostly, and saves reading the list of processes.
func childless() bool {
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil), unix.ECHILD)
}

// Members lists the living processes below this one and in its cgroup, in order of PID.
func (t *Tree) Members() []int {
	members, _ := t.members()
	return slices.Sorted(maps.Keys(members))
}

// members also lists those of the cgroup that are spared.
func (t *Tree) members() (found map[int]sys.Process, spared []int) {
	all := sys.Processes()
	children := map[int][]int{}
	for pid, p := range all {
		children[p.Parent] = append(children[p.Parent], pid)
	}
	var roots, aside []int
	for _, pid := range children[os.Getpid()] {
		if start, known := t.before[pid]; known && start == all[pid].Start || t.spare(pid) {
			aside = append(aside, pid)
		} else {
			roots = append(roots, pid)
		}
	}
	others := below(aside, children)
	for _, pid := range t.group.members() {
		switch _, listed := all[pid]; {
		case others[pid]:
			spared = append(spared, pid)
		case listed && pid != os.Getpid():
			roots = append(roots, pid)
		}
	}
	found = map[int]sys.Process{}
	for pid := range below(roots, children) {
		if p := all[pid]; !p.Dead() && !others[pid] {
			found[pid] = p
		}
	}
	return found, spared
}

// below are processes and all that descend from them.
func below(pids []int, children map[int][]int) map[int]bool {
	known := map[int]bool{}
	for queue := slices.Clone(pids); len(queue) > 0; queue = queue[1:] {
		if pid := queue[0]; !known[pid] {
			known[pid] = true
			queue = append(queue, children[pid]...)
		}
	}
	return known
}

// Signal sends a signal ("SIGTERM") to every member, and reports whether there was one. Members that stand still are
// continued for it.
func (t *Tree) Signal(name string) bool {
	members, _ := t.members()
	for pid, p := range members {
		send(pid, p, unix.SignalNum(name))
		send(pid, p, unix.SIGCONT)
		t.told = append(t.told, pid)
	}
	return len(members) > 0
}

// Kill ends every member, and returns when none is left, or after patience: a process inside a driver that does not answer
// cannot be ended. Members are stopped first, until no new one appears: who forks all the time would otherwise get away.
func (t *Tree) Kill(patience time.Duration) error {
	defer t.buryEnded()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		known := map[int]sys.Process{}
		for range 50 {
			fresh := false
			members, spared := t.members()
			t.group.kill(spared)
			for pid, p := range members {
				if known[pid].Start != p.Start {
					fresh, known[pid] = true, p
					send(pid, p, unix.SIGSTOP)
				}
			}
			if !fresh {
				break
			}
		}
		if len(known) == 0 {
			return nil
		}
		for pid, p := range known {
			send(pid, p, unix.SIGKILL)
			t.told = append(t.told, pid)
		}
		if time.Now().After(end) {
			return fmt.Errorf("cannot end %d processes that the command left, %v among them: they do not die", len(known), t.Members())
		}
	}
}

// buryEnded buries at once what was told to end, as far as it is our child by now.
func (t *Tree) buryEnded() {
	for _, pid := range t.told {
		if p, ok := sys.ReadProcess(pid); ok && p.Parent == os.Getpid() && p.State == 'Z' && !t.awaited(pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
	t.told = nil
}

// send signals the process that was seen, whoever has its number now.
func send(pid int, seen sys.Process, sig unix.Signal) {
	_ = sys.Signal(pid, func() bool {
		now, ok := sys.ReadProcess(pid)
		return ok && now.Start == seen.Start
	}, sig)
}
