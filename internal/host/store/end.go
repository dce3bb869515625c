package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/sys"
)

// EndIfUnheld removes a lease if no process holds its lock, and else returns false; then record the holders with
// RecordHolders. Call it after the command has ended and the caller has closed its own descriptor of the lock.
func (f *Folder) EndIfUnheld(l job.Lease, boot string) (bool, error) {
	root, err := f.lockFolder()
	if err != nil {
		return false, err
	}

	defer f.unlockFolder(root)
	if alive, err := f.isLeaseAlive(root, &l); err != nil || alive {
		return false, err
	}

	return true, f.removeLease(root, l, boot)
}

// Release removes a lease even if a process still holds its lock: without its files, the lock protects nothing.
func (f *Folder) Release(l job.Lease, boot string) error {
	root, err := f.lockFolder()
	if err != nil {
		return err
	}
	defer f.unlockFolder(root)

	return f.removeLease(root, l, boot)
}

// folderName is the name of the folder in leases that has the lease, or will have it: the uid of the owner, except in a
// user namespace.
func folderName(l *job.Lease) string {
	if l.Folder == "" {
		return formatUID(l.UID)
	}
	return l.Folder
}

// folderOf is the path of the folder with the files of the lease.
func (f *Folder) folderOf(l *job.Lease) string { return filepath.Join(f.Path, "leases", folderName(l)) }

func (f *Folder) removeLease(root *sys.Dir, l job.Lease, boot string) error {
	removed, err := f.removePair(root, &l, entryNameOf(&l))
	if err != nil {
		return fmt.Errorf("cannot remove the lease %s: %w", l.ID, err)
	}

	if removed {
		f.ended = append(f.ended, EndedLease{l, time.Now(), true})
	}

	s, complete := f.readState(boot)
	if _, live := s.Live[leaseKey(&l)]; complete && !live {
		// Its end was recorded already.
		return nil
	}

	delete(s.Live, leaseKey(&l))
	s.recordEnd(l.Devices, bootTime())

	return f.writeState(s)
}

// removePair removes the two files of a lease, and reports whether they were there. It works by the folder's
// descriptor, because root does it in folders of other users: by path, a symbolic link could direct it elsewhere, such
// as to a live lease of a third user.
func (f *Folder) removePair(root *sys.Dir, l *job.Lease, name string) (removed bool, err error) {
	dir, err := f.openUser(root, "leases", folderName(l), l.UID)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}

	defer dir.Close() //nolint:errcheck // nothing is written through it

	for _, suffix := range []string{lockSuffix, jsonSuffix} {
		err := dir.Remove(name + suffix)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return removed, err
		}
		removed = removed || err == nil
	}

	return removed, nil
}

// maxHoldersNamed is how many holders a lease names at most, which keeps its content small.
const maxHoldersNamed = 32

// RecordHolders records the processes that still hold a lease after its command ended. It does not bring back a lease
// that is gone.
func (f *Folder) RecordHolders(l job.Lease, holders []job.Blocker) error {
	return f.updateEndedLease(l, func(l *job.Lease) bool {
		l.Ended, l.HeldBy, l.Kept = true, holders[:min(len(holders), maxHoldersNamed)], nil
		return true
	})
}

// updateEndedLease changes the content of a lease after its command ended, unless the lease is gone or belongs to
// another process by now.
func (f *Folder) updateEndedLease(l job.Lease, change func(*job.Lease) bool) error {
	root, err := f.lockFolder()
	if err != nil {
		return err
	}

	defer f.unlockFolder(root)
	if alive, err := f.isLeaseAlive(root, &l); err != nil || !alive {
		return err
	}

	if now, found := f.Own(l.ID); found {
		if now.PID != l.PID || now.Start != l.Start {
			// Entrusted to another process: that command has not ended.
			return nil
		}

		// Its quota may have changed since.
		l = now
	}

	if !change(&l) {
		return nil
	}
	if err := f.rewriteLease(root, l); err != nil {
		return fmt.Errorf("cannot note who still holds the lease %s: %w", l.ID, err)
	}

	return nil
}

