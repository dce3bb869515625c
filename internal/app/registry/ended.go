package registry

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/store"
)

// NoticeTimeout is how long the end of a command may take to become the end of its lease: the holder has to notice it.
const NoticeTimeout = time.Second

// IsCommandGone reports whether the command has ended and nothing is recorded yet that still holds the lease.
func IsCommandGone(host *machine.Host, l job.Lease) bool {
	return !l.Ended && !l.Unreadable && !IsCommandAlive(host, l)
}

// FindUnattended finds the processes that keep a lease whose command is gone, if its holder cannot record them: the
// holder was killed or is stopped, or a supervising gpuard was killed before it recorded the PID of the command. A
// process with the command's name counts as the command, because it could be. A stopped holder counts only if late: it
// may be continued soon.
func FindUnattended(host *machine.Host, folder *store.Folder, l job.Lease, late bool) job.Lease {
	if l.Namespace != host.Proc.PIDNamespace() {
		return withoutProof(l)
	}
	if !IsCommandGone(host, l) {
		return l
	}

	dev, ino, err := folder.LeaseLockInode(l)
	if err != nil {
		return l
	}

	holders := host.Proc.LockHolders(dev, ino)
	if len(holders) == 0 && late {
		holders = stoppedHolder(host, folder, l)
	}

	helper := func(stopped bool) bool {
		return slices.ContainsFunc(holders, func(b job.Blocker) bool { return b.Stopped == stopped && machine.IsOwnHelper(b.PID) })
	}

	if stopped := helper(true); len(holders) == 0 || stopped && !late || helper(false) && !stopped {
		// Not ours to see, or its holder will say it.
		return l
	}

	holders = withoutEnding(host, holders, late)
	if len(holders) == 0 {
		return l
	}

	for i := range holders {
		holders[i].Command = machine.BaseName(strings.Fields(holders[i].Command))
	}

	if i := slices.IndexFunc(holders, func(b job.Blocker) bool { return b.Command == l.Command }); i >= 0 {
		l.PID, l.Start = holders[i].PID, holders[i].Start
		return l
	}

	l.Ended, l.HeldBy = true, holders

	return l
}

// withoutEnding leaves out processes on their way out, such as a holder that has done its work, which has no command
// line any more by which it is one. If it is late, such a process may hang there, in a driver that does not let go: one
// that is still there after mostExit stays in the list.
func withoutEnding(host *machine.Host, holders []job.Blocker, late bool) []job.Blocker {
	isEnding := func(b job.Blocker) bool { return host.Proc.IsEnding(b.PID, b.Start) }
	if !late {
		return slices.DeleteFunc(holders, isEnding)
	}

	for end := time.Now().Add(mostExit); slices.ContainsFunc(holders, isEnding) && time.Now().Before(end); time.Sleep(mostExit / 50) {
		holders = slices.DeleteFunc(holders, func(b job.Blocker) bool { return !host.Proc.IsAlive(b.PID, b.Start) })
	}

	return holders
}

// mostExit is how long the kernel may take to end a process that holds no device.
const mostExit = time.Second

// withoutProof forgets which processes that keep a lease are stopped, and when they began: in another PID namespace
// their numbers are those of other processes here, and no advice may name them.
func withoutProof(l job.Lease) job.Lease {
	l.HeldBy = slices.Clone(l.HeldBy)
	for i := range l.HeldBy {
		l.HeldBy[i].Stopped, l.HeldBy[i].Start = false, 0
	}
	return l
}

// stoppedHolder finds the holder of another user's lease by its command line, because the open files of that user's
// processes are hidden. Only processes of that user count.
func stoppedHolder(host *machine.Host, folder *store.Folder, l job.Lease) []job.Blocker {
	for _, pid := range host.Proc.ProcessesOfUser(l.UID) {
		if words := proc.New("/proc").Arguments(pid); len(words) < 6 || words[1] != launch.HolderFlag || words[4] != folder.Path || words[5] != l.ID {
			continue
		}
		if p := host.Proc.DescribeProcess(pid); p.Stopped {
			return []job.Blocker{p}
		}
	}
	return nil
}

// MarkUnattended says of each lease whether it is unattended.
func MarkUnattended(host *machine.Host, folder *store.Folder, held []job.Lease, late bool) {
	for i := range held {
		held[i] = FindUnattended(host, folder, held[i], late)
	}
}

// OwnerNames maps the owners of the leases to their names.
func OwnerNames(host *machine.Host, held []job.Lease) map[uint32]string {
	names := map[uint32]string{}
	for _, l := range held {
		if _, known := names[l.UID]; !known {
			names[l.UID] = host.Names(l.UID)
		}
	}
	return names
}

// NameLockHolder adds the process that has the folder lock to the error. Package store knows only its PID.
func NameLockHolder(host *machine.Host, folder *store.Folder, err error) error {
	var locked *store.LockedError
	if !errors.As(err, &locked) {
		return err
	}
	if top, uid, n := folder.FindCrowdingUser(); n > 0 {
		return fmt.Errorf("%w; %s has put %d folders there that are read at each claim: sudo find %s -mindepth 1 -maxdepth 1 -user %s -delete",
			locked, host.Names(uid), n, top, host.Names(uid))
	}

	switch dev, ino, serr := folder.FolderLockInode(); {
	case locked.PID != 0:
		p := host.Proc.DescribeProcess(locked.PID)
		if p.Stopped {
			return fmt.Errorf("%w: it is %s's %s, which is stopped; continue it (kill -CONT %d) or ask its owner, then try again", locked, p.User, p.Command, p.PID)
		}
		return fmt.Errorf("%w: it is %s's %s; end it (kill %d) or ask its owner, then try again", locked, p.User, p.Command, p.PID)
	case locked.Hidden && serr == nil:
		for _, p := range host.Proc.LockHolders(dev, ino) {
			if p.PID != os.Getpid() {
				return fmt.Errorf("%w; %s's %s (process %d) holds it", locked, p.User, p.Command, p.PID)
			}
		}
	}

	return err
}

// NoteHolders records the processes that hold a lease whose command is gone, except process but, which is about to
// release it. Where none does any more, it ends the lease.
func NoteHolders(processes proc.FS, folder *store.Folder, lease job.Lease, but int) error {
	dev, ino, err := folder.LeaseLockInode(lease)
	if err != nil {
		return err
	}

	holders := []job.Blocker{}
	for _, b := range processes.LockHolders(dev, ino) {
		if b.PID != but {
			// All users can read a lease: only names of commands, no arguments.
			b.Command = machine.BaseName(strings.Fields(b.Command))
			holders = append(holders, b)
		}
	}

	if len(holders) > 0 {
		err = folder.RecordHolders(lease, holders)
	}

	if err != nil {
		return err
	}

	// a process that was just being created had it for a moment
	_, err = folder.EndIfUnheld(lease, lease.Boot)

	return err
}
