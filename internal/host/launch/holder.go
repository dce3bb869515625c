package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"gpuard/internal/host/ownproc"
	"gpuard/internal/host/sys"

	"golang.org/x/sys/unix"
)

// HolderFlag is the first argument of a process that is a holder.
const HolderFlag = "__hold"

// StartHolder starts this program again as a holder of lock that watches this process. When it returns, the holder runs
// as a child of init: as the command's child it would make the command wait for ever when it waits for any child. args
// follow HolderFlag, pidfd and lock descriptor on its command line. The holder closes spare, if there is one, so that
// closing it here takes no time; it is for descriptors whose last close is slow.
func StartHolder(lock int, spare *os.File, args ...string) error {
	defaultEndSignals()
	self, err := OpenPidfd(os.Getpid())
	if err != nil {
		return err
	}

	defer self.Close() //nolint:errcheck // close-on-exec anyway

	return startHolder(self, lock, spare, args)
}

// OpenPidfd opens a process to watch it: the descriptor means this very process, also after its PID was used again.
func OpenPidfd(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot watch process %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// StartHolderFor is StartHolder for the process of a pidfd.
func StartHolderFor(process *os.File, lock int, args ...string) error {
	return startHolder(process, lock, nil, args)
}

// closeVariable names the descriptor that a holder closes, in its environment.
const closeVariable = "HOLDER_CLOSES"

func startHolder(process *os.File, lock int, spare *os.File, args []string) error {
	if _, err := unix.FcntlInt(uintptr(lock), unix.F_GETFD, 0); err != nil || lock < 3 { //nolint:gosec // looked at here
		return fmt.Errorf("cannot start the holder: there is no descriptor %d", lock)
	}

	env, keep := holderEnv(), []int{int(process.Fd()), lock}
	if spare != nil {
		keep = append(keep, int(spare.Fd()))
		env = append(env, closeVariable+"="+strconv.Itoa(keep[2]))
	}

	err := startDetached("the holder", HolderFlag, env, keep, args)
	runtime.KeepAlive(spare)

	return err
}

// startDetached starts this program again as a child of init, with two or three descriptors and no streams. The first
// two begin its command line. what names it in errors.
func startDetached(what, flag string, env []string, keep []int, args []string) error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", what, err)
	}

	defer unix.Close(null) //nolint:errcheck // close-on-exec anyway
	argv := append([]string{filepath.Base(os.Args[0]), flag, strconv.Itoa(keep[0]), strconv.Itoa(keep[1])}, args...)
	argvp, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", what, err)
	}

	// One thread is enough for a process that waits, and it needs nothing else from our environment.
	envp, err := syscall.SlicePtrFromStrings(env)
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", what, err)
	}

	a := &forkArgs{exe: cstring("/proc/self/exe"), root: cstring("/"), argv: &argvp[0], envp: &envp[0], null: uintptr(null)}
	keep = slices.Sorted(slices.Values(keep))
	for i := range a.keep {
		a.keep[i] = uintptr(keep[min(i, len(keep)-1)]) //nolint:gosec // descriptors
	}

	pid, errno := doubleFork(a)
	if errno != 0 {
		return fmt.Errorf("cannot start %s: %w", what, errno)
	}

	var status unix.WaitStatus
	err = unix.EINTR
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Wait4(int(pid), &status, 0, nil)
	}

	if err != nil {
		return fmt.Errorf("cannot start %s: cannot wait for its starter: %w", what, err)
	}

	switch {
	case status.ExitStatus() != 0:
		return fmt.Errorf("cannot start %s: %w", what, syscall.Errno(status.ExitStatus())) //nolint:gosec // at most 255
	case a.failed != 0:
		return fmt.Errorf("cannot start %s: %w", what, syscall.Errno(a.failed))
	}

	return nil
}

