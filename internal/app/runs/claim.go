package runs

import (
	"context"
	"errors"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/core/job"
	"gpuard/internal/host/batch"
)

// one leases for a run and starts it. An error ends all.
func (r *runner) one(ctx context.Context, run int) error {
	r.mu.Lock()
	what, err := r.work.Prepare(run)
	r.mu.Unlock()
	if err != nil {
		return r.stillborn(run, err)
	}
	desk, err := what.Desk(ctx)
	if err != nil {
		return r.refused(run, err)
	}
	command := what.Argv[0]
	if !r.work.Each {
		seat, err := r.claim(ctx, desk, command)
		return r.seated(ctx, run, what, seat, err)
	}
	if what.CPU {
		select {
		case r.cpus <- struct{}{}:
		default:
			return r.wait(ctx, run, what, func(ctx context.Context) (*claim.Seat, error) {
				select {
				case r.cpus <- struct{}{}:
					return desk.TryNow(ctx, command)
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
		}
	}
	seat, err := desk.TryNow(ctx, command)
	var refusal *job.Refusal
	if err == nil || !errors.As(err, &refusal) || refusal.Never {
		return r.seated(ctx, run, what, seat, err)
	}
	return r.wait(ctx, run, what, func(ctx context.Context) (*claim.Seat, error) { return desk.Wait(ctx, command) })
}

// wait starts a run as soon as it has what it waits for, and lets others try meanwhile. It returns when few enough wait.
func (r *runner) wait(ctx context.Context, run int, what Start, claim func(ctx context.Context) (*claim.Seat, error)) error {
	select {
	case r.waits <- struct{}{}:
	case <-ctx.Done():
		return r.seated(ctx, run, what, nil, ctx.Err())
	}
	ctx, cancel := context.WithCancel(ctx)
	r.stoppable(run, cancel)
	r.attended.Go(func() {
		defer cancel()
		seat, err := claim(ctx)
		<-r.waits
		if err := r.seated(ctx, run, what, seat, err); err != nil {
			r.fail(err)
		}
	})
	return nil
}

// stoppable notes how a run is ended that its owner cancels; nil: it is over.
func (r *runner) stoppable(run int, stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stop == nil {
		delete(r.stops, run)
	} else {
		r.stops[run] = stop
	}
}

// refused ends a run for which there is no lease; where all ask for the same, it ends all.
func (r *runner) refused(run int, err error) error {
	var refusal *job.Refusal
	var usage *exit.Usage
	if r.work.Each && (errors.As(err, &refusal) || errors.As(err, &usage)) {
		return r.stillborn(run, err)
	}
	r.unclaim()
	return err
}

// unclaim lets go of what a run had before it was started.
func (r *runner) unclaim() {
	r.mu.Lock()
	r.claims--
	r.mu.Unlock()
	<-r.slots
	r.wake()
}

// wake has dispatch look again.
func (r *runner) wake() {
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// seated starts a run that has its lease.
func (r *runner) seated(ctx context.Context, run int, what Start, seat *claim.Seat, err error) error {
	if ctx.Err() != nil && err != nil {
		r.stoppable(run, nil)
		r.unclaim()
		return nil //nolint:nilerr // ended meanwhile: that is no failure
	}
	if err != nil {
		return r.refused(run, err)
	}
	if batch.HungUp(lifeFD) { // without delay: the goroutine that reads it may run later
		r.cancel()
	}
	r.mu.Lock()
	wanted := r.state.MayStart(run)
	r.mu.Unlock()
	if ctx.Err() != nil || !wanted {
		r.unclaim()
		return seat.Leave()
	}
	if err = r.start(run, what, seat); err != nil {
		_ = seat.Leave()
	}
	return err
}

// claim takes what is free. Devices of our own runs will be free soon; for others it queues.
func (r *runner) claim(ctx context.Context, desk *claim.Desk, command string) (*claim.Seat, error) {
	for ctx.Err() == nil {
		seat, err := desk.TryNow(ctx, command)
		var refusal *job.Refusal
		if !errors.As(err, &refusal) || refusal.Never {
			return seat, err
		}
		if !r.another() {
			return desk.Wait(ctx, command)
		}
	}
	return nil, ctx.Err()
}

// another reports whether one of our own runs has ended within a moment.
func (r *runner) another() bool {
	timer := time.NewTimer(soon)
	defer timer.Stop()
	select {
	case <-r.freed:
		return true
	case <-timer.C:
		return false
	}
}
