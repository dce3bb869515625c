package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Child is a command that runs beside us in our own process group, with our streams and terminal.
type Child struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	stop   func()
	signal atomic.Int32 // the last that was meant for it
}

// Start starts path as a child. Until it ends, the signals of a terminal reach both of us and only the child acts on them;
// those that are sent to this process alone are passed on.
func Start(path string, argv, env []string) (*Child, error) {
	cmd := exec.Command(path)
	cmd.Args, cmd.Env = argv, first(env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 16)
	inheritIgnored()
	for _, sig := range []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2} {
		if signal.Ignored(sig) {
			continue // nohup, or a background job: the child must inherit that
		}
		// DefaultSignals took some of them from the runtime, which takes a signal back only after it let go of it.
		signal.Ignore(sig)
		signal.Notify(signals, sig)
	}
	if err := cmd.Start(); err != nil {
		signal.Stop(signals)
		return nil, &NotExecutableError{argv[0], errors.Unwrap(err)}
	}
	c := &Child{cmd: cmd, ended: make(chan struct{}), stop: func() { signal.Stop(signals); close(signals) }}
	go c.pass(signals)
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(c.ended)
	}()
	return c, nil
}

// PID is the child's.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Ended is closed at its end.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// Wait waits for its end and says how that was: "exit status 3".
func (c *Child) Wait() string {
	<-c.ended
	c.stop()
	return fmt.Sprint(c.cmd.ProcessState)
}

// Signal waits for its end and names the signal that ended it, or the last that was sent to it through us: "SIGINT". "" is a
// life without one.
func (c *Child) Signal() string {
	<-c.ended
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		if name := signalOf(status); name != "" {
			return name
		}
	}
	return unix.SignalName(syscall.Signal(c.signal.Load()))
}

// Hold starts the holder for the child, whose descriptor keep is of the lease, and closes what this process has of it.
func (c *Child) Hold(keep int, lock *os.File, args ...string) error {
	pidfd, err := Pidfd(c.PID())
	if err == nil {
		err = StartHolderFor(pidfd, keep, args...)
		_ = pidfd.Close()
	}
	_ = unix.Close(keep)
	_ = lock.Close()
	if err != nil {
		_ = c.cmd.Process.Kill()
	}
	return err
}

// Exit waits for the child's end and ends this process in the same way. It does not return.
func (c *Child) Exit() {
	<-c.ended
	c.stop()
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // one core file is enough
		setDefault(status.Signal())
		_ = unix.Kill(os.Getpid(), status.Signal())
		<-make(chan struct{}) // the signal may be on its way
	}
	os.Exit(c.cmd.ProcessState.ExitCode())
}

// pass hands signals on. One of the terminal's came to the child as well, when this process group is in front.
func (c *Child) pass(signals <-chan os.Signal) {
	for sig := range signals {
		if n, ok := sig.(syscall.Signal); ok && n != unix.SIGUSR1 && n != unix.SIGUSR2 {
			c.signal.Store(int32(n)) //nolint:gosec // below 65
		}
		if (sig == unix.SIGINT || sig == unix.SIGQUIT) && inFront() {
			continue
		}
		_ = c.cmd.Process.Signal(sig)
	}
}

// inFront reports whether our process group is the foreground group of our terminal.
func inFront() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
