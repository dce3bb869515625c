package store

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/host/sys"
)

// A lease ends for others when its lock is dropped, and its files are removed a moment later by the process that knows
// how it ended. A claim in between finds files without a lock, as after a kill -9. So that it leaves them to that
// process, the process holds a write lock on the content of the lease meanwhile. Other users cannot hold one: they
// cannot open the file for writing.

// AnnounceEnd says that this process is about to drop the lock of the lease and to call EndIfUnheld. Until done is
// called, or the process is gone, no claim removes the lease as one that was left behind.
func (f *Folder) AnnounceEnd(l job.Lease) (done func()) {
	root, err := f.openFolder()
	if err != nil {
		return func() {}
	}

	defer root.Close() //nolint:errcheck // nothing is written through it
	dir, err := f.openUser(root, "leases", folderName(&l), l.UID)
	if err != nil {
		return func() {}
	}

	defer dir.Close() //nolint:errcheck // nothing is written through it
	fd, err := dir.Open(entryNameOf(&l)+jsonSuffix, unix.O_RDWR)
	if err != nil {
		return func() {}
	}

	_ = holdEntry(uintptr(fd)) //nolint:gosec // a descriptor; if another process ends the lease, that one is left to it

	return func() { _ = unix.Close(fd) }
}

// removeDeadLease removes a lease whose holders are gone, unless another process is about to. The folder lock is held.
func (f *Folder) removeDeadLease(root *sys.Dir, e foundEntry) {
	content, left := f.readDeadLease(root, &e)
	if !left {
		return
	}

	// A file that remains is dead.
	removed, _ := f.removePair(root, &e.lease, e.name)
	if removed && decodeLease(content, &e.lease) == nil {
		f.ended = append(f.ended, EndedLease{e.lease, time.Now(), false})
	}
}

// readDeadLease reads the content of a dead lease, and reports whether nobody else removes it.
func (f *Folder) readDeadLease(root *sys.Dir, e *foundEntry) (content []byte, left bool) {
	dir, err := f.openUser(root, "leases", folderName(&e.lease), e.lease.UID)
	if err != nil {
		return nil, true
	}

	defer dir.Close() //nolint:errcheck // read only
	fd, err := f.newReader().openRegular(int(dir.Fd()), e.name+jsonSuffix, &e.lease.UID)
	if err != nil {
		return nil, true
	}

	file := os.NewFile(uintptr(fd), e.name) //nolint:gosec // a descriptor
	defer file.Close()                      //nolint:errcheck // read only
	if ending, err := isEntryLocked(fd); err == nil && ending {
		return nil, false
	}

	content, err = io.ReadAll(io.LimitReader(file, maxEntrySize))
	if err != nil {
		return nil, true
	}

	return content, true
}
