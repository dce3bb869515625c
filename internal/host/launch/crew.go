package launch

import (
	"errors"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/program"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ChildGroup is several commands that run as children in our own process group, with our terminal. Signals of the
// terminal reach all of them and us; those that are sent to this process alone are passed on to each once. What stops
// this process (Ctrl-Z) stops them too.
type ChildGroup struct {
	command Command
	signals *signalForwarder
	ended   chan ChildEnd

	mu      sync.Mutex
	running map[int]*os.Process // by number
	// The last signal to end them.
	meant time.Time
	// We have sent them a signal ourselves.
	asked bool
	by    os.Signal // how
}

// ChildEnd is the end of one of a crew.
type ChildEnd struct {
	// The number in the order of the starts, from 0.
	Number int
	PID    int
	// Exit code; -1 when a signal ended it.
	Code int
	// That ended it: "SIGKILL"; "" none.
	Signal string
}

// Failed reports whether the command says that it failed.
func (e ChildEnd) Failed() bool { return e.Code != 0 }

// NewChildGroup begins a crew of at most that many, which all run the command. From now on signals are passed on. Of
// the command only Path and Argv count.
func (c Command) NewChildGroup(most int) *ChildGroup {
	crew := &ChildGroup{command: c, ended: make(chan ChildEnd, most), running: map[int]*os.Process{}}
	crew.signals = catchSignals(forwardedSignals(), func(sig syscall.Signal) {
		crew.mu.Lock()
		defer crew.mu.Unlock()
		crew.meant, crew.by = time.Now(), sig
	}, crew.signalAll)
	go crew.signals.forwardSignals()

	return crew
}

// Start starts one more, with the environment and our streams; the input is that of number 0, and that of others is
// empty.
func (c *ChildGroup) Start(number int, env []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var cmd *exec.Cmd
	err := program.StartOrShell(c.command.Path, c.command.Argv, func(path string, argv []string) error {
		cmd = &exec.Cmd{Path: path, Args: argv, Env: visible.Env(env).FirstOfEach(), Stdout: os.Stdout, Stderr: os.Stderr}
		if number == 0 {
			cmd.Stdin = os.Stdin
		}
		return cmd.Start()
	})
	if err != nil {
		return &NotExecutableError{c.command.Argv[0], errors.Unwrap(err)}
	}

	c.running[number] = cmd.Process
	if c.by != nil {
		// It came too late for what all the others were told.
		_ = cmd.Process.Signal(c.by)
	}

	go c.waitForMember(number, cmd.Process)

	return nil
}

func (c *ChildGroup) waitForMember(number int, process *os.Process) {
	end := ChildEnd{Number: number, PID: process.Pid, Code: -1}
	if state, err := process.Wait(); err == nil {
		status, _ := state.Sys().(syscall.WaitStatus)
		awaitSignal(status, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.asked || c.meant.After(time.Now().Add(-time.Second))
		})
		end.Code = status.ExitStatus()
		if status.Signaled() {
			end.Signal = unix.SignalName(status.Signal())
		}
	}

	c.mu.Lock()
	delete(c.running, number)
	c.mu.Unlock()
	c.ended <- end
}

// Ended tells each end once.
func (c *ChildGroup) Ended() <-chan ChildEnd { return c.ended }

// Running returns the PIDs of those that run, by number.
func (c *ChildGroup) Running() map[int]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	pids := map[int]int{}
	for number, process := range c.running {
		pids[number] = process.Pid
	}

	return pids
}

// HasSignalSince reports whether a signal to end all has come since then.
func (c *ChildGroup) HasSignalSince(since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.meant.After(since)
}

// OwnsProcess reports whether a process is one of the crew, or a part of what this process does for it.
func (c *ChildGroup) OwnsProcess(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, process := range c.running {
		if process.Pid == pid {
			return true
		}
	}

	return c.signals.witness != nil && c.signals.witness.pid == pid
}

// SendSignal sends a signal by name, such as "SIGTERM", to those that run.
func (c *ChildGroup) SendSignal(name string) {
	c.mu.Lock()
	c.asked = true
	c.mu.Unlock()
	c.signalAll(unix.SignalNum(name))
}

func (c *ChildGroup) signalAll(sig os.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, process := range c.running {
		_ = process.Signal(sig)
	}
}

// ExitAs ends this process the way one of the crew ended. It does not return.
func (c *ChildGroup) ExitAs(as ChildEnd) {
	c.signals.stopForwarding()
	if as.Signal != "" {
		dieBySignal(unix.SignalNum(as.Signal))
	}
	os.Exit(as.Code)
}
