//go:build amd64 || arm64

package isolation

import (
	"errors"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tryNamespace lets a child do what becomeInNamespace does, and end.
func tryNamespace() error {
	a := &alone{}
	at := a.pointer("/dev/null")
	a.add(step{call: unix.SYS_UNSHARE, args: [6]uintptr{unix.CLONE_NEWUSER | unix.CLONE_NEWNS}})
	a.add(step{call: unix.SYS_MOUNT, args: [6]uintptr{at, at, 0, unix.MS_BIND}})
	pid, err := a.inChild()
	if err != nil {
		return err
	}
	var status unix.WaitStatus
	for {
		_, err = unix.Wait4(pid, &status, unix.WCLONE, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case err != nil:
		return err
	case status.ExitStatus() != 0:
		return syscall.Errno(status.ExitStatus()) //nolint:gosec // at most 255
	}
	return nil
}

// inChild makes the calls in a child, which has a copy of this process and ends with the error as its exit code. Between fork
// and end nothing of the Go runtime may run in it, so signals stay blocked there.
func (a *alone) inChild() (pid int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child, errno := a.forkRaw()
	runtime.KeepAlive(a)
	if errno != 0 {
		return 0, errno
	}
	return int(child), nil //nolint:gosec // a process ID
}

//go:norace
//go:nosplit
func (a *alone) forkRaw() (child uintptr, errno syscall.Errno) {
	all := ^uint64(0)
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&a.old)), 8, 0, 0)
	// Without SIGCHLD: no other wait of this process sees it.
	child, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, 0, 0, 0, 0, 0, 0)
	if errno == 0 && child == 0 {
		_, errno = do(a.steps)
		exitAll(uintptr(errno))
	}
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&a.old)), 0, 8, 0, 0)
	return child, errno
}