// ErrReleased says that a lease is gone: another user may have its devices by now.
var ErrReleased = errors.New("the lease was released")

// TransferLease records that the lease belongs to process pid with that start time, and not to the process that claimed
// it, and that it ends within most from now (0: unknown). If the lease is gone, it stays gone and the error is
// ErrReleased.
func (f *Folder) TransferLease(l job.Lease, pid int, start uint64, most time.Duration) (job.Lease, error) {
	root, err := f.lockFolder()
	if err != nil {
		return l, err
	}

	defer f.unlockFolder(root)

	switch alive, err := f.isLeaseAlive(root, &l); {
	case err != nil:
		return l, err
	case !alive:
		return l, ErrReleased
	}

	l.PID, l.Start, l.Until = pid, start, 0
	if most > 0 {
		l.Until = bootTime() + int64(most)
	}

	if err := f.rewriteLease(root, l); err != nil {
		return l, fmt.Errorf("cannot note whose the lease %s is: %w", l.ID, err)
	}

	return l, nil
}

// rewriteLease replaces the content of a live lease. The folder lock is held.
func (f *Folder) rewriteLease(root *sys.Dir, l job.Lease) error {
	content, err := json.Marshal(l)
	if err != nil {
		return err
	}

	dir, err := f.openUser(root, "leases", folderName(&l), l.UID)
	if err != nil {
		return err
	}

	defer dir.Close() //nolint:errcheck // nothing is written through it

	return replaceFile(dir, entryNameOf(&l)+jsonSuffix, newPrefix+l.ID+jsonSuffix, append(content, '\n'))
}

// replaceFile replaces the content of a file in one step; fresh is the file's name until it is complete. The folder
// lock is held.
func replaceFile(dir *sys.Dir, name, fresh string, data []byte) error {
	// Left by a killed process.
	_ = dir.Remove(fresh)
	err := dir.Write(fresh, data, 0o644)
	if err != nil {
		return err
	}

	err = dir.Rename(fresh, name)
	if err != nil {
		_ = dir.Remove(fresh)
	}

	return err
}

// TouchLease renews the times of the lease's files, and those of the state folder if it still has the owner that was
// checked, so that systemd-tmpfiles does not remove them by their age in /var/tmp.
func (f *Folder) TouchLease(l job.Lease) {
	root, err := f.openFolder()
	if err != nil {
		return
	}

	defer root.Close() //nolint:errcheck // nothing is written through it
	if dir, err := f.openUser(root, "leases", folderName(&l), l.UID); err == nil {
		defer dir.Close() //nolint:errcheck // nothing is written through it
		touchFiles(dir, entryNameOf(&l)+lockSuffix, entryNameOf(&l)+jsonSuffix, measureName, ".")
	}

	if st, err := root.Status(); err == nil && st.Uid == f.Owner {
		touchFiles(root, append(partNames(), ".")...)
	}
}

func touchFiles(dir *sys.Dir, names ...string) {
	for _, n := range names {
		_ = dir.Touch(n)
	}
}

// FolderLockInode returns device and inode of the folder lock's file, to find the processes that hold it.
func (f *Folder) FolderLockInode() (dev, ino uint64, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(f.Path, "lock"), &st); err != nil {
		return 0, 0, err
	}
	return uint64(st.Dev), st.Ino, nil
}

// crowdThreshold is the number of folders in leases/ or tickets/ from which their owner is named: every claim reads
// them all under the folder lock.
const crowdThreshold = 10_000

