package runner

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

	"gpuard/internal/core/batchlog"
	"gpuard/internal/host/interrupt"
	"gpuard/internal/host/journal"
	"gpuard/internal/host/proctree"
	"gpuard/internal/host/sys"
)

// Folder is a folder of runs with a journal. The conductor and the runner have it locked.
type Folder struct {
	Dir     string // absolute
	Host    *machine.Host
	Lock    *os.File
	Journal *journal.Journal
	State   *batchlog.State
	// The first argument of its runner, followed by Dir.
	Flag string
	// The variable in which a run has its own folder.
	Mark string
	// The folder that the runner is started in.
	Work string
	// The time between SIGTERM and SIGKILL.
	Grace time.Duration
	// Called when a run is over whose end this process has written down, with the state locked; nil for none.
	Ended func(run int) error
	// Runs are added while it goes, and nobody looks: no progress is shown, and what a killed runner left delays
	// nothing. Every run asks for its own: a refusal is its failure, and several wait at the same time.
	Queue bool
}

// Path is the folder of a run.
func (f *Folder) Path(run int) string { return filepath.Join(f.Dir, f.State.Folder(run)) }

// Tag is what each process of a run has in its environment.
func (f *Folder) Tag(run int) string { return f.Mark + "=" + f.Path(run) }

// Open opens the journal in the folder, and reads it.
func (f *Folder) Open() (err error) {
	f.Journal, err = journal.Open(filepath.Join(f.Dir, JournalFile))
	if err == nil {
		err = f.CatchUp()
	}
	return err
}

// JournalFile is the name of the journal.
const JournalFile = "journal"

// AppendEvent writes an event into a journal.
func AppendEvent(j *journal.Journal, e batchlog.Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return j.Append(line)
}

// Add writes an event, and counts it when it is written. The runner must not be there.
func (f *Folder) Add(e batchlog.Event) error {
	err := AppendEvent(f.Journal, e)
	if err != nil {
		return err
	}

	err = f.CatchUp()
	if err != nil || !f.tellsEnd(e) {
		return err
	}

	return f.Ended(e.Run)
}

// tellsEnd reports whether Ended is to be called after an event.
func (f *Folder) tellsEnd(e batchlog.Event) bool {
	return f.Ended != nil && (e.Kind == batchlog.End || e.Kind == batchlog.Gone) && f.State.Over(e.Run)
}

// CatchUp reads what was written since.
func (f *Folder) CatchUp() error {
	return f.Journal.EachNewLine(func(line []byte) error { return f.State.ReadLine(line, f.Journal.Offset()) })
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
	Count batchlog.Count
	// When this process began.
	Began time.Time
	// How many were over then.
	Before int
	// Why no device is free; nil when none is waited for.
	Stand *status.Standing
	// What runs is being ended.
	Stopped bool
}

// journalInterval is the time between two readings of the journal.
const journalInterval = 250 * time.Millisecond

// runsParent is the process that people see, or a queue's first one. It is the parent of the runs that a killed runner
// leaves behind, so it records how they end.
type runsParent struct {
	*Folder
	show   func(Progress)
	now    Progress
	tree   *proctree.Tree
	caught *interrupt.SignalCatcher
	// That ends the sweep.
	heard os.Signal
	// Kills what is left of a runner that was asked to end; nil: it was not.
	hurry   func()
	failure error
	// What the runner says, and its end; nil when that is over.
	received <-chan runnerMessage
	ended    <-chan struct{}
	// Ends of runs that no runner waits for.
	strays chan orphanedRunEnd
	left   []orphanedRun // those runs
	// The number of runs whose exit status is unknown, which was not said yet.
	again int
	// Runners in a row that ended without having done anything.
	fruit int

	mu sync.Mutex
	// PIDs of the last ones that this process has started: at most mostRunners.
	runners []int
}

// mostRunners is of how many runners this process knows that they were its own: a PID is used again some day.
const mostRunners = 8

// isAwaited reports whether this process itself waits for a child of its own: for all but what a killed runner had
// beside its runs, such as what measures, which is in the session of the runner.
func (c *runsParent) isAwaited(pid int) bool {
	p, found := sys.ReadProcess(pid)
	c.mu.Lock()
	defer c.mu.Unlock()

	return !found || p.Session == pid || !slices.Contains(c.runners, p.Session)
}

// maxFruitlessRunners is how many of those there may be.
const maxFruitlessRunners = 3

