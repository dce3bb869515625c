package leases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	enginecli "gpuard/internal/core/container"
	"gpuard/internal/core/job"
	"gpuard/internal/core/leftover"
	"gpuard/internal/core/prose"
	"gpuard/internal/host/store"
)

// FindToCancel finds a lease of the caller whose command can be ended. It refuses a lease whose command is not the
// caller's, not gpuard's to end, or not known.
func FindToCancel(ctx context.Context, host *machine.Host, id string) (l job.Lease, found bool, err error) {
	for end := time.Now().Add(mostStart); ; time.Sleep(10 * time.Millisecond) {
		folder, l, err := openLease(ctx, host, id)
		if folder == nil {
			return l, false, err
		}

		_ = folder.Close()
		if isStarting(l) && time.Now().Before(end) {
			continue
		}
		if err := checkCancel(host, l); err != nil {
			return l, true, fmt.Errorf("cannot cancel %s: %w", l.ID, err)
		}

		return l, true, nil
	}
}

// mostStart is how long a runner of a queue or a sweep may take from the claim to the start of the command.
const mostStart = 2 * time.Second

// isStarting reports whether the runner of a queue or a sweep has a lease still, for a command that it is about to
// start.
func isStarting(l job.Lease) bool { return !l.Apart && machine.IsOwnHelper(l.PID) }

// checkCancel is an error for a lease whose command is not the caller's, not gpuard's to end, or not known.
func checkCancel(host *machine.Host, l job.Lease) error {
	switch {
	case l.UID != uint32(os.Geteuid()): //nolint:gosec // a uid
		return fmt.Errorf("it belongs to %s; ask them, or act as them: sudo -u %[1]s gpuard cancel %[2]s", host.Names(l.UID), l.ID)
	case l.Unreadable:
		return fmt.Errorf("its content cannot be read, so its command is not known; gpuard release %s says who holds it", l.ID)
	case l.IsReservation():
		return nil
	case l.Apart:
		return fmt.Errorf("process %d, which it is for, was not started by gpuard; to give the lease back: gpuard release %s", l.PID, l.ID)
	case l.Namespace != host.Proc.PIDNamespace():
		return fmt.Errorf("its command %s runs in another PID namespace; end it there", prose.Clean(l.Command))
	case !registry.IsCommandAlive(host, l):
		return fmt.Errorf("its command %s has ended; to give back what still holds it: gpuard release %s", prose.Clean(l.Command), l.ID)
	case host.Proc.IsNested(l.PID):
		return fmt.Errorf("its process %d runs in another PID namespace; end its container, such as by docker stop", l.PID)
	case isStarting(l):
		return errors.New("its command is just being started; try again")
	case slices.Contains(host.Proc.ProcessTree(l.PID), os.Getpid()):
		return fmt.Errorf("its command %s (process %d) has started this; leave it, such as by exit", prose.Clean(l.Command), l.PID)
	}

	_, inSweep := host.AwaitEnviron(l.PID).Lookup(machine.SweepFolder)
	if inSweep {
		return errors.New("it is of a run of a sweep, which would be started again; end the sweep: Ctrl-C where it was started")
	}

	words := host.Proc.Arguments(l.PID)
	if len(words) > 0 && enginecli.EngineOf(words[0]) != "" {
		return fmt.Errorf("its command is %s, and its container may go on without that; end the container: %[1]s stop CONTAINER", enginecli.EngineOf(words[0]))
	}

	return nil
}

