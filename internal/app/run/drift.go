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

	// A reading of the start before may still be in progress.
	turn  sync.Mutex
	drift health.Drift
	began time.Time  // the first start
	on    []gpu.UUID // where it runs
	// The last move that was asked for from there.
	asked health.Move
}

// watchDrift watches for --drift; nil when nothing was asked for.
func watchDrift(host *machine.Host, spec job.Spec, kinds []string) moveWatch {
	if len(kinds) == 0 {
		return nil
	}

	quiet := *host

	// A slow reading needs no line.
	quiet.Say = func(string) {}
	w := &driftWatch{host: &quiet, spec: spec, interval: host.Times.Drift, drift: health.Drift{Minute: host.Times.Minute}}
	if w.interval == 0 {
		w.interval = driftInterval
	}

	for _, k := range kinds {
		w.drift.Kinds = append(w.drift.Kinds, health.Kind(k))
	}

	return w.watchDevices
}

// watchDevices reads the devices of one start until ctx ends.
func (w *driftWatch) watchDevices(ctx context.Context, on job.Lease) <-chan moveRequest {
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
		w.drift.RecordMove(now, left)
	}

	w.on, w.asked = on.Devices, health.Move{}
	moves := make(chan moveRequest)
	go w.readDevices(ctx, moves)

	return moves
}

func (w *driftWatch) readDevices(ctx context.Context, moves chan<- moveRequest) {
	defer close(moves)
	for {
		m, err := w.host.Read(ctx, gpu.Identity|gpu.Load|gpu.Health)
		if err == nil {
			if !w.host.IsHardware() {
				// A recorded machine shows the same for ever.
				m.Taken = time.Now()
			}
			if asked, ok := w.judgeReading(ctx, m); ok {
				select {
				case moves <- asked:
				case <-ctx.Done():
					return
				}
			}
		}

		pause := w.interval
		if strings.Contains(m.Source, "nvidia-smi") {
			// Each reading is a process that starts the driver's library again.
			pause *= 2
		}

		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// judgeReading uses the reading, unless its start is over.
func (w *driftWatch) judgeReading(ctx context.Context, m gpu.Machine) (moveRequest, bool) {
	w.turn.Lock()
	defer w.turn.Unlock()
	if ctx.Err() != nil {
		return moveRequest{}, false
	}

	asked, ok := w.drift.AddSample(m, w.on, w.timeLeft(m.Taken))
	if !ok {
		return moveRequest{}, false
	}

	w.asked = asked
	d, _, _ := m.FindDevice(asked.GPU)

	return moveRequest{reason: fmt.Sprintf("%s: %s %s", asked.Kind, machine.DeviceName(m, *d), asked.Reason), avoid: asked.Avoid}, true
}

// timeLeft is how long the run still takes or may take, 0 unknown. An estimate that is over says nothing any more.
func (w *driftWatch) timeLeft(now time.Time) time.Duration {
	left := time.Duration(0)
	for _, whole := range []time.Duration{w.spec.Time, w.spec.Timeout} {
		if rest := whole - now.Sub(w.began); whole > 0 && rest > 0 && (left == 0 || rest < left) {
			left = rest
		}
	}
	return left
}
