//go:build amd64 || arm64

package isolation

import (
	"runtime"
	"syscall"
	"unsafe"

	"gpuard/internal/host/ownproc"

	"golang.org/x/sys/unix"
)

// A user namespace can only be entered by a process with one thread (unshare(2), CLONE_NEWUSER), and a Go program has
// several from its first line on. So this one ends all its other threads, each by a signal whose handler is exit(2).
// From then on nothing of the Go runtime may run: what is to be done is a list of system calls, which is made before,
// and the last of them is execve(2). If one fails, this program is executed again to say which.

// syscallStep is one system call.
type syscallStep struct {
	// What failed, for people: "cannot what: reason".
	what string
	call uintptr
	args [6]uintptr
	// The argument, from 1, that is the descriptor which the last opening step returned; 0 none.
	from int
	// The result is such a descriptor.
	opens bool
	// This error is as good as success, and what follows goes on; 0 none.
	skips uintptr
	// This error may be over in a moment, so the call is made again for up to maxPasses times; 0 none.
	passes uintptr
	// Must be 0 after the call: the status of a child; nil nothing.
	zero *uint32
}

// soleThread is everything that the thread needs when it is the only one.
type soleThread struct {
	steps []syscallStep
	// That a forked child does meanwhile, outside the namespace; nil: no child.
	child []syscallStep
	// The words of the program that says what failed, with the two numbers below.
	argv **byte
	envp **byte
	exe  *byte
	// Index of the step that failed, decimal, as C string.
	number [8]byte
	errno  [8]byte

	// Signals that were blocked before.
	old     uint64
	tasks   *byte // "/proc/self/task"
	entries [8192]byte
	pid     int
	action  ownproc.SignalAction
	// What the steps point to.
	keep []any
}

const (
	// SA_ONSTACK: each thread of Go has a stack for signals.
	onStack = 0x08000000
	// SA_RESTORER; without it amd64 takes no handler.
	hasRestorer = 0x04000000
)

// quitSignal ends a thread here. Nothing else uses the last of the real-time signals.
const quitSignal = 64

// exitHandler is the address of the handler.
func exitHandler() uintptr

// maxThreadRounds is how often the other threads are looked for, with 20 µs and the kernel's slack between: about two
// seconds.
const maxThreadRounds = 27_000

// runAlone does not return. It must be called by the thread that began the process, and locked to it.
func (a *soleThread) runAlone() {
	a.action = ownproc.SignalAction{Handler: exitHandler(), Flags: onStack | hasRestorer, Restorer: exitHandler()}
	a.runRaw()
	runtime.KeepAlive(a)
}

//go:norace
//go:nosplit
func (a *soleThread) runRaw() {
	all := ^uint64(0)
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&a.old)), 8, 0, 0)

	// Before a thread that handles one is ended.
	ownproc.DefaultCaught()
	if errno := a.endThreads(); errno != 0 {
		a.execFailure(noStep, errno)
	}

	if a.child != nil {
		// Without SIGCHLD, so that the wait for it (__WCLONE) is for no other child, and the command hears of none.
		child, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, 0, 0, 0, 0, 0, 0)
		if errno != 0 {
			a.execFailure(forkStep, errno)
		}
		if child == 0 {
			_, errno := makeCalls(a.child)
			ownproc.ExitGroup(uintptr(errno))
		}
	}

	failed, errno := makeCalls(a.steps)
	a.execFailure(failed, errno)
}

