package store

import (
	"fmt"
	"os"
	"slices"
	"time"

	"gpuard/internal/core/job"
	"gpuard/internal/host/sys"
)

// Succeed gives a live lease of the caller to another of the caller's processes: the same id and devices, and at no moment
// free for others, because nobody decides without the folder lock. heir gets the caller's live leases here and returns one
// of them as it shall be, nil for none, or one that is given back, with false: then the answer is nil.
//
// The lease gets a new lock file in place of the old one. Whoever had that locked holds a file without a name, which means
// nothing any more; they see it by its number of links. A process that is killed in here leaves the old lock, or none.
func (f *Folder) Succeed(boot string, heir func([]job.Lease) (l *job.Lease, take bool)) (*Held, error) {
	root, err := f.acquire()
	if err != nil {
		return nil, err
	}
	defer f.release(root)
	if err := anonymous(f.ids); err != nil {
		return nil, err
	}
	own, err := f.reader().all(root)
	if err != nil {
		return nil, fmt.Errorf("cannot claim: the leases cannot be read: %w", err)
	}
	uid := uint32(os.Geteuid())
	l, take := heir(slices.DeleteFunc(live(own), func(l job.Lease) bool { return l.UID != uid || l.Unreadable }))
	switch {
	case l == nil:
		return nil, nil //nolint:nilnil // nothing to take over
	case !take: // not later: once the folder lock is gone, it may be somebody else's
		return nil, f.remove(root, *l, boot)
	}
	lock, err := f.relock(root, *l)
	if err != nil {
		return nil, fmt.Errorf("cannot take over the lease %s: %w", l.ID, err)
	}
	return &Held{Lease: *l, Lock: lock}, nil
}

// relock writes a lease anew, with another lock file.
func (f *Folder) relock(root *sys.Dir, l job.Lease) (*os.File, error) {
	dir, err := f.openUser(root, "leases", folderName(&l), l.UID)
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // nothing is written through it
	fresh := newPrefix + l.ID + lockSuffix
	_ = dir.Remove(fresh) // of an earlier attempt that was killed
	lock, err := createLock(dir, fresh, nil)
	if err != nil {
		return nil, err
	}
	if err = f.rewriteLease(root, l); err == nil { // the old lock is still held
		err = dir.Rename(fresh, nameOf(&l)+lockSuffix)
	}
	if err != nil {
		_ = dir.Remove(fresh)
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
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
