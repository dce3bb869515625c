// Package measurer is the process that measures a shared lease, as far as it touches other processes: it is started beside
// a holder, says a line where a command has its standard error, and ends a process. What is measured, and who is to be told
// or ended, others decide.
package measurer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"gpuard/internal/host/sys"

	"golang.org/x/sys/unix"
)

// Flag is the first argument of such a process.
const Flag = "__measure"

// Start starts this program again as a child, with a descriptor of the process behind pidfd and nothing else of ours: it
// has no part in the lease, which a driver that hangs would otherwise keep. args follow Flag and that descriptor's number
// on its command line. The caller waits for it.
func Start(pidfd int, args ...string) (*exec.Cmd, error) {
	fd, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 3) //nolint:gosec // a descriptor
	if err != nil {
		return nil, fmt.Errorf("cannot measure: %w", err)
	}
	process := os.NewFile(uintptr(fd), "pidfd") //nolint:gosec // a descriptor
	defer process.Close()                       //nolint:errcheck // the child has its own
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{os.Args[0], Flag, "3"}, args...)
	cmd.Dir, cmd.ExtraFiles = "/", []*os.File{process}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the process that measures: %w", err)
	}
	return cmd, nil
}

// Process opens the descriptor that Start named on the command line.
func Process(number string) (*os.File, error) {
	fds, ok := sys.Inherited(number)
	if !ok {
		return nil, errors.New("cannot measure by hand: gpuard run --share starts what measures itself")
	}
	return os.NewFile(uintptr(fds[0]), "pidfd"), nil
}

// patience is how long a terminal that was stopped, or a full pipe, is waited for.
const patience = 300 * time.Millisecond

// Tell writes a line to the standard error that the process behind pidfd has at this moment. Nothing stays open: whoever
// reads a pipe to its end must not wait for us. Only the owner of the process and root may.
func Tell(pidfd, pid int, line string) error {
	fd, err := standardError(pidfd, pid)
	if err != nil {
		return fmt.Errorf("cannot tell process %d: %w", pid, err)
	}
	defer unix.Close(fd)                                          //nolint:errcheck // written or not, there is nobody to tell
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}} //nolint:gosec // a descriptor
	for end := time.Now().Add(patience); ; {
		n, err := unix.Poll(ready, int(max(0, time.Until(end).Milliseconds())))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 || ready[0].Revents&unix.POLLOUT == 0 {
			return fmt.Errorf("cannot tell process %d: nobody reads its standard error", pid)
		}
		break
	}
	if _, err := unix.Write(fd, []byte(line)); err != nil {
		return fmt.Errorf("cannot tell process %d: %w", pid, err)
	}
	return nil
}

// standardError prefers the very descriptor (pidfd_getfd(2)): it shares its place in a file, so that the next line of the
// command does not go over ours, and it may be a socket. Where the kernel's settings forbid that, the file behind it is
// opened again.
func standardError(pidfd, pid int) (int, error) {
	if fd, err := unix.PidfdGetfd(pidfd, 2, 0); err == nil {
		return fd, nil
	}
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_NOCTTY | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/2", pid), flags, 0)
	if err != nil {
		return -1, err
	}
	// The number may have become another process's before it was opened.
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// End asks a process to end (SIGTERM), or ends it by force (SIGKILL). sure is asked after the process was fixed: whether it
// still is the one that is meant.
func End(pid int, force bool, sure func() bool) error {
	sig := unix.SIGTERM
	if force {
		sig = unix.SIGKILL
	}
	if err := sys.Signal(pid, sure, sig); err != nil {
		return fmt.Errorf("cannot end process %d: %w", pid, err)
	}
	return nil
}
