package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/core/queue"
	"gpuard/internal/host/batch"
)

// leaseAndStart leases for a run and starts it. An error ends all.
func (r *runner) leaseAndStart(ctx context.Context, run int) error {
	r.mu.Lock()
	what, err := r.Prepare(run)
	r.mu.Unlock()
	if err != nil {
		return r.recordFailedStart(run, err)
	}

	// A file system may take as long for the log as the claim takes.
	what.log = sync.OnceValues(func() (*os.File, error) { return openLog(what.Log) })
	if !r.Queue {
		// Start has its error.
		go func() { _, _ = what.log() }()
	}

	desk, err := what.Desk(ctx)
	if err != nil {
		return r.failOrRetry(ctx, run, err)
	}

	command := cmp.Or(what.Name, machine.BaseName(what.Argv))
	if !r.Queue {
		seat, err := r.claimDevices(ctx, desk, command)
		return r.startInBackground(ctx, run, what, seat, err)
	}

	if what.CPU {
		// There is room: only this goroutine takes one.
		r.cpus <- struct{}{}
	}

	seat, err := desk.TryNow(ctx, command)
	var refusal *job.Refusal
	if err == nil && seat.Said != "" {
		// It goes to the CPU, and may have to wait there.
		r.attended.Go(func() {
			if err := r.startWithSeat(ctx, run, what, seat, nil); err != nil {
				r.stopWithError(err)
			}
		})
		return nil
	}

	if err == nil || !errors.As(err, &refusal) || refusal.Never {
		return r.startInBackground(ctx, run, what, seat, err)
	}

	return r.queueForLease(ctx, run, what, func(ctx context.Context, queued func()) (*claim.CommandLease, error) {
		return desk.Wait(ctx, command, queued)
	})
}

// startInBackground starts a run that has its lease while the next one asks for its own. One is started at a time.
func (r *runner) startInBackground(ctx context.Context, run int, what StartOptions, seat *claim.CommandLease, err error) error {
	if err != nil {
		return r.startWithSeat(ctx, run, what, seat, err)
	}
	r.starts <- struct{}{}
	r.attended.Go(func() {
		err := r.startWithSeat(ctx, run, what, seat, nil)
		<-r.starts
		if err != nil {
			r.stopWithError(err)
		}
	})

	return nil
}

// queueForLease starts a run as soon as it has what it waits for, and lets others try meanwhile. It returns when this
// one has its place in the line, so that the next one does not get in front of it.
func (r *runner) queueForLease(ctx context.Context, run int, what StartOptions, claim func(ctx context.Context, queued func()) (*claim.CommandLease, error)) error {
	select {
	case r.waits <- struct{}{}:
		// There is room, or will be: another run is giving its ticket up.
	case <-ctx.Done():
		return r.startWithSeat(ctx, run, what, nil, ctx.Err())
	}

	ctx, cancel := context.WithCancel(ctx)
	r.setStop(run, cancel)
	r.setTicket(run, true)
	placed, done := make(chan struct{}), make(chan struct{})
	r.attended.Go(func() {
		defer cancel()
		seat, err := claim(ctx, sync.OnceFunc(func() { close(placed) }))
		r.setTicket(run, false)
		close(done)
		<-r.waits
		r.wakeDispatch()
		if err := r.startWithSeat(ctx, run, what, seat, err); err != nil {
			r.stopWithError(err)
		}
	})

	select {
	case <-placed:
	case <-done:
	}

	return nil
}

// displaceLast takes the ticket of the last run that waits, if this run goes before it. That run goes back into the
// line. The lock is held.
func (r *runner) displaceLast(run int) bool {
	var runs []int
	var own []queue.Own
	for other, o := range r.tickets {
		runs, own = append(runs, other), append(own, o)
	}

	last := r.queueOrder(run).IndexToDisplace(own, time.Now().UnixNano())
	if last < 0 || r.stops[runs[last]] == nil {
		return false
	}

	delete(r.tickets, runs[last])
	r.stops[runs[last]]()

	return true
}

// queueOrder is what orders a run among those of its queue. The lock is held.
func (r *runner) queueOrder(run int) queue.Own {
	one := &r.State.Runs[run]
	return queue.Own{Nice: one.Nice, Arrival: one.Submitted.UnixNano(), Estimate: r.State.Estimate(run), Count: one.GPUs}
}

