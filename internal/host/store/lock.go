package store

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// folderLock is a classic record lock: F_GETLK names its holder across users, and children do not inherit it.
// Closing any descriptor of the file drops such a lock, so a process has exactly one, with a mutex beside it.
type folderLock struct {
	mu   sync.Mutex
	path string
	file *os.File
}

// LockedError says who kept the folder lock past the deadline.
type LockedError struct {
	Path string
	PID  int // 0 when the holder let go in the meantime
	For  time.Duration
}

// Error names the holder's PID; whoever shows it adds owner and command.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("cannot claim: the lease folder lock %s was busy for %s; try again", e.Path, e.For)
	}
	return fmt.Sprintf("cannot claim: process %d has kept the lease folder lock %s for more than %s", e.PID, e.Path, e.For)
}

func (l *folderLock) open(path string) error {
	// O_NONBLOCK so that a FIFO put in its place cannot hang anyone; never O_CREAT (fs.protected_regular).
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "cannot open the lease folder lock", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return fmt.Errorf("cannot open the lease folder lock %s: it is not a regular file; remove the folder", path)
	}
	l.path, l.file = path, os.NewFile(uintptr(fd), path)
	return nil
}

func (l *folderLock) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// acquire takes the lock within d, or returns a *LockedError that names the holder.
func (l *folderLock) acquire(d time.Duration) error {
	l.mu.Lock()
	for range 8 {
		if err := l.setWithin(d); err != nil {
			l.mu.Unlock()
			return err
		}
		same, err := l.inPlace()
		if err == nil && same {
			return nil
		}
		// Somebody replaced the file or the folder: what we hold protects nothing.
		_ = l.file.Close()
		if err := l.open(l.path); err != nil {
			l.mu.Unlock()
			return err
		}
	}
	l.mu.Unlock()
	return fmt.Errorf("cannot claim: the lease folder lock %s is being replaced again and again", l.path)
}

func (l *folderLock) release() {
	_ = unix.FcntlFlock(l.file.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
	l.mu.Unlock()
}

func (l *folderLock) setWithin(d time.Duration) error {
	fd := l.file.Fd()
	if unix.FcntlFlock(fd, unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}) == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() {
		done <- retryEINTR(func() error { return unix.FcntlFlock(fd, unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK}) })
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
	}
	pid := l.holder()
	go func() { // a lock that comes too late is given back
		if <-done == nil {
			_ = unix.FcntlFlock(fd, unix.F_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
		}
	}()
	return &LockedError{Path: l.path, PID: pid, For: d}
}

// holder returns the PID that holds the lock now, 0 when nobody does or it is in another PID namespace.
func (l *folderLock) holder() int {
	q := unix.Flock_t{Type: unix.F_WRLCK}
	if unix.FcntlFlock(l.file.Fd(), unix.F_GETLK, &q) != nil || q.Type == unix.F_UNLCK || q.Pid < 0 {
		return 0
	}
	return int(q.Pid)
}

func (l *folderLock) inPlace() (bool, error) {
	var held, named unix.Stat_t
	if err := unix.Fstat(int(l.file.Fd()), &held); err != nil {
		return false, err
	}
	if err := unix.Lstat(l.path, &named); err != nil {
		return false, err
	}
	return held.Dev == named.Dev && held.Ino == named.Ino, nil
}

// holdEntry takes the write lock that keeps a lease alive; every duplicate of the description keeps it.
func holdEntry(fd uintptr) error {
	return unix.FcntlFlock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// held asks whether a writer holds the entry. It asks for a read lock, so it takes nothing and needs no write permission;
// a reader's lock on the file does not look like a lease.
func held(fd int) (bool, error) {
	q := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &q); err != nil {
		return false, err
	}
	return q.Type != unix.F_UNLCK, nil
}

func retryEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
