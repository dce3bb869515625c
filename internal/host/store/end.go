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

// End is called after the command is gone and our own reference to the lock is closed. It removes the entry if
// nobody else holds it. Otherwise it returns false, and who may still hold it is for Mark.
func (f *Folder) End(l job.Lease, boot string) (bool, error) {
	root, err := f.acquire()
	if err != nil {
		return false, err
	}
	defer f.release(root)
	if alive, err := f.alive(root, &l); err != nil || alive {
		return false, err
	}
	return true, f.remove(root, l, boot)
}

// Release removes the entry whoever holds its lock: the files are gone, so the lock protects nothing any more.
func (f *Folder) Release(l job.Lease, boot string) error {
	root, err := f.acquire()
	if err != nil {
		return err
	}
	defer f.release(root)
	return f.remove(root, l, boot)
}

// folderName is the name of the folder in which a lease lies, or is about to. Only in a user namespace is that not its uid.
func folderName(l *job.Lease) string {
	if l.Folder == "" {
		return decimal(l.UID)
	}
	return l.Folder
}

// folderOf is where a lease lies.
func (f *Folder) folderOf(l *job.Lease) string { return filepath.Join(f.Path, "leases", folderName(l)) }

func (f *Folder) remove(root *sys.Dir, l job.Lease, boot string) error {
	if err := f.removePair(root, &l, nameOf(&l)); err != nil {
		return fmt.Errorf("cannot remove the lease %s: %w", l.ID, err)
	}
	s, complete := f.readState(boot)
	if _, live := s.Live[key(&l)]; complete && !live {
		return nil // its end was observed already
	}
	delete(s.Live, key(&l))
	s.ended(l.Devices, bootTime())
	return f.writeState(s)
}

