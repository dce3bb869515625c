package runs

import (
	"fmt"
	"slices"
	"time"

	core "gpuard/internal/core/runs"
	"gpuard/internal/host/batch"
)

// recover finds runs that continue although the processes of their folder are gone, and waits for them, so that no run
// exists twice. Runs whose end the kernel does not report, and runs that are gone, are done again, or in a queue lost.
// A queue goes on meanwhile.
func (c *conductor) recover() error {
	open := c.State.In(core.Begun, core.Running)
	if len(open) == 0 {
		return nil
	}
	boot, err := c.Host.Proc.BootID()
	if err != nil {
		return err
	}
	alive := 0
	c.strays = make(chan core.Event, len(open))
	for _, run := range open {
		born := c.State.Runs[run].Born()
		gone := core.Event{Kind: core.Gone, Run: run}
		pid, start := c.survivor(run, born)
		c.left = append(c.left, stray{run, pid, start})
		if born.Boot != boot || pid == 0 {
			c.strays <- gone
			continue
		}
		if c.Host.Proc.Alive(pid, start) {
			alive++
		}
		go func() {
			if how, known := batch.AwaitOther(pid, start); known {
				c.strays <- core.Event{Kind: core.End, Run: run, Exit: how.Code, Signal: how.Signal, Seconds: time.Since(born.At).Seconds(), Lease: born.Lease, Devices: born.Devices}
			} else {
				c.strays <- gone
			}
		}()
	}
	if c.Queue {
		return nil
	}
	if alive > 0 {
		c.Host.Say(fmt.Sprintf("runs of before go on (%d): waiting for them", alive))
	}
	var ended []core.Event
	for len(c.left) > len(ended) {
		select {
		case e := <-c.strays:
			ended = append(ended, e)
		case sig := <-c.caught.Signals:
			if c.signal(sig, func() {}); c.heard != nil { // they are not ours to end
				return nil
			}
		}
	}
	c.left = nil
	return c.settle(ended)
}

// stray is a run whose runner is gone.
type stray struct {
	run, pid int
	start    uint64
}

// settle records the end of runs that no process of the sweep has waited for.
func (c *conductor) settle(ended []core.Event) error {
	again := 0
	for _, e := range ended {
		e.At = time.Now()
		if c.State.Runs[e.Run].Phase == core.Begun && e.Kind == core.End { // its Start was never written
			if err := c.Add(core.Event{Kind: core.Start, Run: e.Run, At: e.At}); err != nil {
				return err
			}
		}
		if err := c.Add(e); err != nil {
			return err
		}
		if e.Kind == core.Gone {
			again++
		}
	}
	if again > 0 {
		c.Host.Say(fmt.Sprintf("the exit status of some interrupted runs is unknown (%d): they are done again", again))
	}
	return nil
}

// mostExec is how long the kernel may take to execute a program: on a busy machine it reads it from the disk.
const mostExec = time.Second

// survivor is the process of a run, 0 for none. One without a recorded Start has its number in its environment, and
// leads a session. While it is being executed it has no environment, and no longer the lock of the folder: then it is
// looked for again, because a run that is taken for gone is done once more.
func (c *conductor) survivor(run int, born core.Event) (pid int, start uint64) {
	if c.State.Runs[run].Phase == core.Running {
		return born.PID, born.Ticks
	}
	for end := time.Now().Add(mostExec); ; time.Sleep(time.Millisecond) {
		pid, start, unclear := c.processOf(run, born)
		if pid > 0 || !unclear || time.Now().After(end) {
			return pid, start
		}
	}
}

// processOf is the process that has the number of a run in its environment; unclear is that a process without one may be
// it.
func (c *conductor) processOf(run int, born core.Event) (pid int, start uint64, unclear bool) {
	mine := c.Mark + "=" + c.Path(run)
	for _, p := range batch.Processes() {
		if p.Session != p.PID || p.Dead() || p.Start < born.Ticks {
			continue
		}
		env, err := c.Host.Proc.Environ(p.PID)
		if err == nil && slices.Contains(env, mine) {
			return p.PID, p.Start, false
		}
		unclear = unclear || err == nil && len(env) == 0
	}
	return 0, 0, unclear
}
