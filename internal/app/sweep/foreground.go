package sweep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/status"

	core "gpuard/internal/core/sweep"
	"gpuard/internal/host/interrupt"
	"gpuard/internal/host/journal"
	"gpuard/internal/host/proctree"
)

// Progress is how far a sweep is.
type Progress struct {
	Count   core.Count
	Began   time.Time        // when this process began
	Before  int              // how many were over then
	Stand   *status.Standing // why no device is free; nil when none is waited for
	Stopped bool             // what runs is being ended
}

// Outcome is how it ended.
type Outcome struct {
	Count       core.Count
	Failures    []core.Result // the first of those that failed
	Interrupted os.Signal     // that ended it; nil none
	Nothing     bool          // was done, and the folder is gone again
}

// shownFailures is how many failures are shown on the terminal.
const shownFailures = 5

// look is the time between two readings of the journal.
const look = 250 * time.Millisecond

// conductor is the foreground process of a sweep. It is the parent of the runs that a killed runner leaves behind, so
// it records how they end.
type conductor struct {
	*Sweep
	show    func(Progress)
	now     Progress
	tree    *proctree.Tree
	caught  *interrupt.Caught
	heard   os.Signal   // that ends the sweep
	stopped atomic.Bool // what is left of a runner was asked to end
	failure error
	fruit   int // runners in a row that ended without having done anything
}

// patience is how many of those there may be.
const patience = 3

// Conduct runs what is to be done. show is called at each change, and every now and then. The tables of results are
// written in any case.
func (s *Sweep) Conduct(ctx context.Context, show func(Progress)) (*Outcome, error) {
	c := &conductor{Sweep: s, show: show, now: Progress{Began: time.Now(), Count: s.state.Count, Before: s.state.Count.Done()}}
	all := func(int) bool { return true } // all children are reaped below
	c.tree, c.caught = proctree.Adopt(all, machine.OwnHelper), interrupt.Catch()
	err := s.recover(c)
	for err == nil && c.heard == nil && c.failure == nil && s.state.Count.Waiting > 0 {
		err = c.employ(ctx)
	}
	c.caught.Stop()
	c.tree.Leave()
	if err == nil {
		err = c.failure
	}
	out := &Outcome{Count: s.state.Count, Interrupted: c.heard}
	if out.Nothing = err != nil && s.fresh && out.Count.Waiting == out.Count.All; out.Nothing {
		s.discard() // what can never be is no sweep
		return out, err
	}
	if terr := s.tables(); err == nil {
		err = terr
	}
	for _, run := range s.state.In(core.Failed) {
		if len(out.Failures) < shownFailures {
			out.Failures = append(out.Failures, s.state.Result(&s.Request.Grid, run))
		}
	}
	return out, err
}

// employ starts a runner and waits for its end. It also waits for the runs of a runner that was killed.
func (c *conductor) employ(ctx context.Context) error {
	life, ours, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot start the runner: %w", err)
	}
	defer ours.Close() //nolint:errcheck // nothing was written
	theirs, messages, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot start the runner: %w", err)
	}
	defer theirs.Close() //nolint:errcheck // read only
	cmd := exec.CommandContext(ctx, "/proc/self/exe", c.Dir)
	cmd.Args = []string{"gpuard", Flag, c.Dir}
	cmd.Dir, cmd.Stderr, cmd.ExtraFiles = c.Request.Folder, os.Stderr, []*os.File{life, messages, c.lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the keys of the terminal are not for it
	err = cmd.Start()
	_, _ = life.Close(), messages.Close()
	if err != nil {
		return fmt.Errorf("cannot start the runner: %w", err)
	}
	received, ended := make(chan message, 16), make(chan struct{})
	go receive(theirs, received)
	go func() {
		_ = cmd.Wait() // cmd.ProcessState says how it ended
		close(ended)
	}()
	done := c.state.Count.Done()
	err = c.watch(received, ended, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	if err != nil || c.failure != nil || c.heard != nil && c.state.Count.Running == 0 {
		return err
	}
	if err := c.inherit(cmd.Process.Pid); err != nil {
		return err
	}
	if c.fruit++; c.state.Count.Done() > done {
		c.fruit = 0
	}
	if c.fruit == patience && c.heard == nil {
		return fmt.Errorf("cannot go on: the process that starts the runs ended %d times without having done one (%v)", patience, cmd.ProcessState)
	}
	return nil
}

// watch follows a runner to its end.
func (c *conductor) watch(received <-chan message, ended <-chan struct{}, stop func()) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for over := false; !over || received != nil; {
		select {
		case m, open := <-received:
			if !open {
				received = nil
				continue
			}
			c.handle(m)
		case <-ended:
			over, ended = true, nil
		case sig := <-c.caught.Signals:
			c.signal(sig, stop)
		case <-tick.C:
		}
		if err := c.progress(); err != nil {
			return err
		}
	}
	return c.progress()
}

// handle acts on what the runner says.
func (c *conductor) handle(m message) {
	switch {
	case m.Say != "":
		c.host.Say(m.Say)
	case m.Loud != "":
		c.host.Loud(m.Loud)
	case m.Moves, m.Stand != nil:
		c.now.Stand = m.Stand
	case m.Refusal != nil:
		c.failure = m.Refusal
	case m.Full:
		c.failure = &fullError{m.Error}
	case m.Error != "":
		c.failure = errors.New(m.Error)
	}
}

// fullError is a full disk, which a user can mend.
type fullError struct{ text string }

// Error is what could not be written.
func (e *fullError) Error() string { return e.text }

// Unwrap is the kernel's error.
func (e *fullError) Unwrap() error { return syscall.ENOSPC }

// signal ends what runs, or stops and continues this process.
func (c *conductor) signal(sig os.Signal, stop func()) {
	switch sig {
	case syscall.SIGCONT:
	case syscall.SIGTSTP:
		c.host.Say("stopped; the runs go on, and fg or bg shows them again")
		interrupt.Suspend()
	default:
		c.heard, c.now.Stopped, c.now.Stand = sig, true, nil
		stop()
	}
}

func (c *conductor) progress() error {
	err := c.catchUp()
	c.now.Count = c.state.Count
	c.show(c.now)
	return err
}

// tables writes the results of all runs.
func (s *Sweep) tables() error {
	err := journal.Replace(filepath.Join(s.Dir, "results.csv"), func(w io.Writer) error { return s.state.WriteCSV(w, &s.Request.Grid) })
	if err == nil {
		err = journal.Replace(filepath.Join(s.Dir, "results.json"), func(w io.Writer) error { return s.state.WriteJSON(w, &s.Request.Grid) })
	}
	return err
}

// Die ends this process by the signal that ended the sweep.
func Die(sig os.Signal) { interrupt.Die(sig) }
