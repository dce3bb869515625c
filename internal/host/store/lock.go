package store

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// folderLock is a classic record lock: F_GETLK names its holder across users, and children do not inherit it.
// Closing any descriptor of the file drops such a lock, so a process has exactly one, and one goroutine at a time uses it.
type folderLock struct {
	path  string
	owner uint32
	file  atomic.Pointer[lockFile]
	turn  chan struct{} // one token; whoever has it may lock
	deaf  bool          // to Ctrl-Z, while the lock is held; touched only with the token
	late  *request      // ran past its deadline and may still be granted; touched only with the token
}

// lockFile is the open lock and which file that is.
type lockFile struct {
	*os.File
	dev, ino uint64
}

// fcntl keeps the descriptor open while it works, so that its number cannot become another file's.
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

// LockedError says who kept the folder lock past the deadline.
type LockedError struct {
	Path   string
	PID    int // 0 when the holder let go in the meantime, or is hidden
	For    time.Duration
	Hidden bool // the kernel names nobody: another kind of lock, or another PID namespace
}

// Error names the holder's PID; whoever shows it adds owner and command.
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

func (l *folderLock) open(path string, owner uint32) error {
	file, err := openLock(path, owner)
	if err != nil {
		return err
	}
	l.path, l.owner = path, owner
	l.file.Store(file)
	l.turn = make(chan struct{}, 1)
	l.turn <- struct{}{}
	return nil
}

// openLock never says os.ErrNotExist: a folder without its lock is broken, not missing.
func openLock(path string, owner uint32) (*lockFile, error) {
	// O_NONBLOCK so that a FIFO put in its place cannot hang anyone; never O_CREAT (fs.protected_regular).
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("cannot open the lease folder lock %s: %s; remove the folder when no lease is alive", path, err.Error())
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the lease folder lock %s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != owner && st.Uid != 0 {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("cannot open the lease folder lock %s: it belongs to uid %d and must be a regular file of uid %d, as the folder is; remove it, or the folder", path, st.Uid, owner)
	}
	return &lockFile{os.NewFile(uintptr(fd), path), uint64(st.Dev), st.Ino}, nil
}

func (l *folderLock) close() error {
	<-l.turn
	defer func() { l.turn <- struct{}{} }()
	return l.file.Load().Close()
}

// acquire takes the lock within d, or returns a *LockedError that names the holder. replaced says that the file,
// or the folder, is another one than before.
func (l *folderLock) acquire(d time.Duration) (replaced bool, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.turn:
	case <-timer.C:
		return false, l.locked(d)
	}
	defer func() {
		if err != nil {
			l.turn <- struct{}{}
		}
	}()
	for range 8 {
		if err := l.setWithin(timer.C, d); err != nil {
			return false, err
		}
		same, err := l.inPlace()
		if err == nil && same {
			l.deaf = deafen()
			return replaced, nil
		}
		// Somebody replaced the file or the folder: what we hold protects nothing.
		fresh, err := openLock(l.path, l.owner)
		if err != nil {
			l.unlock()
			return false, err
		}
		_ = l.file.Swap(fresh).Close()
		replaced = true
	}
	l.unlock()
	return false, fmt.Errorf("cannot claim: the lease folder lock %s is being replaced again and again by uid %d; ask them to stop", l.path, l.owner)
}

func (l *folderLock) release() {
	l.unlock()
	if l.deaf {
		hear()
	}
	l.turn <- struct{}{}
}

func (l *folderLock) unlock() {
	_ = l.file.Load().fcntl(unix.F_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
}

// closeLater closes a descriptor of the lock file itself that was opened by accident: at once, it would drop the lock.
func (l *folderLock) closeLater(fd int) {
	go func() {
		<-l.turn
		_ = unix.Close(fd)
		l.turn <- struct{}{}
	}()
}

func (l *folderLock) setWithin(expired <-chan time.Time, d time.Duration) error {
	r := l.late
	l.late = nil
	if r == nil || !r.adopt() {
		if l.file.Load().fcntl(unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}) == nil {
			return nil
		}
		r = l.request()
	}
	var err error
	select {
	case err = <-r.granted:
	case <-expired:
		if r.abandon() {
			l.late = r
			return l.locked(d)
		}
		err = <-r.granted // at the last moment
	}
	if err != nil {
		return fmt.Errorf("cannot lock the lease folder %s: %w", l.path, err)
	}
	return nil
}

// request is one blocking wait for the lock. The wait itself cannot be called off, and the lock is the process's, not
// the goroutine's: so a later attempt takes the pending wait over instead of starting one beside it.
type request struct {
	mu        sync.Mutex
	abandoned bool // nobody waits for it: give the lock back when it comes
	done      bool
	granted   chan error
}

func (l *folderLock) request() *request {
	r := &request{granted: make(chan error, 1)}
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

// abandon reports false when the lock was granted in the meantime.
func (r *request) abandon() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandoned = !r.done
	return r.abandoned
}

// adopt reports false when the lock came and was given back.
func (r *request) adopt() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.done {
		r.abandoned = false
	}
	return !r.done
}

// locked asks who holds the lock now. An open file description lock has no PID, one in another PID namespace has none here.
func (l *folderLock) locked(d time.Duration) error {
	e := &LockedError{Path: l.path, For: d}
	q := unix.Flock_t{Type: unix.F_WRLCK}
	if l.file.Load().fcntl(unix.F_GETLK, &q) == nil && q.Type != unix.F_UNLCK {
		e.PID = int(max(q.Pid, 0))
		e.Hidden = q.Pid <= 0
	}
	return e
}

func (l *folderLock) inPlace() (bool, error) {
	var named unix.Stat_t
	if err := unix.Lstat(l.path, &named); err != nil {
		return false, err
	}
	return l.is(&named), nil
}

// size is how much to read of the content: what there is and a little more, up to stateSize.
func (l *folderLock) size() int64 {
	info, err := l.file.Load().Stat()
	if err != nil {
		return stateSize
	}
	return min(info.Size()+512, stateSize)
}

// is reports whether st is the lock file, under whatever name.
func (l *folderLock) is(st *unix.Stat_t) bool {
	f := l.file.Load()
	return f.dev == uint64(st.Dev) && f.ino == st.Ino
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
