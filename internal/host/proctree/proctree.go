// Package proctree finds, reaps and ends the descendants of this process, also those that left their parent, process
// group and session. It signals only processes of this tree, by pidfd; it does not know what they are for.
//
//	t := tree.Adopt(awaited, spare, nil)
//	group := t.NewGroup() // start the command in it
//	err := t.End(ctx, "SIGTERM", 5*time.Second)
//	t.StopReaping()
package proctree

import (
	"context"
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

// Tree is all descendants of this process, without those that are spared.
type Tree struct {
	awaited, spare func(pid int) bool
	keeps          func(pid int) bool // nil: none
	// Children from before AdoptOrphans, with their start: another program started them.
	before map[int]uint64
	stop   chan struct{}
	done   sync.WaitGroup
	// PIDs that were signalled to end.
	told  []int
	group *cgroup
	// Number of calls of NewGroup.
	groups int
}

// reapDelay is how long an orphan stays a zombie. os/exec reaps its own children within that time. This package cannot
// distinguish those from orphans, and if it reaps one first, its starter gets an error.
const reapDelay = 300 * time.Millisecond

// AdoptOrphans makes this process the parent of its orphaned descendants (PR_SET_CHILD_SUBREAPER(2const)), and reaps
// them when they end, except for those for which awaited is true: the caller waits for them. Processes for which spare
// is true, and their descendants, are not part of the tree. Neither are the children that this process has already: a
// script may have started them before it became this program (exec). The processes in its cgroup are part of the tree,
// see NewGroup. A child for which keeps is true ends its own descendants when it is asked to: Signal leaves them to it.
func AdoptOrphans(awaited, spare, keeps func(pid int) bool) *Tree {
	t := &Tree{awaited: awaited, spare: spare, keeps: keeps, before: map[int]uint64{}, stop: make(chan struct{})}
	if !hasNoChild() {
		for pid, p := range sys.ReadProcesses() {
			if p.Parent == os.Getpid() {
				t.before[pid] = p.Start
			}
		}
	}

	// Before Linux 3.4 orphans are init's.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	t.done.Go(t.reapOrphans)

	return t
}

// NewGroup returns the open folder of a new cgroup for the next command; nil if none can be made. It makes a new one
// each time: after cgroup.killMembers, a cgroup may also end what is started in it later (seen with Linux 6.18).
func (t *Tree) NewGroup() *os.File {
	t.group.emptyAndRemove()
	t.groups++
	t.group = newCgroup(t.groups)
	if t.group == nil {
		return nil
	}

	return t.group.file
}

// StopReaping reaps the processes that have ended, and stops reaping. The remaining descendants become children of init
// when this process ends.
func (t *Tree) StopReaping() {
	close(t.stop)
	t.done.Wait()
	t.group.emptyAndRemove()

	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// reapOrphans reaps orphans that have ended.
func (t *Tree) reapOrphans() {
	tick := time.NewTicker(reapDelay)
	defer tick.Stop()
	var before []int
	for {
		select {
		case <-t.stop:
			return
		case <-tick.C:
		}

		if !hasEndedChild() {
			before = nil
			continue
		}

		var ended []int
		for pid, p := range sys.ReadProcesses() {
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

// hasEndedChild reports whether a child has ended. Unlike a list of all processes, this costs next to nothing.
func hasEndedChild() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo == int32(unix.SIGCHLD)
}

// hasNoChild reports whether this process has no child. That is the usual case, and saves reading all processes.
func hasNoChild() bool {
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil), unix.ECHILD)
}

// Members lists the living processes below this one and in its cgroup, in order of PID.
func (t *Tree) Members() []int {
	members, _ := t.membersAndSpared()
	return slices.Sorted(maps.Keys(members))
}

// membersAndSpared returns the living members, and the processes of the cgroup that are spared.
func (t *Tree) membersAndSpared() (found map[int]sys.Process, spared []int) {
	all := sys.ReadProcesses()
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

	others := withDescendants(aside, children)
	for _, pid := range t.group.listMembers() {
		switch _, listed := all[pid]; {
		case others[pid]:
			spared = append(spared, pid)
		case listed && pid != os.Getpid():
			roots = append(roots, pid)
		}
	}

	found = map[int]sys.Process{}
	for pid := range withDescendants(roots, children) {
		if p := all[pid]; !p.IsDead() && !others[pid] {
			found[pid] = p
		}
	}

	return found, spared
}

// withDescendants returns pids and all their descendants.
func withDescendants(pids []int, children map[int][]int) map[int]bool {
	known := map[int]bool{}
	for queue := slices.Clone(pids); len(queue) > 0; queue = queue[1:] {
		if pid := queue[0]; !known[pid] {
			known[pid] = true
			queue = append(queue, children[pid]...)
		}
	}
	return known
}

// SignalAll sends a signal ("SIGTERM") to every member that is not below a keeper, and reports whether there was a
// member. It also continues stopped members, so that they receive it.
func (t *Tree) SignalAll(name string) bool {
	members, _ := t.membersAndSpared()
	kept := t.belowKeepers(members)
	for pid, p := range members {
		if kept[pid] {
			continue
		}
		signalProcess(pid, p, unix.SignalNum(name))
		signalProcess(pid, p, unix.SIGCONT)
		t.told = append(t.told, pid)
	}

	return len(members) > 0
}

// belowKeepers are the members below a child that keeps them.
func (t *Tree) belowKeepers(members map[int]sys.Process) map[int]bool {
	if t.keeps == nil {
		return nil
	}

	children, keepers := map[int][]int{}, []int{}
	for pid, p := range members {
		children[p.Parent] = append(children[p.Parent], pid)
		if p.Parent == os.Getpid() && t.keeps(pid) {
			keepers = append(keepers, pid)
		}
	}

	kept := withDescendants(keepers, children)
	for _, pid := range keepers {
		delete(kept, pid)
	}

	return kept
}

// End asks every member to end ("SIGTERM"), and kills those that are left when ctx ends. It returns when there are no
// more, or with an error as Kill.
func (t *Tree) End(ctx context.Context, signal string, patience time.Duration) error {
	if ctx.Err() == nil && t.SignalAll(signal) {
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil && len(t.Members()) > 0; {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}
	return t.Kill(patience)
}

// Kill kills every member. It returns when there are no more, or with an error after patience: a process in a driver
// that does not answer cannot be ended. Kill stops the members first, until no new one appears, because a process that
// forks all the time would get away otherwise.
func (t *Tree) Kill(patience time.Duration) error {
	defer t.reapSignalled()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		known := map[int]sys.Process{}
		for range 50 {
			fresh := false
			members, spared := t.membersAndSpared()
			t.group.killMembers(spared)

			for pid, p := range members {
				if known[pid].Start != p.Start {
					fresh, known[pid] = true, p
					if !isBeingStarted(p) {
						signalProcess(pid, p, unix.SIGSTOP)
					}
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
			signalProcess(pid, p, unix.SIGKILL)
			t.told = append(t.told, pid)
		}

		if time.Now().After(end) {
			return fmt.Errorf("cannot end %d processes that the command left, %v among them: they do not die", len(known), t.Members())
		}
	}
}

// isBeingStarted reports whether a process is a child of this one that is not another program yet: until then the thread that
// starts it stands still (vfork(2)), and no collection of garbage can begin or end without that thread. Stopped, it would
// stop this process for ever, before it can kill the child.
func isBeingStarted(p sys.Process) bool {
	if !p.Forked || p.Parent != os.Getpid() {
		return false
	}

	// An orphan of the command may never become another program either, and starts more of its kind.
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
	own, err2 := os.Readlink("/proc/self/exe")

	return err == nil && err2 == nil && program == own
}

// reapSignalled reaps, without the delay of bury, the processes that were signalled to end and are children of this one
// by now.
func (t *Tree) reapSignalled() {
	for _, pid := range t.told {
		if p, ok := sys.ReadProcess(pid); ok && p.Parent == os.Getpid() && p.State == 'Z' && !t.awaited(pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
	t.told = nil
}

// signalProcess signals the process seen, and not another one that has its PID by now.
func signalProcess(pid int, seen sys.Process, sig unix.Signal) {
	_ = sys.SendSignals(pid, func() bool {
		now, ok := sys.ReadProcess(pid)
		return ok && now.Start == seen.Start
	}, sig)
}
