package proc

import (
	"errors"

	"golang.org/x/sys/unix"
)

// AwaitEnd waits for the end of a process (pidfd_open(2)), and reports whether there was one. seen is called while it
// is watched already.
func (f FS) AwaitEnd(pid int, seen func()) bool {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}

	defer unix.Close(pidfd) //nolint:errcheck // read only
	seen()

	for {
		fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
		if n, err := unix.Poll(fds, -1); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return true
		}
	}
}