// makeCalls makes the calls in order. It returns the index of the one that failed, or -1 after the last.
//
//go:norace
//go:nosplit
func makeCalls(steps []syscallStep) (failed int, errno syscall.Errno) {
	var fd uintptr
	for i := range steps {
		s := &steps[i]
		if s.from > 0 {
			s.args[s.from-1] = fd
		}

		if s.call == prepareExec {
			ownproc.DefaultCaught()
			continue
		}

		for again := 0; ; {
			var result uintptr
			result, _, errno = syscall.RawSyscall6(s.call, s.args[0], s.args[1], s.args[2], s.args[3], s.args[4], s.args[5])
			if errno == syscall.EINTR {
				continue
			}
			if errno != 0 && uintptr(errno) == s.passes && again < maxPasses {
				again++
				pause := [2]int64{0, 20_000}
				syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
				continue
			}

			if s.opens {
				fd = result
			}

			break
		}

		switch {
		case errno != 0 && uintptr(errno) == s.skips:
		case errno != 0:
			return i, errno
		case s.zero != nil && *s.zero&0x7f != 0:
			// It was killed.
			return i, syscall.ECHILD
		case s.zero != nil && *s.zero != 0:
			// Exit code of the child, which is its error.
			return i, syscall.Errno(*s.zero >> 8 & 0xff)
		}
	}
	return -1, 0
}

// maxPasses is how often a call is made again whose error may be over in a moment: for about 70 ms.
const maxPasses = 1000

// prepareExec is the number of the step that gives signals their default again, in place of a system call.
const prepareExec = ^uintptr(0)

// endThreads ends all threads but this one, and returns when they are gone.
//
//go:norace
//go:nosplit
func (a *soleThread) endThreads() syscall.Errno {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, quitSignal, uintptr(unsafe.Pointer(&a.action)), 0, 8, 0, 0)
	if errno != 0 {
		return errno
	}

	dir, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, ^uintptr(99), uintptr(unsafe.Pointer(a.tasks)), syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return errno
	}

	pause := [2]int64{0, 20_000}
	for round := 0; round < maxThreadRounds; round++ {
		others, errno := a.signalThreads(dir)
		if errno != 0 {
			return errno
		}
		if others == 0 {
			syscall.RawSyscall(syscall.SYS_CLOSE, dir, 0, 0)
			return 0
		}
		syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
	}

	return syscall.ETIMEDOUT
}

// signalThreads sends the signal to each other thread, and counts them. dir is /proc/self/task.
//
//go:norace
//go:nosplit
func (a *soleThread) signalThreads(dir uintptr) (others int, errno syscall.Errno) {
	_, _, errno = syscall.RawSyscall(syscall.SYS_LSEEK, dir, 0, 0)
	if errno != 0 {
		return 0, errno
	}

	for {
		var n uintptr
		n, _, errno = syscall.RawSyscall(syscall.SYS_GETDENTS64, dir, uintptr(unsafe.Pointer(&a.entries)), uintptr(len(a.entries)))
		if errno != 0 || n == 0 {
			return others, errno
		}

		// struct linux_dirent64 of getdents64(2): inode, offset (8 each), length (2), type (1), name.
		for at := uintptr(0); at+19 < n; {
			length := uintptr(*(*uint16)(unsafe.Pointer(&a.entries[at+16])))
			thread := 0
			for i := at + 19; i < n && a.entries[i] >= '0' && a.entries[i] <= '9'; i++ {
				thread = thread*10 + int(a.entries[i]-'0')
			}

			if thread != 0 && thread != a.pid {
				others++
				syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(a.pid), uintptr(thread), quitSignal)
			}

			if length == 0 {
				return others, syscall.EIO
			}

			at += length
		}
	}
}

// execFailure executes the program that says what failed.
//
//go:norace
//go:nosplit
func (a *soleThread) execFailure(failed int, errno syscall.Errno) {
	writeDigits(&a.number, failed)
	writeDigits(&a.errno, int(errno))
	ownproc.DefaultCaught()
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&a.old)), 0, 8, 0, 0)
	syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(a.exe)), uintptr(unsafe.Pointer(a.argv)), uintptr(unsafe.Pointer(a.envp)))
	ownproc.ExitGroup(125)
}

// writeDigits writes a number of up to seven digits.
//
//go:norace
//go:nosplit
func writeDigits(to *[8]byte, n int) {
	for i := 6; i >= 0; i-- {
		to[i] = '0' + byte(n%10)
		n /= 10
	}
	to[7] = 0
}