// Conduct runs what is to be done. show is called at each change, and every now and then. heard is the signal that
// ended it; nil none.
func (f *Folder) Conduct(ctx context.Context, show func(Progress)) (heard os.Signal, err error) {
	c := &runsParent{Folder: f, show: show, strays: make(chan orphanedRunEnd), now: Progress{Began: time.Now(), Count: f.State.Count, Before: f.State.Count.CountDone()}}
	c.tree, c.caught = proctree.AdoptOrphans(c.isAwaited, machine.IsOwnHelper, isKeeper), interrupt.CatchSignals()
	err = c.recoverRuns()
	for err == nil && c.heard == nil && c.failure == nil && (f.State.HasStartable() || f.Queue && len(c.left) > 0) {
		if f.State.HasStartable() {
			err = c.superviseRunner(ctx)
		} else {
			err = c.watch(c.isRunnerAwaited, func() {})
		}
	}

	c.caught.Stop()
	c.tree.StopReaping()

	return c.heard, cmp.Or(err, c.failure)
}

// superviseRunner starts a runner and waits for its end. It also waits for the runs of a runner that was killed.
func (c *runsParent) superviseRunner(ctx context.Context) error {
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

	// The keys of the terminal are not for it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_, _ = life.Close(), messages.Close()
	if err != nil {
		return fmt.Errorf("cannot start the runner: %w", err)
	}

	c.mu.Lock()
	c.runners = append(c.runners[max(0, len(c.runners)-mostRunners+1):], cmd.Process.Pid)
	c.mu.Unlock()
	received, ended := make(chan runnerMessage, 16), make(chan struct{})
	c.received, c.ended = received, ended
	go receiveMessages(theirs, received)
	go func() {
		// cmd.ProcessState says how it ended.
		_ = cmd.Wait()
		close(ended)
	}()

	done := c.State.Count.CountDone()
	err = c.watch(c.isRunnerAwaited, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	if err != nil || c.failure != nil || c.heard != nil && c.State.Count.Running == 0 {
		return err
	}
	if err := c.inheritRuns(cmd.Process.Pid); err != nil {
		return err
	}

	c.fruit++
	if c.State.Count.CountDone() > done {
		c.fruit = 0
	}

	if c.fruit == maxFruitlessRunners && c.heard == nil {
		return fmt.Errorf("cannot go on: the process that starts the runs ended %d times without having done one (%v)", maxFruitlessRunners, cmd.ProcessState)
	}

	return nil
}

// isRunnerAwaited reports whether a runner is there, or, of a queue without anything to start, what one has left.
func (c *runsParent) isRunnerAwaited() bool {
	return c.ended != nil || c.received != nil || c.Queue && len(c.left) > 0 && !c.State.HasStartable()
}

// watch writes down what ends, and shows it, as long as there is more. stop ends what runs.
func (c *runsParent) watch(more func() bool, stop func()) error {
	tick := time.NewTicker(journalInterval)
	defer tick.Stop()

	for more() {
		if c.Queue && len(c.left) == 0 {
			tick.Stop()
		}

		select {
		case e := <-c.strays:
			if err := c.recordStrayEnd(e); err != nil {
				return err
			}
		case m, open := <-c.received:
			if open {
				c.applyMessage(m)
			} else {
				c.received = nil
			}
		case <-c.ended:
			c.ended = nil
		case sig := <-c.caught.Signals:
			c.obeySignal(sig, stop)
		case <-tick.C:
		}

		if err := c.showProgress(); err != nil {
			return err
		}
	}

	if c.again > 0 {
		c.Host.Say(fmt.Sprintf("the exit status of some interrupted runs is unknown (%d): they are done again", c.again))
		c.again = 0
	}

	return c.showProgress()
}

// applyMessage acts on what the runner says.
func (c *runsParent) applyMessage(m runnerMessage) {
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
		c.failure = &diskFullError{m.Error}
	case m.Error != "":
		c.failure = errors.New(m.Error)
	}
}

// diskFullError is a full disk, which a user can mend.
type diskFullError struct{ text string }

// Error is what could not be written.
func (e *diskFullError) Error() string { return e.text }

// Unwrap is the kernel's error.
func (e *diskFullError) Unwrap() error { return syscall.ENOSPC }

// obeySignal ends what runs, or stops and continues this process.
func (c *runsParent) obeySignal(sig os.Signal, stop func()) {
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

func (c *runsParent) showProgress() error {
	err := c.CatchUp()
	c.now.Count = c.State.Count
	c.show(c.now)

	for _, s := range c.left {
		// The runner does not know them.
		if c.Queue && s.pid > 0 && !c.State.IsWanted(s.run) && c.Host.Proc.IsAlive(s.pid, s.start) {
			endRun(s.pid, s.start, s.kept, "SIGTERM", map[int]uint64{})
		}
	}

	return err
}

// DieBySignal ends this process by the signal that ended the runs.
func DieBySignal(sig os.Signal) { interrupt.DieBySignal(sig) }
