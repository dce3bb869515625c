package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/sys"
)

// folderLock is a POSIX record lock: F_GETLK names its holder, also one of another user, and children do not inherit
// it. Closing any descriptor of the file drops such a lock, so a process has one descriptor, used by one goroutine at a
// time.
type folderLock struct {
	folder string // that contains it
	path   string
	owner  uint32
	file   atomic.Pointer[lockFile]
	// Has one token; the goroutine that took it may use the lock.
	turn chan struct{}
	// This process ignores Ctrl-Z while the lock is held; used only with the token.
	deaf bool
	// Ran past its deadline and may still be granted; used only with the token.
	late *lockWait
}

// lockFile is the open lock file with its device and inode.
type lockFile struct {
	*os.File
	dev, ino uint64
}

// fcntl keeps the descriptor open during the call, so that its number cannot become that of another file.
func (f *lockFile) fcntl(cmd int, lock *unix.Flock_t) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) {
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.FcntlFlock(fd, cmd, lock)
		}
	}); cerr != nil {
		return cerr
	}

	return err
}

// LockedError names the process that held the folder lock past the deadline.
type LockedError struct {
	Path string
	// 0 if the holder released it in the meantime, or is hidden.
	PID int
	For time.Duration
	// The kernel names no process: another kind of lock, or another PID namespace.
	Hidden bool
}

// Error names the holder's PID; the caller adds owner and command.
func (e *LockedError) Error() string {
	switch {
	case e.Hidden:
		return fmt.Sprintf("cannot claim: a process that the kernel does not name has kept the lease folder lock %s for more than %s "+
			"(it is in another PID namespace, or uses a kind of lock that gpuard never uses here); find it with: sudo fuser -v %s", e.Path, e.For, e.Path)
	case e.PID == 0:
		return fmt.Sprintf("cannot claim: the lease folder lock %s was busy for %s; try again", e.Path, e.For)
	}
	return fmt.Sprintf("cannot claim: process %d has kept the lease folder lock %s for more than %s", e.PID, e.Path, e.For)
}

// lockName is the file that is locked.
const lockName = "lock"

func (l *folderLock) openLockFile(root *sys.Dir, owner uint32) error {
	file, err := openLock(root, owner)
	if err != nil {
		return err
	}

	l.folder, l.path, l.owner = root.Name(), file.Name(), owner
	l.file.Store(file)
	l.turn = make(chan struct{}, 1)
	l.turn <- struct{}{}

	return nil
}

func openLock(root *sys.Dir, owner uint32) (*lockFile, error) {
	path := filepath.Join(root.Name(), lockName)

	// Never O_CREAT (fs.protected_regular).
	fd, err := root.Open(lockName, unix.O_RDWR)
	if err != nil {
		return nil, openLockError(path, err)
	}

	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != owner && st.Uid != 0 {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("cannot open the lease folder lock %s: it belongs to uid %d and must be a regular file of uid %d, as the folder is; %s", path, st.Uid, owner, removalAdvice(path, owner, ""))
	}

	return &lockFile{os.NewFile(uintptr(fd), path), uint64(st.Dev), st.Ino}, nil
}

// openLockError is never os.ErrNotExist: a folder without its lock is broken, not missing.
func openLockError(path string, err error) error {
	if failed := (*os.PathError)(nil); errors.As(err, &failed) {
		err = failed.Err
	}
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot open the lease folder lock %s: %s; remove the folder when no lease is alive", path, err.Error())
	}
	return fmt.Errorf("cannot open the lease folder lock %s: %w", path, err)
}

func (l *folderLock) closeLockFile() error {
	<-l.turn
	defer func() { l.turn <- struct{}{} }()
	return l.file.Load().Close()
}

// acquire takes the lock within d and returns the folder that contains it, or a *LockedError that names the holder.
// replaced says that the lock file or the folder was replaced since it was opened.
func (l *folderLock) acquire(d time.Duration) (root *sys.Dir, replaced bool, err error) {
	timer := time.After(d)

	select {
	case <-l.turn:
	case <-timer:
		return nil, false, l.lockedError(d)
	}

	defer func() {
		if err != nil {
			l.turn <- struct{}{}
		}
	}()

	for range 8 {
		if err := l.lockWithin(timer, d); err != nil {
			return nil, false, err
		}

		root, same, err := l.reopenFolder()
		if err != nil {
			l.unlock()
			return nil, false, err
		}
		if same {
			l.deaf = ignoreStop()
			return root, replaced, nil
		}

		// The file or the folder was replaced, so the lock that this process holds protects nothing.
		fresh, err := openLock(root, l.owner)
		_ = root.Close()
		if err != nil {
			l.unlock()
			return nil, false, err
		}

		_ = l.file.Swap(fresh).Close()
		replaced = true
	}

	l.unlock()

	return nil, false, fmt.Errorf("cannot claim: the lease folder lock %s is being replaced again and again by uid %d; ask them to stop", l.path, l.owner)
}

