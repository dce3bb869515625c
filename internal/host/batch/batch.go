// Package batch runs many commands at the same time, each in a session of its own and with its output in a file. Its
// wait leaves the process a zombie, so that the caller can record the end before it reaps the process. It does not know
// what the commands are for.
//
//	pid, err := batch.StartCommand(command, null)
//	ended, err := batch.AwaitChild(pid)
//	// record it, then:
//	batch.ReapChild(pid)
package batch

import (
	"cmp"
	"errors"
	"fmt"
	"gpuard/internal/host/program"
	"maps"
	"math"
	"os"
	"slices"
	"syscall"
	"time"

	"gpuard/internal/host/sys"

	"golang.org/x/sys/unix"
)

// Command is a command to start.
type Command struct {
	Path, Dir string
	// If a variable is in Env twice, the first counts.
	Argv, Env []string
	// Standard input; nil: it is empty.
	Input *os.File
	// Standard output and standard error.
	Log *os.File
	// Inherited as LeaseFD; nil for none.
	Lease *os.File
}

// leaseFD is far above the descriptors that scripts use by number.
const leaseFD = 200

// LeaseFD is the descriptor under which a command inherits its lease.
func LeaseFD() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur <= leaseFD {
		return max(3, int(limit.Cur)-1) //nolint:gosec // small
	}
	return leaseFD
}

// StartCommand starts a command and returns its PID, which is not used again before ReapChild. The command gets only
// the descriptors in Command; null is an empty standard input. A script without "#!" is run by the shell, as execvp(3)
// does.
func StartCommand(c Command, null *os.File) (pid int, err error) {
	// Driver libraries open files without O_CLOEXEC; before Linux 5.11 those are inherited.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	files := []uintptr{null.Fd(), c.Log.Fd(), c.Log.Fd()}
	if c.Input != nil {
		files[0] = c.Input.Fd()
	}

	if c.Lease != nil {
		for at := LeaseFD(); len(files) < at; {
			files = append(files, ^uintptr(0))
		}
		files = append(files, c.Lease.Fd())
	}

	attr := &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}}
	err = program.StartOrShell(c.Path, c.Argv, func(path string, argv []string) (err error) {
		pid, err = syscall.ForkExec(path, argv, attr)
		return err
	})

	return pid, err
}

// ExitStatus is how a process ended.
type ExitStatus struct {
	// -1 if a signal ended it.
	Code int
	// That ended it: "SIGKILL"; "" for none.
	Signal string
}

// AwaitChild waits until a child has ended, and leaves it a zombie.
func AwaitChild(pid int) (ExitStatus, error) {
	code, signal, err := sys.Process{PID: pid}.AwaitEnd()
	if err != nil {
		return ExitStatus{}, fmt.Errorf("cannot wait for process %d: %w", pid, err)
	}
	return ExitStatus{code, signal}, nil
}

// ReapChild reaps a child that has ended. After that, another process may get its PID.
func ReapChild(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// AwaitProcess waits for the process with that PID and start time, which need not be a child. known is false if it is
// gone and the kernel does not say how it ended; since Linux 6.15 the kernel does.
func AwaitProcess(pid int, start uint64) (ended ExitStatus, known bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return ExitStatus{}, false
	}

	defer unix.Close(fd) //nolint:errcheck // read only
	if p, ok := sys.ReadProcess(pid); !ok || p.Start != start {
		// The PID is another process's by now.
		return ExitStatus{}, false
	}

	sys.AwaitExit(fd)

	for range 100 {
		// PIDFD_INFO_EXIT is known once the parent has reaped it, /proc as long as it has not.
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		if err := unix.IoctlPidfdInfo(fd, &info); err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			return exitOutcome(syscall.WaitStatus(info.Exit_code)), true //nolint:gosec // the bits of wait(2)
		}
		if p, ok := sys.ReadProcess(pid); ok && p.IsDead() && p.Start == start && canReadExit(pid) {
			return exitOutcome(syscall.WaitStatus(p.Exit)), true
		}
		_, _ = unix.Poll(nil, 2)
	}

	return ExitStatus{}, false
}

