package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/job"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/sys"
)

// The runs of a killed runner become children of the foreground process (PR_SET_CHILD_SUBREAPER(2const)), running or
// ended. The journal says which process is which run: all but the one that was just being started have a Start. That
// one is the oldest unknown child, leads a session, and is not older than its Begin.

// inheritRuns waits for the runs of a runner that is gone, and writes down how they end.
func (c *runsParent) inheritRuns(runner int) error {
	err := c.Journal.TruncatePartial()
	if err != nil {
		return err
	}

	err = c.CatchUp()
	if err != nil {
		return err
	}

	// Those are awaited already.
	open := slices.DeleteFunc(c.State.RunsIn(batchlog.Begun, batchlog.Running), c.isLeft)
	if len(open) == 0 {
		return nil
	}

	children := c.settledChildren(runner)
	for _, run := range open {
		born := c.State.Runs[run].BirthEvent()
		e := batchlog.Event{Kind: batchlog.Start, Run: run, At: time.Now(), Boot: born.Boot, Kept: born.Kept, Grace: born.Grace}
		running := c.State.Runs[run].Phase == batchlog.Running
		i := slices.IndexFunc(children, func(p sys.Process) bool {
			if running {
				return p.PID == born.PID
			}
			return c.mayBeNewRun(run, p)
		})

		command, goesOn := sys.Process{}, false
		if running && i < 0 && born.Kept {
			// It was killed, and the runner has buried it.
			command, goesOn = commandOf(born, c.Tag(run))
		}

		switch {
		case goesOn:
			e = batchlog.Event{Kind: batchlog.Moved, Run: run, At: e.At, PID: command.PID, Ticks: command.Start, Lease: born.Lease, Devices: born.Devices}
		case i < 0:
			e.Kind = batchlog.Gone
		case running:
			continue
		default:
			e.PID, e.Ticks = children[i].PID, children[i].Start
		}

		if err := c.Add(e); err != nil {
			return err
		}
	}

	open = slices.DeleteFunc(c.State.RunsIn(batchlog.Running), c.isLeft)
	if len(open) > 0 && c.heard == nil {
		c.Host.Say(fmt.Sprintf("the process that starts the runs was killed; waiting for the %d that it had started", len(open)))
	}

	c.awaitStrays(open)
	if c.Queue && c.heard == nil {
		return nil
	}
	if c.heard != nil {
		c.stopAll()
	}

	// Those of before are not ours to end.
	return c.watch(func() bool { return slices.ContainsFunc(c.left, func(s orphanedRun) bool { return s.child }) }, c.stopAll)
}

func (c *runsParent) isLeft(run int) bool {
	return slices.ContainsFunc(c.left, func(s orphanedRun) bool { return s.run == run })
}

// awaitStrays has the ends of these children come as those of strays.
func (c *runsParent) awaitStrays(open []int) {
	for _, run := range open {
		born := c.State.Runs[run].BirthEvent()
		one := orphanedRun{run: run, pid: born.PID, start: born.Ticks, kept: born.Kept, child: true}
		c.left = append(c.left, one)
		c.awaitStray(one)
	}
}

// mayBeNewRun reports whether a child may be a run that has only its Begin. Processes that other runs left behind have
// the folder of their run in the environment; one that has ended shows none, and one that is being started has the
// runner's.
func (c *runsParent) mayBeNewRun(run int, p sys.Process) bool {
	if p.Session != p.PID || p.Start < c.State.Runs[run].BirthEvent().Ticks || c.State.KnowsProcess(p.PID, p.Start) {
		return false
	}

	// None of one that has ended.
	env, _ := c.Host.Proc.Environ(p.PID)
	for _, pair := range env {
		if dir, ours := strings.CutPrefix(pair, c.Mark+"="); ours && filepath.Dir(dir) == filepath.Dir(c.Path(run)) {
			return dir == c.Path(run)
		}
	}

	return true
}

// settledChildren lists the children when none is in the runner's session any more, which the one that was just being
// made is for a moment.
func (c *runsParent) settledChildren(runner int) (children []sys.Process) {
	for end := time.Now().Add(job.KillGrace); ; time.Sleep(time.Millisecond) {
		making := false
		children = nil
		for _, p := range batch.ListProcesses() {
			if p.Parent == os.Getpid() {
				children = append(children, p)
				making = making || p.Session == runner && !p.IsDead() && strings.Contains(c.Host.Proc.DescribeProcess(p.PID).Command, c.Flag)
			}
		}
		if !making || time.Now().After(end) {
			return children
		}
	}
}

// stopAll ends everything below this process; it is killed after a while, or when that is asked for again.
func (c *runsParent) stopAll() {
	if c.hurry != nil {
		c.hurry()
		return
	}

	grace := c.Grace
	for _, run := range c.State.RunsIn(batchlog.Running) {
		grace = max(grace, c.State.Runs[run].BirthEvent().Grace)
	}

	ctx, hurry := context.WithTimeout(context.Background(), grace)
	c.hurry = hurry
	go func() {
		_ = c.tree.End(ctx, "SIGTERM", job.KillGrace)
		hurry()
	}()
}
