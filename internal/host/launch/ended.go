package launch

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// EndSignalOf names the signal that ended the process of a pidfd, "" for none. It need not be a child of ours. known is
// false if the kernel does not tell: it does from Linux 6.15 on, once the process's parent has waited for it.
func EndSignalOf(pidfd *os.File) (name string, known bool) {
	status, known := waitForStatus(int(pidfd.Fd()))
	return endSignalName(status), known
}

// Outcome is how the watched process has ended, as far as the kernel tells (see Signal): its exit code, or the signal.
func (h *HolderWatch) Outcome() (code *int, signal string) {
	status, known := waitForStatus(h.pidfd)
	switch {
	case known && status.Signaled():
		return nil, unix.SignalName(status.Signal())
	case known && status.Exited():
		return new(status.ExitStatus()), ""
	}
	return nil, ""
}

// waitForStatus waits a moment for the status of a process that has ended.
func waitForStatus(pidfd int) (status syscall.WaitStatus, known bool) {
	for end := time.Now().Add(200 * time.Millisecond); ; time.Sleep(2 * time.Millisecond) {
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		err := unix.IoctlPidfdInfo(pidfd, &info)
		if err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			return syscall.WaitStatus(info.Exit_code), true //nolint:gosec // the bits of wait(2)
		}
		if err != nil || time.Now().After(end) {
			return 0, false
		}
	}
}

// maxSignalDelay is how much later than its command this process may hear of a signal that was sent to both.
const maxSignalDelay = 200 * time.Millisecond

// awaitSignal waits a moment for a signal to be heard of that a command has obeyed by its end: one that is sent to a
// process group, as by a terminal, may reach the command first, and then it looks as if that had failed by itself.
func awaitSignal(status syscall.WaitStatus, heard func() bool) {
	if name := endSignalName(status); name == "" || name == "SIGKILL" {
		// Of that we would not hear.
		return
	}
	for end := time.Now().Add(maxSignalDelay); !heard() && time.Now().Before(end); {
		time.Sleep(2 * time.Millisecond)
	}
}

// endSignalName also knows a shell's way of saying that a signal ended its command: 128 and the signal's number. Only
// those that people and schedulers send to end a program are read so.
func endSignalName(status syscall.WaitStatus) string {
	sig := syscall.Signal(0)
	switch {
	case status.Signaled():
		sig = status.Signal()
	case status.Exited() && status.ExitStatus() > 128:
		sig = syscall.Signal(status.ExitStatus() - 128)
		switch sig {
		case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGKILL, unix.SIGTERM:
		default:
			return ""
		}
	}
	if sig == 0 {
		return ""
	}

	return unix.SignalName(sig)
}
