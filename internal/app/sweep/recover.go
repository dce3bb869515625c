package sweep

import (
	"fmt"
	"slices"
	"sync"
	"time"

	core "gpuard/internal/core/sweep"
	"gpuard/internal/host/batch"
)

// recover finds runs that continue although the processes of their sweep are gone, and waits for them, so that no run
// exists twice. Runs whose end the kernel does not report, and runs that are gone, are done again.
func (s *Sweep) recover(c *conductor) error {
	open := s.state.In(core.Begun, core.Running)
	if len(open) == 0 {
		return nil
	}
	boot, err := s.host.Proc.BootID()
	if err != nil {
		return err
	}
	ended := make([]core.Event, len(open))
	var all sync.WaitGroup
	alive := 0
	for i, run := range open {
		born := s.state.Runs[run].Born()
		ended[i] = core.Event{Kind: core.Gone, Run: run}
		pid, start := s.survivor(run, born)
		if born.Boot != boot || pid == 0 {
			continue
		}
		if s.host.Proc.Alive(pid, start) {
			alive++
		}
		all.Go(func() {
			how, known := batch.AwaitOther(pid, start)
			if known {
				ended[i] = core.Event{Kind: core.End, Run: run, Exit: how.Code, Signal: how.Signal, Seconds: time.Since(born.At).Seconds(), Lease: born.Lease, Devices: born.Devices}
			}
		})
	}
	if alive > 0 {
		s.host.Say(fmt.Sprintf("runs of before go on (%d): waiting for them", alive))
	}
	over := make(chan struct{})
	go func() {
		all.Wait()
		close(over)
	}()
	for waiting := true; waiting; {
		select {
		case <-over:
			waiting = false
		case sig := <-c.caught.Signals:
			if c.signal(sig, func() {}); c.heard != nil { // they are not ours to end
				return nil
			}
		}
	}
	return s.settle(ended)
}

// settle records the end of runs that no process of the sweep has waited for.
func (s *Sweep) settle(ended []core.Event) error {
	again := 0
	for _, e := range ended {
		e.At = time.Now()
		if s.state.Runs[e.Run].Phase == core.Begun && e.Kind == core.End { // its Start was never written
			if err := s.add(core.Event{Kind: core.Start, Run: e.Run, At: e.At}); err != nil {
				return err
			}
		}
		if err := s.add(e); err != nil {
			return err
		}
		if e.Kind == core.Gone {
			again++
		}
	}
	if again > 0 {
		s.host.Say(fmt.Sprintf("the exit status of some interrupted runs is unknown (%d): they are done again", again))
	}
	return nil
}

// survivor is the process of a run, 0 for none. One without a recorded Start has its number in its environment, and
// leads a session.
func (s *Sweep) survivor(run int, born core.Event) (pid int, start uint64) {
	if s.state.Runs[run].Phase == core.Running {
		return born.PID, born.Ticks
	}
	mine := "GPUARD_SWEEP_DIR=" + s.folderOf(run)
	for _, p := range batch.Processes() {
		if p.Session != p.PID || p.Dead() || p.Start < born.Ticks {
			continue
		}
		if env, err := s.host.Proc.Environ(p.PID); err == nil && slices.Contains(env, mine) {
			return p.PID, p.Start
		}
	}
	return 0, 0
}
