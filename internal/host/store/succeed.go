package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gpuard/internal/core/job"
)

// Succeed gives a live lease of the caller to another of the caller's processes: the same id and devices, and at no moment
// free for others, because nobody decides without the folder lock. heir gets the caller's live leases here and returns one
// of them as it shall be, nil for none, or one that is given back, with false: then the answer is nil.
//
// The lease gets a new lock file in place of the old one. Whoever had that locked holds a file without a name, which means
// nothing any more; they see it by its number of links. A process that is killed in here leaves the old lock, or none.
func (f *Folder) Succeed(boot string, heir func([]job.Lease) (l *job.Lease, take bool)) (*Held, error) {
	if err := f.acquire(); err != nil {
		return nil, err
	}
	defer f.lock.release()
	if err := anonymous(f.ids); err != nil {
		return nil, err
	}
	own, err := f.reader().all(f.Path)
	if err != nil {
		return nil, fmt.Errorf("cannot claim: the leases cannot be read: %w", err)
	}
	uid := uint32(os.Geteuid())
	l, take := heir(slices.DeleteFunc(live(own), func(l job.Lease) bool { return l.UID != uid || l.Unreadable }))
	switch {
	case l == nil:
		return nil, nil //nolint:nilnil // nothing to take over
	case !take: // not later: once the folder lock is gone, it may be somebody else's
		return nil, f.remove(*l, boot)
	}
	name := filepath.Join(f.folderOf(l), nameOf(l)+lockSuffix)
	fresh := filepath.Join(f.folderOf(l), newPrefix+l.ID+lockSuffix)
	_ = os.Remove(fresh) // of an earlier attempt that was killed
	lock, err := newLock(fresh, nil)
	if err == nil {
		if err = f.rewrite(*l); err == nil { // whoever holds the old lock still does
			err = os.Rename(fresh, name)
		}
		if err != nil {
			_ = os.Remove(fresh)
			_ = lock.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot take over the lease %s: %w", l.ID, err)
	}
	return &Held{Lease: *l, Lock: lock}, nil
}

// Await notes that the command of a lease is gone and that the lease is kept for a next start, until then at most. gone is asked
// under the folder lock whether the lease is somebody else's by now: its content may have been read when it was already.
func (f *Folder) Await(l job.Lease, until time.Time, gone func() bool) error {
	return f.mark(l, func(l *job.Lease) bool {
		if gone() || l.Kept == nil {
			return false
		}
		kept := *l.Kept
		kept.Until = until
		l.Ended, l.HeldBy, l.Kept = true, nil, &kept
		return true
	})
}
