package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/status"

	core "gpuard/internal/core/runs"
	"gpuard/internal/host/interrupt"
	"gpuard/internal/host/journal"
	"gpuard/internal/host/proctree"
	"gpuard/internal/host/sys"
)

// Folder is a folder with a journal, which this process has locked.
type Folder struct {
	Dir     string // absolute
	Host    *machine.Host
	Lock    *os.File
	Journal *journal.Journal
	State   *core.State
	Flag    string              // the first argument of its runner, followed by Dir
	Mark    string              // the variable in which a run has its own folder
	Work    string              // the folder that the runner is started in
	Grace   time.Duration       // between SIGTERM and SIGKILL
	Ended   func(run int) error // called when a run is over whose end this process has written down; nil for none
	Queue   bool                // runs are added while it goes, and nobody looks: no progress is shown, and what a killed runner left delays nothing
}

// Path is the folder of a run.
func (f *Folder) Path(run int) string { return filepath.Join(f.Dir, f.State.Folder(run)) }

// Add writes an event, and counts it when it is written. The runner must not be there.
func (f *Folder) Add(e core.Event) error {
	line, err := json.Marshal(e)
	if err == nil {
		err = f.Journal.Append(line)
	}
	if err == nil {
		err = f.CatchUp()
	}
	if err == nil && f.Ended != nil && (e.Kind == core.End || e.Kind == core.Gone) && f.State.Over(e.Run) {
		err = f.Ended(e.Run)
	}
	return err
}

// CatchUp reads what was written since.
func (f *Folder) CatchUp() error {
	return f.Journal.Next(func(line []byte) error { return f.State.Read(line, f.Journal.Offset()) })
}

// Close lets the folder go.
func (f *Folder) Close() {
	for _, file := range []io.Closer{f.Journal, f.Lock} {
		if file != (*journal.Journal)(nil) && file != (*os.File)(nil) {
			_ = file.Close()
		}
	}
}

// Progress is how far the runs are.
type Progress struct {
	Count   core.Count
	Began   time.Time        // when this process began
	Before  int              // how many were over then
	Stand   *status.Standing // why no device is free; nil when none is waited for
	Stopped bool             // what runs is being ended
}

// look is the time between two readings of the journal.
const look = 250 * time.Millisecond

// conductor is the process that people see, or a queue's first one. It is the parent of the runs that a killed runner leaves behind, so
// it records how they end.
type conductor struct {
	*Folder
	show    func(Progress)
	now     Progress
	tree    *proctree.Tree
	caught  *interrupt.Caught
	heard   os.Signal // that ends the sweep
	hurry   func()    // kills what is left of a runner that was asked to end; nil: it was not
	failure error
	strays  chan strayEnd // ends of runs that no runner waits for
	left    []stray       // those runs
	fruit   int           // runners in a row that ended without having done anything

	mu      sync.Mutex
	runners []int // PIDs of the last ones that this process has started: at most mostRunners
}

// mostRunners is of how many runners this process knows that they were its own: a PID is used again some day.
const mostRunners = 8

// isAwaited reports whether this process itself waits for a child of its own: for all but what a killed runner had beside its runs, such
// as what measures, which is in the session of the runner.
func (c *conductor) isAwaited(pid int) bool {
	p, found := sys.ReadProcess(pid)
	c.mu.Lock()
	defer c.mu.Unlock()
	return !found || p.Session == pid || !slices.Contains(c.runners, p.Session)
}

// patience is how many of those there may be.
const patience = 3

// Conduct runs what is to be done. show is called at each change, and every now and then. heard is the signal that ended
// it; nil none.
func (f *Folder) Conduct(ctx context.Context, show func(Progress)) (heard os.Signal, err error) {
	c := &conductor{Folder: f, show: show, strays: make(chan strayEnd), now: Progress{Began: time.Now(), Count: f.State.Count, Before: f.State.Count.Done()}}
	c.tree, c.caught = proctree.Adopt(c.isAwaited, machine.OwnHelper, isKeeper), interrupt.Catch()
	err = c.recover()
	for err == nil && c.heard == nil && c.failure == nil && (f.State.Startable() || f.Queue && len(c.left) > 0) {
		if f.State.Startable() {
			err = c.employ(ctx)
		} else {
			err = c.watch(nil, closed(), func() {})
		}
	}
	c.caught.Stop()
	c.tree.Leave()
	if err == nil {
		err = c.failure
	}
	return c.heard, err
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
	cmd.Args = []string{cmp.Or(c.Host.Name, "gpuard"), c.Flag, c.Dir}
	cmd.Dir, cmd.Stderr, cmd.ExtraFiles = c.Work, os.Stderr, []*os.File{life, messages, c.Lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the keys of the terminal are not for it
	err = cmd.Start()
	_, _ = life.Close(), messages.Close()
	if err != nil {
		return fmt.Errorf("cannot start the runner: %w", err)
	}
	c.mu.Lock()
	c.runners = append(c.runners[max(0, len(c.runners)-mostRunners+1):], cmd.Process.Pid)
	c.mu.Unlock()
	received, ended := make(chan message, 16), make(chan struct{})
	go receive(theirs, received)
	go func() {
		_ = cmd.Wait() // cmd.ProcessState says how it ended
		close(ended)
	}()
	done := c.State.Count.Done()
	err = c.watch(received, ended, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	if err != nil || c.failure != nil || c.heard != nil && c.State.Count.Running == 0 {
		return err
	}
	if err := c.inherit(cmd.Process.Pid); err != nil {
		return err
	}
	if c.fruit++; c.State.Count.Done() > done {
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
	for over := false; !over || received != nil || c.Queue && ended == nil && len(c.left) > 0 && !c.State.Startable(); {
		if c.Queue && len(c.left) == 0 {
			tick.Stop()
		}
		select {
		case e := <-c.strays:
			if err := c.strayEnded(e, func(over core.Event) error { return c.settle([]core.Event{over}) }); err != nil {
				return err
			}
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

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// handle acts on what the runner says.
func (c *conductor) handle(m message) {
	switch {
	case m.Say != "":
		c.Host.Say(m.Say)
	case m.Loud != "":
		c.Host.Loud(m.Loud)
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
		c.Host.Say("stopped; the runs go on, and fg or bg shows them again")
		interrupt.Suspend()
	default:
		c.heard, c.now.Stopped, c.now.Stand = sig, true, nil
		stop()
	}
}

func (c *conductor) progress() error {
	err := c.CatchUp()
	c.now.Count = c.State.Count
	c.show(c.now)
	for _, s := range c.left { // the runner does not know them
		if c.Queue && s.pid > 0 && !c.State.Wanted(s.run) && c.Host.Proc.Alive(s.pid, s.start) {
			endRun(s.pid, s.start, s.kept, "SIGTERM", map[int]uint64{})
		}
	}
	return err
}

// Die ends this process by the signal that ended the runs.
func Die(sig os.Signal) { interrupt.Die(sig) }