// Cancel asks the command of a lease that FindToCancel has found to end, and all that have the lease with it; with kill
// it does not ask. It returns when they are gone, or after so long with an error that names those that are left.
func Cancel(ctx context.Context, host *machine.Host, l job.Lease, kill bool, patience time.Duration) error {
	if l.IsReservation() {
		_, err := Release(ctx, host, l.ID)
		return err
	}

	folder, now, err := openLease(ctx, host, l.ID)
	if err != nil || folder == nil {
		return err
	}

	defer folder.Close() //nolint:errcheck // only read

	// The lease may have ended, and its name been given again.
	if now.SinceBoot != l.SinceBoot {
		return nil
	}

	targets := openMembers(host, folder, l)
	defer func() {
		for _, t := range targets {
			t.close()
		}
	}()

	// gpuard has the lease still, and is about to become the command, or to start it.
	if len(targets) == 0 && host.Proc.IsAlive(l.PID, l.Start) {
		return fmt.Errorf("cannot cancel %s: its command is just being started; try again", l.ID)
	}

	// What is ended through the gpuard beside it is not started again.
	supervisor := supervisorOf(host, l)
	if supervisor != nil {
		defer supervisor.close()
		supervisor.sendSignal(syscall.SIGTERM)
		if kill {
			awaitGone(ctx, host, targets, passOnTimeout)
		}
	}

	for _, t := range targets {
		switch {
		case kill:
			t.sendSignal(syscall.SIGKILL)
		case supervisor == nil || t.row.PID != l.PID:
			t.sendSignal(syscall.SIGTERM)
		}

		// One that is stopped would not hear of it.
		t.sendSignal(syscall.SIGCONT)
	}

	awaitGone(ctx, host, targets, patience)
	left := nameLeft(targets)
	switch {
	case left == "":
		return nil
	case kill:
		return fmt.Errorf("cannot cancel %s: %s was killed and is still there: it waits in the kernel, probably for the driver", l.ID, left)
	}

	return fmt.Errorf("cannot cancel %s: %s was asked to end and still runs after %s; to kill it: gpuard cancel --now %[1]s", l.ID, left, patience)
}

// nameLeft names the processes that are still there; "" for none.
func nameLeft(targets []*evictee) string {
	var left []string
	for _, t := range targets {
		if !t.gone {
			left = append(left, fmt.Sprintf("PID %d (%s)", t.row.PID, prose.Brief(t.row.Command)))
		}
	}
	return strings.Join(left, ", ")
}

// passOnTimeout is how long a gpuard that stays beside a command may take to hear a signal and pass it on.
const passOnTimeout = 500 * time.Millisecond

// openMembers opens the command of a lease and the processes that have its lock, but gpuard's own helpers.
func openMembers(host *machine.Host, folder *store.Folder, l job.Lease) (targets []*evictee) {
	members := []job.Blocker{{PID: l.PID, Start: l.Start, Command: l.Command}}
	if dev, ino, err := folder.LeaseLockInode(l); err == nil {
		members = append(members, host.Proc.LockHolders(dev, ino)...)
	}

	for i, m := range members {
		known := slices.ContainsFunc(members[:i], func(b job.Blocker) bool { return b.PID == m.PID })
		if known || m.PID == os.Getpid() || machine.IsOwnHelper(m.PID) || isSupervisor(host, m.PID) {
			continue
		}
		if t := openOwnProcess(host, m.PID, m.Start); t != nil {
			t.row.Command = m.Command
			targets = append(targets, t)
		}
	}

	return targets
}

// openOwnProcess opens a process of the caller; nil where it is gone, another user's, or not the one that a signal
// would reach.
func openOwnProcess(host *machine.Host, pid int, start uint64) *evictee {
	pidfd, err := openProcess(host, pid, start, uint32(os.Geteuid())) //nolint:gosec // a uid
	if err != nil {
		return nil
	}
	return &evictee{row: leftover.Row{PID: pid, Start: start}, pidfd: pidfd}
}

// supervisorOf is the gpuard run that stays beside the command of a lease; nil for none.
func supervisorOf(host *machine.Host, l job.Lease) *evictee {
	command, err := host.Proc.Stat(l.PID)
	if err != nil || command.Start != l.Start || !isSupervisor(host, command.PPID) {
		return nil
	}

	parent, err := host.Proc.Stat(command.PPID)
	if err != nil {
		return nil
	}

	return openOwnProcess(host, command.PPID, parent.Start)
}

// isSupervisor reports whether a process is this program, called to run a command.
func isSupervisor(host *machine.Host, pid int) bool {
	own, err := os.Stat("/proc/self/exe")
	other, wrong := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || wrong != nil || !os.SameFile(own, other) {
		return false
	}

	words := host.Proc.Arguments(pid)
	if end := slices.Index(words, "--"); end > 0 {
		words = words[:end]
	}

	return len(words) > 1 && slices.ContainsFunc(words[1:], func(word string) bool { return word == "run" || enginecli.EngineOf(word) != "" })
}
