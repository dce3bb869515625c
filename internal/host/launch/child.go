package launch

import (
	"errors"
	"fmt"
	"gpuard/internal/host/program"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/visible"
	"gpuard/internal/host/interrupt"
	"gpuard/internal/host/sys"
)

// Command is what a child runs.
type Command struct {
	Path string
	Argv []string
	// The environment; of a name that is there twice the first counts.
	Env []string
	// nil: our own streams.
	Out, Err *os.File
	// Its input is empty, and not ours.
	NoInput bool
	// Descriptors that were open before libraries opened theirs, which the child does not get; nil: all.
	Before map[int]bool
	// The lease's descriptor, which it gets all the same; 0 none.
	Keep int
	// Open file that it gets too, at LowestFD or above; nil none.
	Along *os.File
	// Signals to this process are not passed on: the caller acts on them. Nor does this process stop with the child.
	Apart bool
	// Folder of the cgroup that it begins in; nil, or where that cannot be: ours.
	Group *os.File

	// Dying is called when the child has ended, before it is reaped, with its PID and its exit code, or -1 and the
	// signal that ended it. With it the child must be Apart. It may be nil.
	Dying func(pid, code int, signal string)

	// Born is called right after the start, before the child's end can be noticed: its PID is its own all the while,
	// also when it has ended. After an error the child is killed. It may be nil.
	Born func(*Child) error
}

// Child is a command that runs as a child in our own process group, with our terminal.
type Child struct {
	process *os.Process
	ended   chan struct{}
	signals *signalForwarder
	// Signal that was meant for it, and when (ns after its start); see LastSignalSince.
	last  atomic.Int64
	dying func(pid, code int, signal string)
	// When it stops, we do not.
	alone atomic.Bool
	// We have sent it a signal ourselves.
	asked atomic.Bool
	// When this process was continued after a stop, in ns after the start; stopping: it is about to stop; 0: never.
	resumedAt atomic.Int64
	began     time.Time

	once sync.Once
	// Valid when ended is closed, like all below.
	status unix.WaitStatus
	usage  unix.Rusage
	ran    time.Duration
}

