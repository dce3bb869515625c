package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/job"
)

// driftInterval is the time between two readings of the devices of a run that may move. Frequent readings cost: in
// flightlessmango/MangoHud pull request 2104, 40 readings a second stalled a program.
const driftInterval = 5 * time.Second

// driftWatch is the lookout of one run, over all its starts.
type driftWatch struct {
	host     *machine.Host
	spec     job.Spec
	interval time.Duration

	turn  sync.Mutex // a reading of the start before may still be in progress
	drift health.Drift
	began time.Time   // the first start
	on    []gpu.UUID  // where it runs
	asked health.Move // the last move that was asked for from there
}

// watchDrift watches for --drift; nil when nothing was asked for.
func watchDrift(host *machine.Host, spec job.Spec, kinds []string) lookout {
	if len(kinds) == 0 {
		return nil
	}
	quiet := *host
	quiet.Say = func(string) {} // a slow reading needs no line
	w := &driftWatch{host: &quiet, spec: spec, interval: host.Times.Drift, drift: health.Drift{Minute: host.Times.Minute}}
	if w.interval == 0 {
		w.interval = driftInterval
	}
	for _, k := range kinds {
		w.drift.Kinds = append(w.drift.Kinds, health.Kind(k))
	}
	return w.watch
}

// watch reads the devices of one start until ctx ends.
func (w *driftWatch) watch(ctx context.Context, on job.Lease) <-chan move {
	w.turn.Lock()
	defer w.turn.Unlock()
	now := time.Now()
	switch {
	case w.began.IsZero():
		w.began = now
	case !slices.Equal(w.on, on.Devices):
		var left []gpu.UUID
		if w.asked.GPU != "" {
			left = append(left, w.asked.GPU)
		}
		w.drift.Moved(now, left)
	}
	w.on, w.asked = on.Devices, health.Move{}
	moves := make(chan move)
	go w.readDevices(ctx, moves)
	return moves
}

func (w *driftWatch) readDevices(ctx context.Context, moves chan<- move) {
	defer close(moves)
	for {
		m, err := w.host.Read(ctx, gpu.Identity|gpu.Load|gpu.Health)
		if err == nil {
			if !w.host.Hardware() {
				m.Taken = time.Now() // a recorded machine shows the same for ever
			}
			if asked, ok := w.judge(ctx, m); ok {
				select {
				case moves <- asked:
				case <-ctx.Done():
					return
				}
			}
		}
		pause := w.interval
		if strings.Contains(m.Source, "nvidia-smi") {
			pause *= 2 // each reading is a process that starts the driver's library again
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// judge uses the reading, unless its start is over.
func (w *driftWatch) judge(ctx context.Context, m gpu.Machine) (move, bool) {
	w.turn.Lock()
	defer w.turn.Unlock()
	if ctx.Err() != nil {
		return move{}, false
	}
	asked, ok := w.drift.See(m, w.on, w.remaining(m.Taken))
	if !ok {
		return move{}, false
	}
	w.asked = asked
	d, _, _ := m.Find(asked.GPU)
	return move{reason: fmt.Sprintf("%s: %s %s", asked.Kind, machine.DeviceName(m, *d), asked.Reason), avoid: asked.Avoid}, true
}

// remaining is how long the run still takes or may take, 0 unknown. An estimate that is over says nothing any more.
func (w *driftWatch) remaining(now time.Time) time.Duration {
	left := time.Duration(0)
	for _, whole := range []time.Duration{w.spec.Time, w.spec.Timeout} {
		if rest := whole - now.Sub(w.began); whole > 0 && rest > 0 && (left == 0 || rest < left) {
			left = rest
		}
	}
	return left
}
