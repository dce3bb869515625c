package launch

import (
	"os"
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
	running map[int]*Child // by number
	// The last signal to end them.
	meant time.Time
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
	crew := &ChildGroup{command: Command{Path: c.Path, Argv: c.Argv, Apart: true}, ended: make(chan ChildEnd, most), running: map[int]*Child{}}
	crew.signals = catchSignals(forwardedSignals(), func(sig syscall.Signal) {
		crew.mu.Lock()
		defer crew.mu.Unlock()
		crew.meant, crew.by = time.Now(), sig
		for _, child := range crew.running {
			child.rememberSignal(sig)
		}
	}, func(sig os.Signal) { crew.eachRunning(func(child *Child) { child.forwardSignal(sig) }) })
	go crew.signals.forwardSignals()

	return crew
}

// Start starts one more, with the environment and our streams; the input is that of number 0, and that of others is
// empty.
func (c *ChildGroup) Start(number int, env []string) error {
	command := c.command
	command.Env, command.NoInput = env, number != 0
	c.mu.Lock()
	defer c.mu.Unlock()
	child, err := command.Start()
	if err != nil {
		return err
	}

	c.running[number] = child
	if c.by != nil {
		// It came too late for what all the others were told.
		child.forwardSignal(c.by)
	}

	go func() {
		code, signal, _, _ := child.Outcome()
		c.mu.Lock()
		delete(c.running, number)
		c.mu.Unlock()
		c.ended <- ChildEnd{Number: number, PID: child.PID(), Code: code, Signal: signal}
	}()

	return nil
}

// Ended tells each end once.
func (c *ChildGroup) Ended() <-chan ChildEnd { return c.ended }

// Running returns the PIDs of those that run, by number.
func (c *ChildGroup) Running() map[int]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	pids := map[int]int{}
	for number, child := range c.running {
		pids[number] = child.PID()
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
	ours := c.signals.ownsProcess(pid)
	c.eachRunning(func(child *Child) { ours = ours || child.PID() == pid })
	return ours
}

// SendSignal sends a signal by name, such as "SIGTERM", to those that run.
func (c *ChildGroup) SendSignal(name string) {
	c.eachRunning(func(child *Child) { child.SendSignal(name) })
}

func (c *ChildGroup) eachRunning(do func(*Child)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, child := range c.running {
		do(child)
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