// removePair works at the folder's descriptor: root does it in folders of others, who could otherwise lead it
// elsewhere by a symbolic link, such as to the live lease of a third.
func (f *Folder) removePair(root *sys.Dir, l *job.Lease, name string) error {
	dir, err := f.openUser(root, "leases", folderName(l), l.UID)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // nothing is written through it
	for _, suffix := range []string{lockSuffix, jsonSuffix} {
		if err := dir.Remove(name + suffix); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// holdersNamed keeps the content of a lease small; after that many, more names help nobody.
const holdersNamed = 32

// Mark writes who still holds a lease whose command is gone. An entry that has vanished meanwhile stays away.
func (f *Folder) Mark(l job.Lease, holders []job.Blocker) error {
	return f.mark(l, func(l *job.Lease) bool {
		l.Ended, l.HeldBy, l.Kept = true, holders[:min(len(holders), holdersNamed)], nil
		return true
	})
}

// mark changes the content of a lease whose command is gone, unless it is gone itself or is for another process by now.
func (f *Folder) mark(l job.Lease, change func(*job.Lease) bool) error {
	root, err := f.acquire()
	if err != nil {
		return err
	}
	defer f.release(root)
	if alive, err := f.alive(root, &l); err != nil || !alive {
		return err
	}
	if now, found := f.Own(l.ID); found {
		if now.PID != l.PID || now.Start != l.Start { // it was entrusted to another process: its command is not gone
			return nil
		}
		l = now // how hard its share is kept may have changed since
	}
	if !change(&l) {
		return nil
	}
	if err := f.rewriteLease(root, l); err != nil {
		return fmt.Errorf("cannot note who still holds the lease %s: %w", l.ID, err)
	}
	return nil
}

// ErrReleased says that a lease is not there any more: somebody else may have its devices by now.
var ErrReleased = errors.New("the lease was released")

// Entrust writes down that the lease is for another process than the one that claimed it, and for how long from now at most
// (0 is not known). An entry that has vanished meanwhile stays away: then the error is ErrReleased.
func (f *Folder) Entrust(l job.Lease, pid int, start uint64, most time.Duration) (job.Lease, error) {
	root, err := f.acquire()
	if err != nil {
		return l, err
	}
	defer f.release(root)
	switch alive, err := f.alive(root, &l); {
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
	return replace(dir, nameOf(&l)+jsonSuffix, newPrefix+l.ID+jsonSuffix, append(content, '\n'))
}

// replace writes a file anew in one step; fresh is its name until it is complete. The folder lock is held.
func replace(dir *sys.Dir, name, fresh string, data []byte) error {
	_ = dir.Remove(fresh) // of an earlier attempt that was killed
	err := dir.Write(fresh, data, 0o644)
	if err == nil {
		if err = dir.Rename(fresh, name); err != nil {
			_ = dir.Remove(fresh)
		}
	}
	return err
}

// Touch keeps the entry young where old files are swept (systemd-tmpfiles in /var/tmp).
func (f *Folder) Touch(l job.Lease) {
	root, err := f.open()
	if err != nil {
		return
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	if dir, err := f.openUser(root, "leases", folderName(&l), l.UID); err == nil {
		defer dir.Close() //nolint:errcheck // nothing is written through it
		touch(dir, nameOf(&l)+lockSuffix, nameOf(&l)+jsonSuffix, ".")
	}
	if st, err := root.Status(); err == nil && st.Uid == f.Owner {
		touch(root, append(inside(), ".")...)
	}
}

func touch(dir *sys.Dir, names ...string) {
	for _, n := range names {
		_ = dir.Touch(n)
	}
}

// Lock identifies the folder lock's file, to find who has it open.
func (f *Folder) Lock() (dev, ino uint64, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(f.Path, "lock"), &st); err != nil {
		return 0, 0, err
	}
	return uint64(st.Dev), st.Ino, nil
}

// crowd is how many strange folders are worth naming their owner: they are looked at under the lock.
const crowd = 10_000

// Crowd names the user who slows every claim down by very many folders in leases/ or tickets/, where one is their own, and
// which of the two it is; n is 0 when nobody does.
func (f *Folder) Crowd() (top string, uid uint32, n int) {
	for _, sub := range []string{"leases", "tickets"} {
		top = filepath.Join(f.Path, sub)
		if uid, n = crowdIn(top); n > 0 {
			return top, uid, n
		}
	}
	return "", 0, 0
}

func crowdIn(top string) (uid uint32, n int) {
	dir, err := os.Open(top)
	if err != nil {
		return 0, 0
	}
	defer dir.Close() //nolint:errcheck // read only
	names, _ := dir.Readdirnames(-1)
	if len(names) < crowd {
		return 0, 0
	}
	count := map[uint32]int{}
	for _, name := range names[:crowd] { // a sample is enough to find who
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			if count[st.Uid]++; count[st.Uid] > n {
				uid, n = st.Uid, count[st.Uid]
			}
		}
	}
	if n < crowd/2 {
		return 0, 0
	}
	return uid, len(names)
}

// LockFile identifies the file that carries a lease's life, to find who has it open.
func (f *Folder) LockFile(l job.Lease) (dev, ino uint64, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(f.folderOf(&l), nameOf(&l)+lockSuffix), &st); err != nil {
		return 0, 0, err
	}
	return uint64(st.Dev), st.Ino, nil
}

// alive asks for the lock of l. The folder lock is held.
func (f *Folder) alive(root *sys.Dir, l *job.Lease) (bool, error) {
	dir, err := f.openUser(root, "leases", folderName(l), l.UID)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer dir.Close() //nolint:errcheck // read only
	e, err := f.reader().one(int(dir.Fd()), dir.Name(), nameOf(l), l.UID)
	if e != nil {
		return e.alive, nil
	}
	return false, err
}

// last is the file in a user's lease folder that remembers the devices of the previous claim:
// the order among equals, nothing more.
const last = "last"

func (f *Folder) readLast(root *sys.Dir, folder string) []gpu.UUID {
	uid := uint32(os.Geteuid())
	data, err := f.reader().readEntry(int(root.Fd()), "leases/"+folder+"/"+last, &uid)
	var ids []gpu.UUID
	if err != nil || json.Unmarshal(data, &ids) != nil {
		return nil
	}
	return ids
}

func writeLast(dir *sys.Dir, ids []gpu.UUID) {
	if data, err := json.Marshal(ids); err == nil {
		_ = replace(dir, last, newPrefix+last, data) // only a hint
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

// Keep is a second reference to the lease, which no child inherits and which ends with this process.
func (h *Held) Keep() (*os.File, error) {
	fd, err := unix.FcntlInt(h.Lock.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("cannot keep the lease %s: %w", h.Lease.ID, err)
	}
	return os.NewFile(uintptr(fd), "lease"), nil //nolint:gosec // a descriptor
}