// setTicket notes whether a run waits with a ticket.
func (r *runner) setTicket(run int, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if yes {
		r.tickets[run] = r.queueOrder(run)
	} else {
		delete(r.tickets, run)
	}
}

// setStop notes how a run is ended that its owner cancels; nil: it is over.
func (r *runner) setStop(run int, stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stop == nil {
		delete(r.stops, run)
	} else {
		r.stops[run] = stop
	}
}

// failOrRetry ends a run for which there is no lease. Where each asks for its own, what may be over in a while, as a
// driver that is being exchanged, only delays the run; else it ends all.
func (r *runner) failOrRetry(ctx context.Context, run int, err error) error {
	var refusal *job.Refusal
	var usage *exit.Usage
	switch {
	case !r.Queue || errors.Is(err, syscall.ENOSPC):
		r.abandonStart(run)
		return err
	case errors.As(err, &refusal) || errors.As(err, &usage) || errors.Is(err, os.ErrNotExist):
		return r.recordFailedStart(run, err)
	}

	r.sayDelay(err)
	<-r.slots
	ctx, cancel := context.WithCancel(ctx)
	r.setStop(run, cancel)
	r.attended.Go(func() {
		defer cancel()
		select {
		case <-time.After(cmp.Or(r.host.Times.Retry, retryInterval)):
		case <-ctx.Done():
			// Or its owner cancels it.
		}
		r.requeueRun(run)
		r.wakeDispatch()
	})

	return nil
}

// sayDelay says why runs are tried again later, once.
func (r *runner) sayDelay(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text := why.Error(); text != r.why {
		r.why = text
		r.host.Say(fmt.Sprintf("jobs are tried again every %v: %s", cmp.Or(r.host.Times.Retry, retryInterval), text))
	}
}

// abandonStart lets go of what a run had before it was started.
func (r *runner) abandonStart(run int) {
	r.requeueRun(run)
	<-r.slots
	r.wakeDispatch()
}

// requeueRun makes a run that was about to be started one of those that may be.
func (r *runner) requeueRun(run int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.stops, run)
	delete(r.taken, run)
	r.State.ReturnArrayPlace(run)
	r.State.OfferRun(run)
	r.refillLines()
}

// wakeDispatch has dispatch look again.
func (r *runner) wakeDispatch() {
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// startWithSeat starts a run that has its lease.
func (r *runner) startWithSeat(ctx context.Context, run int, what StartOptions, seat *claim.CommandLease, err error) error {
	if ctx.Err() != nil && err != nil {
		r.setStop(run, nil)
		r.abandonStart(run)
		return nil //nolint:nilerr // ended meanwhile: that is no failure
	}

	if err != nil {
		return r.failOrRetry(ctx, run, err)
	}

	if seat.Said != "" && !what.CPU {
		select {
		case r.cpus <- struct{}{}:
			what.CPU = true
		case <-ctx.Done():
		}
	}

	if r.Keep == nil && batch.HasHungUp(lifeFD) {
		// Without delay: the goroutine that reads it may run later.
		r.cancel()
	}

	r.mu.Lock()
	wanted := r.State.MayStart(run)
	r.mu.Unlock()
	if ctx.Err() != nil || !wanted {
		r.leaveProcessor(what)
		r.abandonStart(run)
		return seat.Release()
	}

	err = r.startRun(run, what, seat)
	if err != nil {
		_ = seat.Release()
	}

	if errors.Is(err, errUnwanted) {
		r.leaveProcessor(what)
		r.abandonStart(run)
		return nil
	}

	return err
}

// claimDevices takes what is free. Devices of our own runs will be free soon; for others it queues.
func (r *runner) claimDevices(ctx context.Context, desk *claim.Allocator, command string) (*claim.CommandLease, error) {
	for ctx.Err() == nil {
		seat, err := desk.TryNow(ctx, command)
		var refusal *job.Refusal
		if !errors.As(err, &refusal) || refusal.Never {
			return seat, err
		}
		if !r.awaitOwnRun() {
			return desk.Wait(ctx, command, nil)
		}
	}
	return nil, ctx.Err()
}

// awaitOwnRun reports whether one of our own runs has ended within a moment.
func (r *runner) awaitOwnRun() bool {
	select {
	case <-r.freed:
		return true
	case <-time.After(ownRunWait):
		return false
	}
}
