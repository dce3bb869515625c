// Package quotawatch has what a process that measures shares needs of the machine: to be started next to a holder, to
// agree with others of its kind who measures what, to write a line to a command's standard error, and to end a process.
// It does not measure, and does not decide which process is warned or ended.
//
//	cmd, err := quotawatch.StartMeasuring(locks, args...)
//	// in that process:
//	locks, err := quotawatch.OpenLocks(os.Args[2])
//	err = quotawatch.WriteToStderr(pidfd, pid, "gpuard: ...\n")
//	err = quotawatch.EndProcess(pid, false, isStillTheJob)
package quotawatch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"gpuard/internal/host/sys"

	"golang.org/x/sys/unix"
)

// MeasureFlag is the first argument of such a process.
const MeasureFlag = "__measure"

// StartMeasuring starts this program again as a child that has the locks. The child inherits no descriptor of a lease:
// it would keep the lease alive while a driver call in it hangs. args follow MeasureFlag and the number of the
// descriptor of the locks on its command line. The caller waits for the child.
func StartMeasuring(locks *Locks, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{filepath.Base(os.Args[0]), MeasureFlag, "3"}, args...)
	cmd.Dir, cmd.ExtraFiles = "/", []*os.File{locks.file}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the process that measures: %w", err)
	}

	return cmd, nil
}

// inheritedFile opens a descriptor that Start named on the command line.
func inheritedFile(number string) (*os.File, error) {
	fds, ok := sys.InheritFDs(number)
	if !ok {
		return nil, errors.New("cannot measure by hand: gpuard starts what measures itself")
	}
	return os.NewFile(uintptr(fds[0]), "locks"), nil //nolint:gosec // a descriptor
}

// tellTimeout is how long WriteToStderr waits for a stopped terminal or a full pipe.
const tellTimeout = 300 * time.Millisecond

// WriteToStderr writes a line to the present standard error of the process pidfd. It closes it afterwards, because the
// reader of a pipe would wait for this process otherwise. Only the owner of the process and root may.
func WriteToStderr(pidfd, pid int, line string) error {
	fd, err := openStandardError(pidfd, pid)
	if err != nil {
		return fmt.Errorf("cannot tell process %d: %w", pid, err)
	}

	defer unix.Close(fd)                                          //nolint:errcheck // the write reports errors
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}} //nolint:gosec // a descriptor
	for end := time.Now().Add(tellTimeout); ; {
		n, err := unix.Poll(ready, int(max(0, time.Until(end).Milliseconds())))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 || ready[0].Revents&unix.POLLOUT == 0 {
			return fmt.Errorf("cannot tell process %d: no process reads its standard error", pid)
		}
		break
	}

	if _, err := unix.Write(fd, []byte(line)); err != nil {
		return fmt.Errorf("cannot tell process %d: %w", pid, err)
	}

	return nil
}

// openStandardError prefers a duplicate of the descriptor (pidfd_getfd(2)): it shares the file offset, so that the next
// line of the command does not overwrite this one, and it works for a socket. If the kernel's settings forbid that, it
// opens the file again.
func openStandardError(pidfd, pid int) (int, error) {
	if fd, err := unix.PidfdGetfd(pidfd, 2, 0); err == nil {
		return fd, nil
	}

	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_NOCTTY | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/2", pid), flags, 0)
	if err != nil {
		return -1, err
	}

	// The PID may have become that of another process before the open.
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}

	return fd, nil
}

// EndProcess sends a process SIGTERM, or with force SIGKILL. It calls sure once it has a pidfd, to check that the PID
// is still that of the right process.
func EndProcess(pid int, force bool, sure func() bool) error {
	sig := unix.SIGTERM
	if force {
		sig = unix.SIGKILL
	}
	if err := sys.SendSignals(pid, sure, sig, unix.SIGCONT); err != nil {
		// One that is stopped obeys when it goes on.
		return fmt.Errorf("cannot end process %d: %w", pid, err)
	}

	return nil
}

// CPUTime is the processor time of this process, and of its children that have ended, since their starts.
func CPUTime() (spent time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if unix.Getrusage(who, &used) == nil {
			spent += time.Duration(used.Utime.Nano() + used.Stime.Nano())
		}
	}
	return spent
}
