//go:build amd64 || arm64

package isolation

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"gpuard/internal/host/ownproc"

	"golang.org/x/sys/unix"
)

// tryNamespace lets a child do what becomeInNamespace does, and end.
func tryNamespace() error {
	caps, err := effectiveCaps()
	if err != nil {
		return err
	}

	a := &soleThread{}
	a.addStep(syscallStep{call: unix.SYS_UNSHARE, args: [6]uintptr{unix.CLONE_NEWUSER | unix.CLONE_NEWNS}})
	full := caps.has(unix.CAP_SETUID) && caps.has(unix.CAP_SETGID)
	m := &idMapHandshake{}
	if full {
		err = m.addChildSteps(a)
		defer m.close()
	} else {
		a.mapOwnIDs()
	}

	if err != nil {
		return err
	}

	err = a.coverDevice("/dev/null")
	if err != nil {
		return err
	}

	a.mountEmpty("/dev")
	a.dropCapabilities(full)
	pid, err := a.runInChild()
	if err != nil {
		return err
	}

	var mapped error
	if full {
		mapped = m.mapChildIDs(pid)
	}

	return errors.Join(mapped, childError(pid))
}

// childError is the error with which a child of runInChild has ended.
func childError(pid int) error {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, unix.WCLONE, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	if status.Exited() && status.ExitStatus() == 0 {
		return nil
	}

	return syscall.Errno(max(status.ExitStatus(), 1)) //nolint:gosec // at most 255
}

// idMapHandshake is how a child in its namespace waits for the ids, which this process writes.
type idMapHandshake struct{ arrived, mapped [2]int }

// addChildSteps makes the steps of the child.
func (i *idMapHandshake) addChildSteps(a *soleThread) error {
	err := errors.Join(unix.Pipe2(i.arrived[:], unix.O_CLOEXEC), unix.Pipe2(i.mapped[:], unix.O_CLOEXEC))
	if err != nil {
		return err
	}

	letter := a.keepString("x")
	arrived, mapped, writes := uintptr(i.arrived[1]), uintptr(i.mapped[0]), uintptr(i.mapped[1]) //nolint:gosec // descriptors

	// Or it would wait for ever when this process dies.
	a.addStep(syscallStep{call: unix.SYS_CLOSE, args: [6]uintptr{writes}})
	a.addStep(syscallStep{call: unix.SYS_WRITE, args: [6]uintptr{arrived, letter, 1}})
	a.addStep(syscallStep{call: unix.SYS_READ, args: [6]uintptr{mapped, letter, 1}})

	return nil
}

// mapChildIDs maps all ids as becomeInNamespace does, when the child is there. A child that has ended before has its
// own error.
func (i *idMapHandshake) mapChildIDs(pid int) error {
	_ = unix.Close(i.arrived[1])
	i.arrived[1] = 0
	err := i.answerChild(pid)
	if err != nil {
		return errors.Join(err, unix.Kill(pid, unix.SIGKILL))
	}

	return nil
}

// answerChild waits for the child, writes its ids, and tells it.
func (i *idMapHandshake) answerChild(pid int) error {
	letter := []byte("x")
	n, err := unix.Read(i.arrived[0], letter)
	if err != nil {
		return err
	}
	if n == 0 {
		// The child has ended.
		return nil
	}

	for _, kind := range []string{"uid_map", "gid_map"} {
		text, err := identityMap("/proc/self/" + kind)
		if err != nil {
			return err
		}

		err = os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, kind), []byte(text), 0)
		if err != nil {
			return err
		}
	}

	_, err = unix.Write(i.mapped[1], letter)

	return err
}

func (i *idMapHandshake) close() {
	for _, fd := range []int{i.arrived[0], i.arrived[1], i.mapped[0], i.mapped[1]} {
		if fd > 0 {
			_ = unix.Close(fd)
		}
	}
}

// runInChild makes the calls in a child, which has a copy of this process and ends with the error as its exit code.
// Between fork and end nothing of the Go runtime may run in it, so signals stay blocked there.
func (a *soleThread) runInChild() (pid int, err error) {
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
func (a *soleThread) forkRaw() (child uintptr, errno syscall.Errno) {
	all := ^uint64(0)
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&a.old)), 8, 0, 0)

	// Without SIGCHLD: no other wait of this process sees it.
	child, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, 0, 0, 0, 0, 0, 0)
	if errno == 0 && child == 0 {
		_, errno = makeCalls(a.steps)
		ownproc.ExitGroup(uintptr(errno))
	}

	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&a.old)), 0, 8, 0, 0)

	return child, errno
}
