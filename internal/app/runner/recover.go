package runner

import (
	"fmt"
	"os"
	"slices"
	"time"

	"gpuard/internal/core/batchlog"
	"gpuard/internal/host/batch"
)

// recoverRuns finds runs that continue although the processes of their folder are gone, and waits for them, so that no
// run exists twice. Runs whose end the kernel does not report, and runs that are gone, are done again, or in a queue
// lost. A queue goes on meanwhile.
func (c *runsParent) recoverRuns() error {
	open := c.State.RunsIn(batchlog.Begun, batchlog.Running)
	if len(open) == 0 {
		return nil
	}

	boot, err := c.Host.Proc.BootID()
	if err != nil {
		return err
	}

	alive := 0
	for _, run := range open {
		born := c.State.Runs[run].BirthEvent()
		one := orphanedRun{run: run}
		if born.Boot == boot {
			one.pid, one.start, one.kept = c.survivingProcess(run, born)
		}

		if born.Kept && !one.kept && one.pid > 0 {
			// Its keeper was killed.
			if err := c.Add(batchlog.Event{Kind: batchlog.Moved, Run: run, At: time.Now(), PID: one.pid, Ticks: one.start, Lease: born.Lease, Devices: born.Devices}); err != nil {
				return err
			}
		}

		c.left = append(c.left, one)
		if c.Host.Proc.IsAlive(one.pid, one.start) {
			alive++
		}

		c.awaitStray(one)
	}

	if c.Queue {
		return nil
	}

	if alive > 0 {
		c.Host.Say(fmt.Sprintf("runs of before go on (%d): waiting for them", alive))
	}

	// They are not ours to end.
	return c.watch(func() bool { return len(c.left) > 0 && c.heard == nil }, func() {})
}

// orphanedRun is a run whose runner is gone.
type orphanedRun struct {
	// pid 0: its process is gone.
	run, pid int
	start    uint64
	// The process is a keeper.
	kept  bool
	child bool // of this process
}

// orphanedRunEnd is the end of its process; known is whether the kernel says how that was.
type orphanedRunEnd struct {
	orphanedRun
	batch.ExitStatus
	known bool
	err   error
}

// awaitStray has the end of a stray come.
func (c *runsParent) awaitStray(s orphanedRun) {
	go func() {
		e := orphanedRunEnd{orphanedRun: s}
		switch {
		case s.child:
			e.ExitStatus, e.err = batch.AwaitChild(s.pid)
			awaitKill(c.Host.Env, e.ExitStatus)
			e.known = true
		case s.pid > 0:
			e.ExitStatus, e.known = batch.AwaitProcess(s.pid, s.start)
		}
		c.strays <- e
	}()
}

// recordStrayEnd writes down the end of a stray, which is none any more. Of a keeper that was killed the command is one
// instead.
func (c *runsParent) recordStrayEnd(e orphanedRunEnd) error {
	i := slices.IndexFunc(c.left, func(s orphanedRun) bool { return s.run == e.run })
	if e.kept && (!e.known || e.Signal == "SIGKILL") {
		if err := c.CatchUp(); err != nil {
			return err
		}

		run := &c.State.Runs[e.run]
		keeper := run.BirthEvent()

		// Which its Begin does not name.
		keeper.PID, keeper.Ticks = e.pid, e.start
		command, found := commandOf(keeper, c.Tag(e.run))
		if run.RanEvent() == nil && found {
			c.left[i] = orphanedRun{run: e.run, pid: command.PID, start: command.Start, child: command.Parent == os.Getpid()}
			c.awaitStray(c.left[i])
			err := c.Add(batchlog.Event{Kind: batchlog.Moved, Run: e.run, At: time.Now(), PID: command.PID, Ticks: command.Start, Lease: run.BirthEvent().Lease, Devices: run.BirthEvent().Devices})
			c.buryStray(e.orphanedRun)

			return err
		}

		e.known = e.known || run.RanEvent() != nil
	}

	event := batchlog.Event{Kind: batchlog.Gone, Run: e.run}
	if e.known {
		event = endEvent(&c.State.Runs[e.run], e.run, e.ExitStatus)
	}

	if e.err != nil {
		event.Exit, event.Problem = -1, e.err.Error()
	}

	event.Stopped = c.now.Stopped && event.Kind == batchlog.End
	c.left = slices.Delete(c.left, i, i+1)
	err := c.recordEnd(event)
	c.buryStray(e.orphanedRun)

	return err
}

// buryStray reaps the process of a stray, if it is a child.
func (c *runsParent) buryStray(s orphanedRun) {
	if s.child {
		batch.ReapChild(s.pid)
	}
}

// recordEnd records the end of a run that no process of the sweep has waited for.
func (c *runsParent) recordEnd(e batchlog.Event) error {
	e.At = time.Now()
	if c.State.Runs[e.Run].Phase == batchlog.Begun && e.Kind == batchlog.End {
		// Its Start was never written.
		if err := c.Add(batchlog.Event{Kind: batchlog.Start, Run: e.Run, At: e.At}); err != nil {
			return err
		}
	}
	if e.Kind == batchlog.Gone {
		c.again++
	}

	return c.Add(e)
}

// mostExec is how long the kernel may take to execute a program: on a busy machine it reads it from the disk.
const mostExec = time.Second

// survivingProcess is the process of a run, 0 for none. One without a recorded Start has its number in its environment,
// and leads a session. While it is being executed it has no environment, and no longer the lock of the folder: then it
// is looked for again, because a run that is taken for gone is done once more.
func (c *runsParent) survivingProcess(run int, born batchlog.Event) (pid int, start uint64, kept bool) {
	if c.State.Runs[run].Phase == batchlog.Running {
		if !born.Kept || c.Host.Proc.IsAlive(born.PID, born.Ticks) || c.State.Runs[run].RanEvent() != nil {
			return born.PID, born.Ticks, born.Kept
		}
		if command, found := commandOf(born, c.Tag(run)); found {
			return command.PID, command.Start, false
		}
		return born.PID, born.Ticks, born.Kept
	}
	for end := time.Now().Add(mostExec); ; time.Sleep(time.Millisecond) {
		pid, start, unclear := c.processOf(run, born)
		if pid > 0 || !unclear || time.Now().After(end) {
			return pid, start, born.Kept && isKeeper(pid)
		}
	}
}

// processOf is the process that has the number of a run in its environment: its session's leader, or else, where that
// was a keeper, its command. unclear is that a process without a number may be it.
func (c *runsParent) processOf(run int, born batchlog.Event) (pid int, start uint64, unclear bool) {
	mine := c.Mark + "=" + c.Path(run)
	for _, p := range batch.ListProcesses() {
		if p.IsDead() || p.Start < born.Ticks {
			continue
		}

		env, err := c.Host.Proc.Environ(p.PID)
		leads := p.Session == p.PID
		switch {
		case err == nil && leads && slices.Contains(env, mine):
			return p.PID, p.Start, false
		case err == nil && pid == 0 && slices.Contains(env, mine):
			pid, start = p.PID, p.Start
		}

		unclear = unclear || err == nil && leads && len(env) == 0
	}
	return pid, start, unclear
}
