// Package batch starts many commands beside each other, each in a session of its own and with its output in a file, and
// waits so that an end can be written down before the process is buried. It knows processes and descriptors, not what they are for.
package batch

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"gpuard/internal/host/sys"

	"golang.org/x/sys/unix"
)

// Command is one to start.
type Command struct {
	Path, Dir string
	Argv, Env []string // of a name that is there twice the first counts
	Log       *os.File // standard output and standard error; standard input is empty
	Lease     *os.File // gets a high number; nil none
}

// leaseFD is far above what scripts use by number.
const leaseFD = 200

// Start starts a command and returns its PID, which is its own until Bury. It gets no other descriptor than those of Command. A
// script without "#!" goes to the shell, as with execvp.
func Start(c Command, null *os.File) (pid int, err error) {
	// Driver libraries open files without O_CLOEXEC; before Linux 5.11 those are inherited.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	files := []uintptr{null.Fd(), c.Log.Fd(), c.Log.Fd()}
	if c.Lease != nil {
		at := leaseFD
		var limit unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur <= leaseFD {
			at = max(3, int(limit.Cur)-1) //nolint:gosec // small
		}
		for len(files) < at {
			files = append(files, ^uintptr(0))
		}
		files = append(files, c.Lease.Fd())
	}
	attr := &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}}
	pid, err = syscall.ForkExec(c.Path, c.Argv, attr)
	if errors.Is(err, unix.ENOEXEC) {
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"/bin/sh", c.Path}, c.Argv[1:]...), attr)
	}
	return pid, err
}

// Ended is how a process ended.
type Ended struct {
	Code   int    // -1 when a signal ended it
	Signal string // that ended it: "SIGKILL"; "" none
}

// Await waits until a child has ended, and leaves it to be buried.
func Await(pid int) (Ended, error) {
	// siginfo_t as waitid(2) fills it; the fields behind these are not needed.
	var info struct {
		signo, errno, code, _ int32
		pid, uid, status      int32
		_                     [100]byte
	}
	for {
		_, _, errno := unix.Syscall6(unix.SYS_WAITID, unix.P_PID, uintptr(pid), uintptr(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, 0, 0) //nolint:gosec // the kernel fills it
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return Ended{}, fmt.Errorf("cannot wait for process %d: %w", pid, errno)
		}
		const exited = 1 // CLD_EXITED
		if info.code == exited {
			return Ended{Code: int(info.status)}, nil
		}
		return Ended{-1, unix.SignalName(syscall.Signal(info.status))}, nil
	}
}

// Bury takes away a child that has ended; its number may then be another's.
func Bury(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// AwaitOther waits for a process that need not be a child, and was made at that time. known is false where it is gone and the
// kernel does not say how it ended, which it does from Linux 6.15 on.
func AwaitOther(pid int, start uint64) (ended Ended, known bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return Ended{}, false
	}
	defer unix.Close(fd)                                        //nolint:errcheck // read only
	if p, ok := sys.ReadProcess(pid); !ok || p.Start != start { // the number is another's by now
		return Ended{}, false
	}
	sys.AwaitExit(fd)
	for range 100 { // until its parent has buried it, or if that takes its time, as long as it is not
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		if err := unix.IoctlPidfdInfo(fd, &info); err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			return outcome(syscall.WaitStatus(info.Exit_code)), true //nolint:gosec // the bits of wait(2)
		}
		if p, ok := sys.ReadProcess(pid); ok && p.Dead() && p.Start == start && readable(pid) {
			return outcome(syscall.WaitStatus(p.Exit)), true
		}
		_, _ = unix.Poll(nil, 2)
	}
	return Ended{}, false
}

// readable reports whether the kernel tells us how the process ended: of somebody else's it says 0.
func readable(pid int) bool {
	var st unix.Stat_t
	err := unix.Lstat(fmt.Sprintf("/proc/%d", pid), &st)
	return err == nil && (os.Geteuid() == 0 || int(st.Uid) == os.Geteuid())
}

func outcome(status syscall.WaitStatus) Ended {
	if status.Signaled() {
		return Ended{-1, unix.SignalName(status.Signal())}
	}
	return Ended{Code: status.ExitStatus()}
}

// Processes lists all that can be seen, ended or not, the oldest first.
func Processes() []sys.Process {
	return slices.SortedFunc(maps.Values(sys.Processes()), func(a, b sys.Process) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID)) })
}

// End sends a signal ("SIGTERM") to a process, to all that descend from it and to all of its session, and reports whether one
// of them lives. Those are noted in known, with their start, and count the next time too: what has lost its parent by then, and
// has a session of its own, can be found in no other way.
func End(leader int, signal string, known map[int]uint64) bool {
	all := Processes()
	if p, ok := sys.ReadProcess(leader); ok {
		known[leader] = p.Start
	}
	chosen, found := map[int]bool{}, false
	for more := true; more; {
		more = false
		for _, p := range all {
			start, before := known[p.PID]
			if !chosen[p.PID] && (before && start == p.Start || chosen[p.Parent] || p.Session == leader) && p.PID != os.Getpid() {
				chosen[p.PID], known[p.PID], more = true, p.Start, true
			}
		}
	}
	for pid := range chosen {
		err := sys.Signal(pid, func() bool {
			now, ok := sys.ReadProcess(pid)
			return ok && !now.Dead() && now.Start == known[pid]
		}, unix.SignalNum(signal), unix.SIGCONT)
		found = found || err == nil
	}
	return found
}

// Message writes to a pipe without waiting for its reader.
func Message(pipe int, b []byte) { _, _ = unix.Write(pipe, b) }

// Patient makes a pipe one that never holds its writer up.
func Patient(pipe int) { _ = unix.SetNonblock(pipe, true) }

// HungUp reports whether all who could write to a pipe are gone.
func HungUp(pipe int) bool {
	fds := []unix.PollFd{{Fd: int32(pipe)}} //nolint:gosec // a descriptor
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLHUP != 0
}