// holderEnv is what the Go runtime needs, where the driver's library and programs are found and where a daemon of MPS
// would be (TMPDIR), where the line of the lease is written, what the race detector is told (GORACE: where it reports,
// and not to hold each process for a second at its end), and nothing private. Without the third of these settings the
// runtime keeps the files of its cgroup's CPU limit open.
func holderEnv() []string {
	env := []string{"GOMAXPROCS=1", "GOGC=50", "GODEBUG=containermaxprocs=0"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "TMPDIR", "HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "GPUARD_STATE", "GORACE"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func cstring(s string) *byte {
	b := append([]byte(s), 0)
	return &b[0]
}

// forkArgs is everything the children need, prepared while the runtime still works.
type forkArgs struct {
	exe, root  *byte
	argv, envp **byte
	// Descriptors, sorted; where there are two the last one twice.
	keep [3]uintptr
	null uintptr
	// Why the grandchild could not execute.
	failed uintptr
}

// doubleFork forks twice and lets the grandchild execute. It returns the child, which has ended and waits to be reaped,
// and why the grandchild could not execute. Until it executes, the grandchild uses our memory and our stack while this
// thread waits, so between fork and exec only raw system calls are made: nothing of the Go runtime may run there (no
// allocation, no stack growth, no signal handler; signals are blocked from before the fork until no handler is left in
// the grandchild).
func doubleFork(a *forkArgs) (uintptr, syscall.Errno) {
	pid, errno := forkBlocked(func() (uintptr, syscall.Errno) { return rawDoubleFork(a) })
	runtime.KeepAlive(a)

	return pid, errno
}

// forkBlocked calls fork with all signals blocked, as they are in the copy from its beginning.
func forkBlocked(fork func() (uintptr, syscall.Errno)) (uintptr, syscall.Errno) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, old unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}

	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old); err != nil {
		return 0, unix.EINVAL
	}

	pid, errno := fork()
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)

	return pid, errno
}

//go:norace
//go:nosplit
func rawDoubleFork(a *forkArgs) (uintptr, syscall.Errno) {
	pid, errno := rawVfork(forkFlags)
	if errno != 0 || pid != 0 {
		return pid, syscall.Errno(errno)
	}

	syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	pid, errno = rawVfork(forkFlags)
	if errno != 0 {
		ownproc.ExitGroup(errno)
	}

	if pid != 0 {
		ownproc.ExitGroup(0)
	}

	syscall.RawSyscall(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(a.root)), 0, 0)

	for fd := uintptr(0); fd < 3; fd++ {
		syscall.RawSyscall(syscall.SYS_DUP3, a.null, fd, 0)
	}

	// Whatever pipe the caller passed on must not stay open because of us.
	first := uintptr(3)
	for i := range a.keep {
		closeRange(first, a.keep[i]-1)
		syscall.RawSyscall(syscall.SYS_FCNTL, a.keep[i], syscall.F_SETFD, 0)
		first = a.keep[i] + 1
	}

	closeRange(first, 1<<31-1)
	unblockSignals()
	_, _, err := syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(a.exe)),
		uintptr(unsafe.Pointer(a.argv)), uintptr(unsafe.Pointer(a.envp)))

	a.failed = uintptr(err)
	ownproc.ExitGroup(1)

	return 0, 0
}

// unblockSignals gives every caught signal its default before it lets signals in again: the new program begins with the
// mask of this thread in all of its threads, and the Go runtime's handlers must not run in a forked copy.
//
//go:norace
//go:nosplit
func unblockSignals() {
	ownproc.DefaultCaught()
	var none uint64
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&none)), 0, 8, 0, 0)
}

//go:norace
//go:nosplit
func closeRange(first, lastFD uintptr) {
	if first > lastFD || first < 3 {
		return
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_CLOSE_RANGE, first, lastFD, 0); errno == 0 {
		return
	}

	for fd := first; fd <= lastFD && fd < 4096; fd++ {
		// Kernels before 5.9.
		syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	}
}

// HolderWatch is what a holder has in hand.
type HolderWatch struct {
	pidfd int
	lock  *os.File
}

// InheritWatch reads the two descriptors of a holder's command line.
func InheritWatch(pidfd, lock string) (*HolderWatch, error) {
	fds, ok := sys.InheritFDs(pidfd, lock)
	if !ok {
		return nil, errors.New("cannot hold a lease by hand: gpuard starts its holder itself")
	}
	if spare, err := strconv.Atoi(os.Getenv(closeVariable)); err == nil && spare > 2 && !slices.Contains(fds, spare) {
		go unix.Close(spare) //nolint:errcheck // it may take a while, and nothing was written
	}

	return &HolderWatch{pidfd: fds[0], lock: os.NewFile(uintptr(fds[1]), "lease")}, nil
}

// Wait blocks until the watched process is gone; each is called in between every so often.
func (h *HolderWatch) Wait(every time.Duration, each func()) error {
	for {
		fds := []unix.PollFd{{Fd: int32(h.pidfd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
		n, err := unix.Poll(fds, int(every.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n > 0 && fds[0].Revents&unix.POLLNVAL != 0:
			return errors.New("cannot watch the command: there is no descriptor of it")
		case n > 0:
			return nil
		default:
			each()
		}
	}
}

// Process is the watched process's descriptor.
func (h *HolderWatch) Process() int { return h.pidfd }

// DropLease closes the holder's reference to the lease.
func (h *HolderWatch) DropLease() error { return h.lock.Close() }

func prctlGetSubreaper(out *int32) error {
	return unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(out)), 0, 0, 0)
}