// Start starts the command as a child. Until it ends, the signals of a terminal reach both of us and only the child
// acts on them; those that are sent to this process alone are passed on; and when the child is stopped, this process
// stops in the same way, so that the shell sees what it would see of the command.
func (c Command) Start() (*Child, error) {
	cmd := &exec.Cmd{Env: visible.Env(c.Env).FirstOfEach(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if c.NoInput {
		cmd.Stdin = nil
	}

	if c.Out != nil {
		cmd.Stdout = c.Out
	}

	if c.Err != nil {
		cmd.Stderr = c.Err
	}

	closeLibraryFDs(c.Before, c.Keep)
	if c.Along != nil {
		fd, err := DupInheritable(c.Along)
		if err != nil {
			return nil, err
		}
		defer unix.Close(fd) //nolint:errcheck // the child has it
	}

	inheritIgnored()
	child := &Child{ended: make(chan struct{}), dying: c.Dying, began: time.Now()}
	if c.Apart {
		child.signals = &signalForwarder{}
		child.IgnoreStops()
	} else {
		child.signals = catchSignals(append(forwardedSignals(), unix.SIGTSTP, unix.SIGTTIN), child.rememberSignal, child.forwardSignal)
	}

	err := program.StartOrShell(c.Path, c.Argv, func(path string, argv []string) (err error) {
		cmd.Path, cmd.Args = path, argv
		child.process, err = c.startInGroup(cmd)
		return err
	})
	go child.signals.forwardSignals()
	if err != nil {
		child.signals.stopForwarding()
		return nil, &NotExecutableError{c.Argv[0], errors.Unwrap(err)}
	}

	if c.Born != nil {
		err = c.Born(child)
		if err != nil {
			_ = child.process.Kill()
		}
	}

	go child.waitForEnd()
	if err != nil {
		child.Rest()
		return nil, err
	}

	return child, nil
}

// startInGroup starts a command like cmd, in the group if that works: it may be gone, or a sandbox does not know the
// system call.
func (c Command) startInGroup(like *exec.Cmd) (*os.Process, error) {
	attempt := func(attr *syscall.SysProcAttr) (*os.Process, error) {
		cmd := *like
		cmd.SysProcAttr = attr
		err := cmd.Start()
		return cmd.Process, err
	}
	if c.Group != nil {
		process, err := attempt(&syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(c.Group.Fd())})
		if err == nil {
			return process, nil
		}
	}
	return attempt(nil)
}

// PID is the child's.
func (c *Child) PID() int { return c.process.Pid }

// Ended is closed at its end.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// Wait waits for its end and says how that was: "exit status 3".
func (c *Child) Wait() string {
	<-c.ended
	c.signals.stopForwarding()

	switch {
	case c.status.Signaled() && c.status.CoreDump():
		return "signal: " + c.status.Signal().String() + " (core dumped)"
	case c.status.Signaled():
		return "signal: " + c.status.Signal().String()
	}

	return fmt.Sprintf("exit status %d", c.status.ExitStatus())
}

// Outcome waits for its end: the exit code, or the name of the signal that ended it ("SIGKILL"), for how long it ran,
// and the memory of the largest of the processes that it had waited for, itself included, in bytes (getrusage(2),
// ru_maxrss). The memory is 0, unknown, if it is no more than this process's own, which a child starts with until its
// exec.
func (c *Child) Outcome() (code int, signal string, ran time.Duration, peak int64) {
	<-c.ended
	if c.status.Signaled() {
		signal = unix.SignalName(c.status.Signal())
	}

	peak = c.usage.Maxrss << 10
	if peak <= ownPeakMemory() {
		peak = 0
	}

	return c.status.ExitStatus(), signal, c.ran, peak
}

// EndSignal waits for its end and names the signal that ended it, or the last that was sent to it through us: "SIGINT".
// "" is a life without one.
func (c *Child) EndSignal() string {
	<-c.ended
	if name := endSignalName(syscall.WaitStatus(c.status)); name != "" {
		return name
	}
	return c.LastSignalSince(c.began)
}

// LastSignalSince is the last signal since then that was sent to end the child, to it or to us: "SIGINT"; "" none.
func (c *Child) LastSignalSince(since time.Time) string {
	v := c.last.Load()
	if v == 0 || c.began.Add(time.Duration(v>>7)).Before(since) {
		return ""
	}
	return unix.SignalName(syscall.Signal(v & 0x7f))
}

// rememberSignal remembers a signal for LastSignalSince.
func (c *Child) rememberSignal(sig syscall.Signal) {
	c.last.Store(int64(time.Since(c.began))<<7 | int64(sig))
}

// forwardSignal hands a signal on, unless the child could not be started. A Ctrl-Z may arrive here only after this
// process and the child were stopped by it and continued; passed on, it would stop the child again. The witness cannot
// tell: when the kernel continues a process it discards its pending stop signals (prepare_signal in kernel/signal.c).
func (c *Child) forwardSignal(sig os.Signal) {
	resumed := c.resumedAt.Load()
	late := resumed == stopInProgress || resumed > 0 && time.Since(c.began)-time.Duration(resumed) < lateStopWindow
	if sig == unix.SIGTSTP && late {
		// Only one is dropped for each stop. While this process stops, the value is set again afterwards.
		c.resumedAt.CompareAndSwap(resumed, 0)
		return
	}
	if c.process != nil {
		_ = c.process.Signal(sig)
	}
}

// lateStopWindow is how long after this process was continued a Ctrl-Z of before may be heard: on a machine that stands
// still for a moment it took longer than half a second.
const lateStopWindow = 3 * time.Second

// stopInProgress is the value of resumedAt while this process stops.
const stopInProgress = -1

// AssumeKilled counts a child as killed that does not die, because it is inside a driver that does not answer.
func (c *Child) AssumeKilled() { c.recordEnd(unix.WaitStatus(unix.SIGKILL), unix.Rusage{}) }

// OwnsProcess reports whether a process is a part of what this process does for the child.
func (c *Child) OwnsProcess(pid int) bool {
	return c.signals.ownsProcess(pid)
}

// IgnoreStops ends that this process stops when the child does: it is about to be ended, for which it is stopped.
func (c *Child) IgnoreStops() { c.alone.Store(true) }

// SendSignal sends a signal by name, such as "SIGTERM". A child that is gone gets nothing.
func (c *Child) SendSignal(name string) {
	c.asked.Store(true)
	_ = c.process.Signal(unix.SignalNum(name))
}

// StartHolder starts the holder for the child, which has the lease's lock as descriptor keep, and closes this process's
// lock. It is for Born.
func (c *Child) StartHolder(keep int, lock *os.File, args ...string) error {
	defer func() {
		_ = unix.Close(keep)
		_ = lock.Close()
	}()

	pidfd, err := OpenPidfd(c.PID())
	if err != nil {
		return err
	}

	defer pidfd.Close() //nolint:errcheck // the holder has its own

	return StartHolderFor(pidfd, keep, args...)
}

// WaitAndExit waits for the child's end and ends this process in the same way. It does not return.
func (c *Child) WaitAndExit() {
	<-c.ended
	c.signals.stopForwarding()
	if c.status.Signaled() {
		dieBySignal(c.status.Signal())
	}
	os.Exit(c.status.ExitStatus())
}

// dieBySignal ends this process by a signal.
func dieBySignal(sig unix.Signal) {
	// One core file is enough.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	interrupt.DieBySignal(sig)
}

// Rest waits for the child's end and gives this process its usual signals back: between two children it ends by them.
func (c *Child) Rest() {
	<-c.ended
	c.signals.stopForwarding()
}

// waitForEnd waits for the end, and stops when and as the child stops: not by the terminal's signal itself, which the
// child may ignore, or act on after it has tidied up.
func (c *Child) waitForEnd() {
	if c.dying != nil {
		if code, signal, err := (sys.Process{PID: c.PID()}).AwaitEnd(); err == nil {
			c.dying(c.PID(), code, signal)
		}
	}
	var status unix.WaitStatus
	var usage unix.Rusage
	for looks := 0; ; {
		options := unix.WUNTRACED
		if looks > 0 {
			options |= unix.WCONTINUED | unix.WNOHANG
		}

		pid, err := unix.Wait4(c.PID(), &status, options, &usage)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil && pid == 0:
			looks = c.continueStopped(looks)
			continue
		case err == nil && status.Continued():
			looks = 0
			continue
		case err == nil && status.Stopped():
			// Or stopped again.
			looks = 0
			if !c.alone.Load() && followsStop(status.StopSignal()) {
				c.resumedAt.Store(stopInProgress)
				stopAs(status.StopSignal())
				c.resumedAt.Store(int64(time.Since(c.began)))
				looks = 20
			}
			continue
		case err != nil:
			// Another process has reaped it: its exit status is unknown, so it is no success.
			status = 0xff << 8
		}

		c.recordEnd(status, usage)

		return
	}
}

// continueStopped continues a child that stays stopped after this process was continued, and returns how often to look
// again. A shell continues the whole process group of a job, but the child may have made a group of its own.
func (c *Child) continueStopped(looks int) int {
	switch {
	case !isStopped(c.PID()):
		return 0
	case looks > 1:
		// The signal reaches the members of a group one after the other.
		time.Sleep(2 * time.Millisecond)
		return looks - 1
	}
	_ = c.process.Signal(unix.SIGCONT)
	return 0
}

func (c *Child) recordEnd(status unix.WaitStatus, usage unix.Rusage) {
	c.once.Do(func() {
		c.status, c.usage, c.ran = status, usage, time.Since(c.began)
		awaitSignal(syscall.WaitStatus(status), func() bool { return c.asked.Load() || c.LastSignalSince(time.Now().Add(-time.Second)) != "" })
		close(c.ended)
	})
}

// ownPeakMemory is the most memory that this process has had since its exec, in bytes (proc_pid_status(5), VmHWM).
// ru_maxrss also has that of the program before.
func ownPeakMemory() (most int64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}

	_, line, _ := strings.Cut(string(status), "\nVmHWM:")
	_, _ = fmt.Sscan(line, &most)

	return most << 10
}
