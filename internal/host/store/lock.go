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

// folderLock is a classic record lock: F_GETLK names its holder across users, and children do not inherit it.
// Closing any descriptor of the file drops such a lock, so a process has exactly one, and one goroutine at a time uses it.
type folderLock struct {
	folder string // that it lies in
	path   string
	owner  uint32
	file   atomic.Pointer[lockFile]
	turn   chan struct{} // one token; whoever has it may lock
	deaf   bool          // to Ctrl-Z, while the lock is held; touched only with the token
	late   *request      // ran past its deadline and may still be granted; touched only with the token
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

// lockName is the file that is locked.
const lockName = "lock"

func (l *folderLock) open(root *sys.Dir, owner uint32) error {
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
	fd, err := root.Open(lockName, unix.O_RDWR) // never O_CREAT (fs.protected_regular)
	if err != nil {
		return nil, unopened(path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != owner && st.Uid != 0 {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("cannot open the lease folder lock %s: it belongs to uid %d and must be a regular file of uid %d, as the folder is; %s", path, st.Uid, owner, removal(path, owner, ""))
	}
	return &lockFile{os.NewFile(uintptr(fd), path), uint64(st.Dev), st.Ino}, nil
}

// unopened never says os.ErrNotExist: a folder without its lock is broken, not missing.
func unopened(path string, err error) error {
	if failed := (*os.PathError)(nil); errors.As(err, &failed) {
		err = failed.Err
	}
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot open the lease folder lock %s: %s; remove the folder when no lease is alive", path, err.Error())
	}
	return fmt.Errorf("cannot open the lease folder lock %s: %w", path, err)
}

func (l *folderLock) close() error {
	<-l.turn
	defer func() { l.turn <- struct{}{} }()
	return l.file.Load().Close()
}

// acquire takes the lock within d and returns the folder that it lies in, or a *LockedError that names the holder. replaced says
// that the file, or the folder, is another one than before.
func (l *folderLock) acquire(d time.Duration) (root *sys.Dir, replaced bool, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.turn:
	case <-timer.C:
		return nil, false, l.locked(d)
	}
	defer func() {
		if err != nil {
			l.turn <- struct{}{}
		}
	}()
	for range 8 {
		if err := l.setWithin(timer.C, d); err != nil {
			return nil, false, err
		}
		root, same, err := l.inPlace()
		if err == nil && same {
			l.deaf = deafen()
			return root, replaced, nil
		}
		// The file or the folder was replaced: the lock that this process has protects nothing.
		var fresh *lockFile
		if err == nil {
			fresh, err = openLock(root, l.owner)
			_ = root.Close()
		}
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

// inPlace opens the folder, and reports whether the lock in it is the one that this process has.
func (l *folderLock) inPlace() (*sys.Dir, bool, error) {
	root, err := sys.OpenDir(l.folder)
	if err != nil {
		return nil, false, unopened(l.path, err)
	}
	named, err := root.Look(lockName)
	return root, err == nil && l.is(&named), nil
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
