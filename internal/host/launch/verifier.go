package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"gpuard/internal/host/sys"

	"golang.org/x/sys/unix"
)

// StartWatcher starts this program again, as a child of init like a holder, to watch a command, which is or will be
// process pid: flag is the first argument of its command line, before a pidfd, the number of its stream and the orders as
// JSON. It has no part in the lease: a driver that hangs may keep the watcher for ever, and must not keep the lease. It
// inherits out, and writes lines there.
func StartWatcher(flag string, pid int, out *os.File, orders any) error {
	text, err := json.Marshal(orders)
	if err != nil {
		return err
	}

	process, err := OpenPidfd(pid)
	if err != nil {
		return err
	}

	defer process.Close() //nolint:errcheck // close-on-exec anyway
	stream, err := unix.FcntlInt(out.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return fmt.Errorf("cannot watch the command: there is no standard error to say it on: %w", err)
	}

	defer unix.Close(stream) //nolint:errcheck // close-on-exec anyway

	return startDetached("what watches the command", flag, holderEnv(), []int{int(process.Fd()), stream}, []string{string(text)})
}

// InheritWatcherFDs reads the two descriptors of a watcher's command line: the command's pidfd, and where to write.
func InheritWatcherFDs(pidfd, stream string) (process, out *os.File, err error) {
	fds, ok := sys.InheritFDs(pidfd, stream)
	if !ok {
		return nil, nil, errors.New("cannot watch a command by hand: gpuard run starts what does")
	}
	return os.NewFile(uintptr(fds[0]), "pidfd"), os.NewFile(uintptr(fds[1]), "standard error"), nil
}

// ExitChannel returns a channel that is closed when the process of a pidfd has ended; it need not be a child of ours.
// pidfd must stay open until then.
func ExitChannel(pidfd *os.File) <-chan struct{} {
	ended := make(chan struct{})
	fd := int(pidfd.Fd())
	go func() {
		defer close(ended)
		sys.AwaitExit(fd)
	}()

	return ended
}

// SendSignal sends a signal to the process of a pidfd, and to no other that has its PID by now.
func SendSignal(pidfd *os.File, sig unix.Signal) error {
	return unix.PidfdSendSignal(int(pidfd.Fd()), sig, nil, 0)
}
