package runner

import (
	"cmp"
	"context"
	"errors"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/supervise"

	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/queue"
)

// dispatchRuns starts one run after the other, each as soon as there is a device.
func (r *runner) dispatchRuns(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		run, more := r.nextRun(ctx)
		if !more {
			return
		}
		if err := r.leaseAndStart(ctx, run); err != nil {
			r.stopWithError(err)
			return
		}
	}
}

// nextRun is the run to start now. While none is due but some run, one of those may be due again.
func (r *runner) nextRun(ctx context.Context) (run int, more bool) {
	for {
		r.mu.Lock()
		if len(r.cpus) < cap(r.cpus) {
			// One that needs no device does not wait for those that do.
			run, more = r.takeRun(&r.light)
		}

		if !more {
			run, more = r.takeWaiting()
		}

		busy := len(r.live) + len(r.taken)
		for one := range r.resting {
			if r.State.MayStart(one) {
				// Else its owner has cancelled or held it.
				busy++
			}
		}
		r.mu.Unlock()
		if more || busy == 0 {
			return run, more
		}

		select {
		case <-r.freed:
		case <-ctx.Done():
			return 0, false
		}
	}
}

// takeRun takes the run that is next out of a line. The lock is held.
func (r *runner) takeRun(line *queue.Line) (run int, found bool) {
	for left := true; left && !found; {
		run, left = line.Take(time.Now().UnixNano(), r.State.EstimateOf)
		postponed := left && r.postponeRetry(run)

		// It may have been cancelled meanwhile.
		found = left && !postponed && !r.taken[run] && r.State.MayStart(run) && r.State.TakeArrayPlace(run)
	}
	if found {
		r.taken[run] = true
	}
	return run, found
}

// postponeRetry puts a failed run back into the line after its pause, and reports whether there is one. The lock is
// held.
func (r *runner) postponeRetry(run int) bool {
	rest := r.State.RestBeforeRetry(run, cmp.Or(r.host.Times.Pause, supervise.FirstPause), time.Now())
	if rest > 0 && !r.resting[run] {
		r.resting[run] = true
		time.AfterFunc(rest, func() {
			r.mu.Lock()
			delete(r.resting, run)
			r.State.OfferRun(run)
			r.refillLines()
			r.mu.Unlock()
			r.wakeDispatch()
		})
	}
	return rest > 0
}

// takeWaiting takes the next run that needs a device. Where as many wait as may, it has to go before one of them. The
// lock is held.
func (r *runner) takeWaiting() (run int, found bool) {
	run, found = r.takeRun(&r.due)
	if !found || len(r.waits) < cap(r.waits) || r.displaceLast(run) {
		return run, found
	}

	delete(r.taken, run)
	r.State.ReturnArrayPlace(run)
	r.addToLine(run)

	return 0, false
}

// recordFailedStart writes down that a run cannot be started.
func (r *runner) recordFailedStart(run int, why error) error {
	defer r.abandonStart(run)
	err := r.writeFailedStart(run, why)
	if errors.Is(err, errUnwanted) {
		return nil
	}

	return err
}

func (r *runner) writeFailedStart(run int, why error) error {
	err := r.reserveSpace()
	if err != nil {
		return err
	}

	err = r.writeBegin(batchlog.Event{Run: run})
	if err != nil {
		return err
	}

	return r.addEvent(batchlog.Event{Kind: batchlog.End, Run: run, Exit: exit.RunCode(why), Problem: why.Error()})
}
