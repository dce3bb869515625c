package projectdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/sys"
)

// Lock is held until it is released, or until every process that has File open has ended.
type Lock struct{ File *os.File }

// Release closes this process's descriptor of the lock.
func (l *Lock) Release() { _ = l.File.Close() }

// LockForEdit takes the lock for changes of the wanted state. Processes hold it only briefly; patience is how long to
// try.
func (f *Folder) LockForEdit(patience time.Duration) (*Lock, error) {
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		lock, err := lockPath(f.filePath(editLock))
		if lock != nil || err != nil {
			return lock, err
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("cannot change the project: another process has kept %s locked for more than %s; try again", f.filePath(editLock), patience)
		}
	}
}

// LockSupervisor takes the lock of the supervisor; nil if another process has it.
func (f *Folder) LockSupervisor() (*Lock, error) { return lockPath(f.filePath(supervisorLock)) }

// HasSupervisor reports whether a supervisor lives.
func (f *Folder) HasSupervisor() bool { return isLocked(f.filePath(supervisorLock)) }

// LockKeeper makes the folder of an instance and takes the lock of its keeper; nil if another process has it.
func (f *Folder) LockKeeper(instance string) (*Lock, error) {
	if filepath.Base(instance) != instance || instance == "." || instance == ".." {
		return nil, fmt.Errorf("cannot keep %q: that is no name of an instance", instance)
	}
	if err := makeMissingFolder(f.instancePath(instance, "")); err != nil {
		return nil, fmt.Errorf("cannot make the folder of %s: %w", instance, err)
	}
	if err := checkPrivate(filepath.Clean(f.instancePath(instance, ""))); err != nil {
		return nil, err
	}

	return lockPath(f.instancePath(instance, keeperLock))
}

// HasKeeper reports whether the keeper of an instance lives.
func (f *Folder) HasKeeper(instance string) bool {
	return isLocked(f.instancePath(instance, keeperLock))
}

// LockLife takes the lock that the command of an instance inherits; nil if an earlier command or one of its children
// has it. The caller holds the instance's lock (Keep).
func (f *Folder) LockLife(instance string) (*Lock, error) {
	return lockPath(f.instancePath(instance, lifeLock))
}

// IsAlive reports whether the command of an instance, or a process that it started, is alive.
func (f *Folder) IsAlive(instance string) bool { return isLocked(f.instancePath(instance, lifeLock)) }

// LifeLockInode returns device and inode of that lock's file, to find the processes that hold it.
func (f *Folder) LifeLockInode(instance string) (dev, ino uint64, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(f.instancePath(instance, lifeLock), &st); err != nil {
		return 0, 0, err
	}
	return uint64(st.Dev), st.Ino, nil
}

// IsInPlace reports whether the lock still protects something: its file still has its name.
func (l *Lock) IsInPlace() bool {
	var have, named unix.Stat_t
	return unix.Fstat(int(l.File.Fd()), &have) == nil && unix.Lstat(l.File.Name(), &named) == nil && have.Ino == named.Ino && have.Dev == named.Dev
}

// lockPath takes an open file description lock: it lasts until every duplicate of this descriptor is closed, whatever
// happens to other descriptors of the file. It returns nil if another process has the lock.
func lockPath(path string) (*Lock, error) {
	for range 8 {
		file, err := sys.OpenFile(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("cannot lock: %w", err)
		}

		lock := &Lock{file}
		err = lockRegular(file)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
			lock.Release()
			return nil, nil //nolint:nilnil // another process has it
		case err != nil:
			lock.Release()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		case lock.IsInPlace():
			return lock, nil
		}

		// It was replaced meanwhile.
		lock.Release()
	}
	return nil, fmt.Errorf("cannot lock %s: it is being replaced again and again", path)
}

func lockRegular(file *os.File) error {
	err := checkRegular(file)
	if err != nil {
		return err
	}

	return unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// isLocked reports whether a process has the lock. It takes no lock.
func isLocked(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}

	defer unix.Close(fd) //nolint:errcheck // read only
	q := unix.Flock_t{Type: unix.F_RDLCK}

	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &q) == nil && q.Type != unix.F_UNLCK
}
