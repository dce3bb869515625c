package launch

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Gone reports whether the lock's file has no name any more: the lease was taken over, or released.
func (w *Watch) Gone() bool {
	var st unix.Stat_t
	return unix.Fstat(int(w.lock.Fd()), &st) == nil && st.Nlink == 0
}

// Linger keeps the lease while a next start of the command may come, and returns when that has taken it over (Gone) or is not
// to be expected any more: file is not there any more for rest, since who starts it again may be writing it anew, parent has
// ended (a pidfd), or most is over. Nothing is polled: the files are watched by inotify.
func (w *Watch) Linger(file string, parent *os.File, most, rest time.Duration) error {
	in, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("cannot watch %s: %w", file, err)
	}
	defer unix.Close(in) //nolint:errcheck // read only
	const links = unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	if _, err := unix.InotifyAddWatch(in, "/proc/self/fd/"+strconv.Itoa(int(w.lock.Fd())), links); err != nil {
		return fmt.Errorf("cannot watch the lease: %w", err)
	}
	end, leaving := time.Now().Add(most), false
	for !w.Gone() {
		// Again each time: the file may be another one under the same name by now.
		switch _, err := unix.InotifyAddWatch(in, file, links); {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			if soon := time.Now().Add(rest); !leaving && soon.Before(end) {
				end = soon
			}
			leaving = true
		case err != nil:
			return fmt.Errorf("cannot watch %s: %w", file, err)
		}
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		fds := []unix.PollFd{{Fd: int32(in), Events: unix.POLLIN}, {Fd: int32(parent.Fd()), Events: unix.POLLIN}} //nolint:gosec // descriptors
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if fds[1].Revents != 0 {
			return nil
		}
		buf := make([]byte, 4096)
		_, _ = unix.Read(in, buf) // what happened is looked at above
	}
	return nil
}