// canReadExit reports whether /proc/PID/stat has the exit status for this user: for other users' processes it is 0.
func canReadExit(pid int) bool {
	var st unix.Stat_t
	err := unix.Lstat(fmt.Sprintf("/proc/%d", pid), &st)
	return err == nil && (os.Geteuid() == 0 || int(st.Uid) == os.Geteuid())
}

func exitOutcome(status syscall.WaitStatus) ExitStatus {
	if status.Signaled() {
		return ExitStatus{-1, unix.SignalName(status.Signal())}
	}
	return ExitStatus{Code: status.ExitStatus()}
}

// ListProcesses lists all visible processes, ended or not, the oldest first.
func ListProcesses() []sys.Process {
	return slices.SortedFunc(maps.Values(sys.ReadProcesses()), func(a, b sys.Process) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
	})
}

// SignalJob sends a signal ("SIGTERM") to a process, to all its descendants and to all processes of its session, which
// is not that of this process, and reports whether one of them was alive. It adds them to known, with their start, and
// signals those in known the next time too: a process that has lost its parent by then, and has a session of its own,
// cannot be found in another way.
func SignalJob(leader int, signal string, known map[int]uint64) bool {
	all, session := ListProcesses(), leader
	if p, ok := sys.ReadProcess(leader); ok {
		known[leader] = p.Start
		if own, ok := sys.ReadProcess(os.Getpid()); ok && own.Session != p.Session {
			// That of the keeper that started it.
			session = p.Session
		}
	}

	chosen, found := map[int]bool{}, false
	for more := true; more; {
		more = false
		for _, p := range all {
			start, before := known[p.PID]
			if !chosen[p.PID] && (before && start == p.Start || chosen[p.Parent] || p.Session == session) && p.PID != os.Getpid() {
				chosen[p.PID], known[p.PID], more = true, p.Start, true
			}
		}
	}

	for pid := range chosen {
		err := sys.SendSignals(pid, func() bool {
			now, ok := sys.ReadProcess(pid)
			return ok && !now.IsDead() && now.Start == known[pid]
		}, unix.SignalNum(signal), unix.SIGCONT)
		found = found || err == nil
	}

	return found
}

// KillJob kills what SignalJob would ask, again and again until nothing of it is left, or patience is over: a process
// that was killed still has its files until the kernel has come round to ending it, and may have started another one
// meanwhile.
func KillJob(leader int, known map[int]uint64, patience time.Duration) {
	// Each look reads all of /proc, so that they become rarer.
	pause := time.Millisecond
	for end := time.Now().Add(patience); SignalJob(leader, "SIGKILL", known) && time.Now().Before(end); pause = min(2*pause, 100*time.Millisecond) {
		time.Sleep(pause)
	}
}

// InputFile is an open file with this text, to be read from its beginning.
func InputFile(text []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		// Before Linux 6.3.
		fd, err = unix.MemfdCreate("input", unix.MFD_CLOEXEC)
	}

	if err != nil {
		return nil, fmt.Errorf("cannot hand a text to a process: %w", err)
	}

	file := os.NewFile(uintptr(fd), "input")
	if _, err := file.WriteAt(text, 0); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("cannot hand a text to a process: %w", err)
	}

	return file, nil
}

// SignalProcess sends a signal ("SIGTERM") to one process, which ends what belongs to it by itself.
func SignalProcess(pid int, start uint64, signal string) {
	_ = sys.SendSignals(pid, func() bool {
		now, ok := sys.ReadProcess(pid)
		return ok && !now.IsDead() && now.Start == start
	}, unix.SignalNum(signal), unix.SIGCONT)
}

// WriteNonblocking writes to a pipe without waiting for its reader.
func WriteNonblocking(pipe int, b []byte) { _, _ = unix.Write(pipe, b) }

// SetNonblocking makes a pipe non-blocking, so that WriteNonblocking never waits.
func SetNonblocking(pipe int) { _ = unix.SetNonblock(pipe, true) }

// HasHungUp reports whether all writers of a pipe are gone.
func HasHungUp(pipe int) bool {
	fds := []unix.PollFd{{Fd: int32(pipe)}} //nolint:gosec // a descriptor
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLHUP != 0
}