// FindCrowdingUser names the user who slows down every claim by very many folders in leases/ or tickets/, where each
// user needs one. It returns the path of leases or tickets and the number of folders in it, 0 if no user does that.
func (f *Folder) FindCrowdingUser() (top string, uid uint32, n int) {
	for _, sub := range []string{"leases", "tickets"} {
		top = filepath.Join(f.Path, sub)
		uid, n = crowdingUserIn(top)
		if n > 0 {
			return top, uid, n
		}
	}
	return "", 0, 0
}

func crowdingUserIn(top string) (uid uint32, n int) {
	dir, err := os.Open(top)
	if err != nil {
		return 0, 0
	}

	defer dir.Close() //nolint:errcheck // read only
	names, _ := dir.Readdirnames(-1)
	if len(names) < crowdThreshold {
		return 0, 0
	}

	count := map[uint32]int{}
	for _, name := range names[:crowdThreshold] {
		// A sample is enough.
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			count[st.Uid]++
			if count[st.Uid] > n {
				uid, n = st.Uid, count[st.Uid]
			}
		}
	}

	if n < crowdThreshold/2 {
		return 0, 0
	}

	return uid, len(names)
}

// LeaseLockInode returns device and inode of a lease's lock file, to find the processes that hold it.
func (f *Folder) LeaseLockInode(l job.Lease) (dev, ino uint64, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(f.folderOf(&l), entryNameOf(&l)+lockSuffix), &st); err != nil {
		return 0, 0, err
	}
	return uint64(st.Dev), st.Ino, nil
}

// isLeaseAlive reports whether a process holds the lock of l. The folder lock is held.
func (f *Folder) isLeaseAlive(root *sys.Dir, l *job.Lease) (bool, error) {
	dir, err := f.openUser(root, "leases", folderName(l), l.UID)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}

	defer dir.Close() //nolint:errcheck // read only
	e, err := f.newReader().readLeasePair(int(dir.Fd()), dir.Name(), entryNameOf(l), l.UID, true)
	if e != nil {
		return e.alive, nil
	}

	return false, err
}

// lastName is the file in a user's lease folder with the devices of the previous claim. It decides only the order among
// equal devices.
const lastName = "last"

func (f *Folder) readLast(root *sys.Dir, folder string) []gpu.UUID {
	uid := uint32(os.Geteuid())
	data, err := f.newReader().readEntry(int(root.Fd()), "leases/"+folder+"/"+lastName, &uid)
	var ids []gpu.UUID
	if err != nil || json.Unmarshal(data, &ids) != nil {
		return nil
	}

	return ids
}

// writeLast writes the hint in place: a new file for each claim costs more than all else that a claim writes. What a
// killed process leaves half written cannot be read, and is no hint.
func writeLast(dir *sys.Dir, ids []gpu.UUID) {
	data, err := json.Marshal(ids)
	if err != nil {
		return
	}

	fd, err := dir.Open(lastName, unix.O_WRONLY|unix.O_NONBLOCK)
	if err != nil {
		_ = replaceFile(dir, lastName, newPrefix+lastName, data)
		return
	}

	defer unix.Close(fd) //nolint:errcheck // only a hint
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && int(st.Uid) == os.Geteuid() && st.Nlink == 1 {
		_, _ = unix.Pwrite(fd, data, 0)
		_ = unix.Ftruncate(fd, int64(len(data)))
	}
}

// Own finds a live lease of the caller by id.
func (f *Folder) Own(id string) (job.Lease, bool) {
	leases, _ := f.Leases()
	for _, l := range leases {
		if l.ID == id && l.UID == uint32(os.Geteuid()) && !l.Unreadable {
			return l, true
		}
	}
	return job.Lease{}, false
}

// DupLock returns a second descriptor of the lease's lock. It is closed on exec and ends with this process.
func (h *Held) DupLock() (*os.File, error) {
	fd, err := unix.FcntlInt(h.Lock.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("cannot keep the lease %s: %w", h.Lease.ID, err)
	}
	return os.NewFile(uintptr(fd), "lease"), nil //nolint:gosec // a descriptor
}