func (l *folderLock) release() {
	l.unlock()
	if l.deaf {
		restoreStop()
	}
	l.turn <- struct{}{}
}

func (l *folderLock) unlock() {
	_ = l.file.Load().fcntl(unix.F_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
}

// closeLater closes a descriptor of the lock file that was opened by accident. It waits for the release of the lock,
// because the close would drop it.
func (l *folderLock) closeLater(fd int) {
	go func() {
		<-l.turn
		_ = unix.Close(fd)
		l.turn <- struct{}{}
	}()
}

func (l *folderLock) lockWithin(expired <-chan time.Time, d time.Duration) error {
	r := l.late
	l.late = nil
	if r == nil || !r.adopt() {
		if l.file.Load().fcntl(unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}) == nil {
			return nil
		}
		r = l.startRequest()
	}

	var err error
	select {
	case err = <-r.granted:
	case <-expired:
		if r.abandon() {
			l.late = r
			return l.lockedError(d)
		}

		// The wait ended just before abandon.
		err = <-r.granted
	}

	if err != nil {
		return fmt.Errorf("cannot lock the lease folder %s: %w", l.path, err)
	}

	return nil
}

// lockWait is one blocking wait for the lock. The wait cannot be cancelled, and the lock belongs to the process, not to
// the goroutine. So a later attempt takes over the pending wait instead of starting a second one.
type lockWait struct {
	mu sync.Mutex
	// No caller waits for it: release the lock when it is granted.
	abandoned bool
	done      bool
	granted   chan error
}

func (l *folderLock) startRequest() *lockWait {
	r := &lockWait{granted: make(chan error, 1)}
	go func() {
		err := l.file.Load().fcntl(unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done = true
		if r.abandoned && err == nil {
			l.unlock()
		}

		r.granted <- err
	}()
	return r
}

// abandon returns false if the wait has ended in the meantime.
func (r *lockWait) abandon() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandoned = !r.done

	return r.abandoned
}

// adopt returns false if the wait has ended, and the lock was released again.
func (r *lockWait) adopt() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.done {
		r.abandoned = false
	}

	return !r.done
}

// lockedError returns a *LockedError with the process that holds the lock now. The kernel reports no PID for an open
// file description lock, or for a process in another PID namespace.
func (l *folderLock) lockedError(d time.Duration) error {
	e := &LockedError{Path: l.path, For: d}
	q := unix.Flock_t{Type: unix.F_WRLCK}
	if l.file.Load().fcntl(unix.F_GETLK, &q) == nil && q.Type != unix.F_UNLCK {
		e.PID = int(max(q.Pid, 0))
		e.Hidden = q.Pid <= 0
	}

	return e
}

// reopenFolder opens the folder and reports whether its lock file is the one that this process has open.
func (l *folderLock) reopenFolder() (*sys.Dir, bool, error) {
	root, err := sys.OpenDir(l.folder)
	if err != nil {
		return nil, false, openLockError(l.path, err)
	}
	named, err := root.Lstat(lockName)

	return root, err == nil && l.isLockFile(&named), nil
}

// readSize is the number of bytes to read of the lock file: its size and a little more, at most maxStateSize.
func (l *folderLock) readSize() int64 {
	info, err := l.file.Load().Stat()
	if err != nil {
		return maxStateSize
	}
	return min(info.Size()+512, maxStateSize)
}

// isLockFile reports whether st is the lock file, under any name.
func (l *folderLock) isLockFile(st *unix.Stat_t) bool {
	f := l.file.Load()
	return f.dev == uint64(st.Dev) && f.ino == st.Ino
}

// holdEntry takes the write lock that keeps an entry alive. It lasts until every duplicate of the descriptor is closed.
func holdEntry(fd uintptr) error {
	return unix.FcntlFlock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// isEntryLocked reports whether a process holds the write lock of an entry. It queries for a read lock, so it takes no
// lock, needs no write permission, and does not count the read lock of another process as a lease.
func isEntryLocked(fd int) (bool, error) {
	q := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &q); err != nil {
		return false, err
	}
	return q.Type != unix.F_UNLCK, nil
}
