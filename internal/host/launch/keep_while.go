package launch

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// IsLeaseGone reports whether the lock's file has no name any more: the lease was taken over, or released.
func (h *HolderWatch) IsLeaseGone() bool {
	var st unix.Stat_t
	return unix.Fstat(int(h.lock.Fd()), &st) == nil && st.Nlink == 0
}

// WaitForNextStart keeps the lease while a next start of the command may come. It returns when that start has taken it
// over (IsLeaseGone), or is not to be expected any more: file has been missing for rest (the user may be writing it
// anew), parent (a pidfd) has ended, or most is over. inotify watches the files; changes that it does not report are
// polled for, also if the user has no inotify instance left (inotify(7), max_user_instances).
func (h *HolderWatch) WaitForNextStart(file string, parent *os.File, most, rest time.Duration) {
	in, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		in = -1
	}

	defer unix.Close(in) //nolint:errcheck // read only
	watched := func(path string) bool {
		_, err := unix.InotifyAddWatch(in, path, unix.IN_ATTRIB|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF)
		return err == nil
	}

	var missing time.Time
	for end := time.Now().Add(most); ; {
		// Before each check, or a change in between would be missed; and each time anew, since the file may be another
		// one under the same name by now.
		told := watched("/proc/self/fd/"+strconv.Itoa(int(h.lock.Fd()))) && watched(file)
		now, last := time.Now(), end
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			missing = time.Time{}
		} else {
			if missing.IsZero() {
				missing = now
			}
			if soon := missing.Add(rest); soon.Before(end) {
				last = soon
			}
		}

		left := last.Sub(now)
		if left <= 0 || h.IsLeaseGone() {
			return
		}

		if !told {
			left = min(left, rest/10)
		}

		fds := []unix.PollFd{{Fd: int32(in), Events: unix.POLLIN}, {Fd: int32(parent.Fd()), Events: unix.POLLIN}} //nolint:gosec // descriptors
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) || fds[1].Revents != 0 {
			return
		}

		// What happened is looked at above.
		_, _ = unix.Read(in, make([]byte, 4096))
	}
}
