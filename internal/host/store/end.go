package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// End is called after the command is gone and our own reference to the lock is closed. It removes the entry if
// nobody else holds it. Otherwise it returns false, and who may still hold it is for Mark.
func (f *Folder) End(l job.Lease, boot string) (bool, error) {
	if err := f.lock.acquire(f.Deadline); err != nil {
		return false, err
	}
	defer f.lock.release()
	dir := f.userFolder(l.UID)
	if alive, err := aliveAt(filepath.Join(dir, nameOf(&l)+lockSuffix)); err != nil || alive {
		return false, err
	}
	return true, f.remove(dir, l, boot)
}

// Release removes the entry whoever holds its lock: the files are gone, so the lock protects nothing any more.
func (f *Folder) Release(l job.Lease, boot string) error {
	if err := f.lock.acquire(f.Deadline); err != nil {
		return err
	}
	defer f.lock.release()
	return f.remove(f.userFolder(l.UID), l, boot)
}

func (f *Folder) userFolder(uid uint32) string {
	return filepath.Join(f.Path, "leases", strconv.FormatUint(uint64(uid), 10))
}

func (f *Folder) remove(dir string, l job.Lease, boot string) error {
	name := nameOf(&l)
	for _, suffix := range []string{lockSuffix, jsonSuffix} {
		if err := os.Remove(filepath.Join(dir, name+suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot remove the lease %s: %w", l.ID, err)
		}
	}
	s, _ := f.readState(boot)
	delete(s.Live, key(&l))
	s.Generation++
	now := bootTime()
	for _, d := range l.Devices {
		s.Devices[d] = Change{Generation: s.Generation, Ended: now}
	}
	return f.writeState(s)
}

// Mark writes who still holds a lease whose command is gone. An entry that has vanished meanwhile stays away.
func (f *Folder) Mark(l job.Lease, holders []job.Blocker) error {
	if err := f.lock.acquire(f.Deadline); err != nil {
		return err
	}
	defer f.lock.release()
	dir := f.userFolder(l.UID)
	if alive, err := aliveAt(filepath.Join(dir, nameOf(&l)+lockSuffix)); err != nil || !alive {
		return err
	}
	l.Ended, l.HeldBy = true, holders
	content, err := json.Marshal(l)
	if err != nil {
		return err
	}
	fresh := filepath.Join(dir, newPrefix+l.ID+jsonSuffix)
	if err := writeNew(fresh, append(content, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(dir, nameOf(&l)+jsonSuffix))
}

// Touch keeps the entry young where old files are swept (systemd-tmpfiles in /var/tmp).
func (f *Folder) Touch(l job.Lease) {
	dir := f.userFolder(l.UID)
	now := unix.NsecToTimespec(time.Now().UnixNano())
	for _, p := range []string{
		filepath.Join(dir, nameOf(&l)+lockSuffix), filepath.Join(dir, nameOf(&l)+jsonSuffix), dir,
		filepath.Join(f.Path, "lock"), filepath.Join(f.Path, "format"),
	} {
		_ = unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{now, now}, unix.AT_SYMLINK_NOFOLLOW)
	}
}

// LockFile identifies the file that carries a lease's life, to find who has it open.
func (f *Folder) LockFile(l job.Lease) (dev, ino uint64, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(f.userFolder(l.UID), nameOf(&l)+lockSuffix), &st); err != nil {
		return 0, 0, err
	}
	return uint64(st.Dev), st.Ino, nil
}

func aliveAt(path string) (bool, error) {
	fd, err := openRegular(unix.AT_FDCWD, path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(fd) //nolint:errcheck // read only
	return held(fd)
}

// last is the file in a user's lease folder that remembers the devices of the previous claim:
// the order among equals, nothing more.
const last = "last"

func readLast(dir string) []gpu.UUID {
	uid := uint32(os.Geteuid())
	data, err := readEntry(unix.AT_FDCWD, filepath.Join(dir, last), &uid)
	var ids []gpu.UUID
	if err != nil || json.Unmarshal(data, &ids) != nil {
		return nil
	}
	return ids
}

func writeLast(dir string, ids []gpu.UUID) {
	data, err := json.Marshal(ids)
	if err != nil {
		return
	}
	fresh := filepath.Join(dir, newPrefix+last)
	_ = os.Remove(fresh)
	if writeNew(fresh, data, 0o644) == nil {
		_ = os.Rename(fresh, filepath.Join(dir, last))
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
