package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AwaitEnd waits until this process, a child of the caller, has ended. It leaves a zombie, so that the PID is not used
// again before the caller reaps it. It returns the exit code, or -1 and the name of the signal that ended it
// ("SIGKILL").
func (p Process) AwaitEnd() (code int, signal string, err error) {
	// siginfo_t as waitid(2) fills it, with the fields that are needed.
	var info struct {
		signo, errno, code, _ int32
		pid, uid, status      int32
		_                     [100]byte
	}
	for {
		_, _, errno := unix.Syscall6(unix.SYS_WAITID, unix.P_PID, uintptr(p.PID), uintptr(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, 0, 0) //nolint:gosec // the kernel fills it
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return 0, "", errno
		}

		// CLD_EXITED.
		const exited = 1
		if info.code == exited {
			return int(info.status), "", nil
		}

		return -1, unix.SignalName(syscall.Signal(info.status)), nil
	}
}
