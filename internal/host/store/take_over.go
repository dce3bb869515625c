package store

import (
	"fmt"
	"os"
	"slices"
	"time"

	"gpuard/internal/core/job"
	"gpuard/internal/host/sys"
)

// TakeOverLease lets this process take over a live lease of the same user. The lease keeps its id and devices, and is
// never free in between, because no process decides without the folder lock. heir gets the user's live leases in this
// folder. It returns the one to take over with its new content; nil for none; or one to release and false. In the last
// two cases TakeOverLease returns nil.
//
// The lease gets a new lock file in place of the old one. A process that holds the old one has a file without a name,
// which keeps nothing alive; it notices by the number of links. If this process is killed in TakeOverLease, the old
// lock remains in place, or the new one without a holder.
func (f *Folder) TakeOverLease(boot string, heir func([]job.Lease) (l *job.Lease, take bool)) (*Held, error) {
	root, err := f.lockFolder()
	if err != nil {
		return nil, err
	}

	defer f.unlockFolder(root)
	if err := checkUserKnown(f.ids); err != nil {
		return nil, err
	}

	own, err := f.newReader().readAllEntries(root)
	if err != nil {
		return nil, fmt.Errorf("cannot claim: the leases cannot be read: %w", err)
	}

	uid := uint32(os.Geteuid())
	l, take := heir(slices.DeleteFunc(liveLeases(own), func(l job.Lease) bool { return l.UID != uid || l.Unreadable }))
	switch {
	case l == nil:
		return nil, nil //nolint:nilnil // nothing to take over
	case !take:
		// Not later: after the folder lock is released, another process may take it over.
		return nil, f.removeLease(root, *l, boot)
	}

	lock, err := f.replaceLock(root, *l)
	if err != nil {
		return nil, fmt.Errorf("cannot take over the lease %s: %w", l.ID, err)
	}

	return &Held{Lease: *l, Lock: lock}, nil
}

// replaceLock writes the new content of a lease and gives it a new lock file.
func (f *Folder) replaceLock(root *sys.Dir, l job.Lease) (*os.File, error) {
	dir, err := f.openUser(root, "leases", folderName(&l), l.UID)
	if err != nil {
		return nil, err
	}

	defer dir.Close() //nolint:errcheck // nothing is written through it
	fresh := newPrefix + l.ID + lockSuffix

	// Left by a killed process.
	_ = dir.Remove(fresh)
	lock, err := createLock(dir, fresh, nil)
	if err != nil {
		return nil, err
	}

	err = f.rewriteLease(root, l)
	if err == nil {
		// The old lock is still held.
		err = dir.Rename(fresh, entryNameOf(&l)+lockSuffix)
	}

	if err != nil {
		_ = dir.Remove(fresh)
		_ = lock.Close()
		return nil, err
	}

	return lock, nil
}

// KeepForNextStart records that the command of a lease ended and that the lease is kept for a next start, no longer
// than until. gone is called under the folder lock and reports whether another process has taken the lease over: the
// comparison in mark misses that if l was read after it.
func (f *Folder) KeepForNextStart(l job.Lease, until time.Time, gone func() bool) error {
	return f.updateEndedLease(l, func(l *job.Lease) bool {
		if gone() || l.Kept == nil {
			return false
		}

		kept := *l.Kept
		kept.Until = until
		l.Ended, l.HeldBy, l.Kept = true, nil, &kept

		return true
	})
}
