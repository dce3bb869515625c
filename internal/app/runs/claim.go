package runs

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/core/job"
	"gpuard/internal/core/queue"
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
	// A file system may take as long for the log as the claim takes.
	what.log = sync.OnceValues(func() (*os.File, error) { return openLog(what.Log) })
	if !r.work.Each {
		go func() { _, _ = what.log() }() // start has its error
	}
	desk, err := what.Desk(ctx)
	if err != nil {
		return r.refused(run, err)
	}
	command := what.Argv[0]
	if !r.work.Each {
		seat, err := r.claim(ctx, desk, command)
		return r.meanwhile(ctx, run, what, seat, err)
	}
	if what.CPU {
		select {
		case r.cpus <- struct{}{}:
		default:
			return r.wait(ctx, run, what, func(ctx context.Context, _ func()) (*claim.Seat, error) {
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
		return r.meanwhile(ctx, run, what, seat, err)
	}
	return r.wait(ctx, run, what, func(ctx context.Context, queued func()) (*claim.Seat, error) { return desk.Wait(ctx, command, queued) })
}

// meanwhile starts a run that has its lease while the next one asks for its own. One is started at a time.
func (r *runner) meanwhile(ctx context.Context, run int, what Start, seat *claim.Seat, err error) error {
	if err != nil {
		return r.seated(ctx, run, what, seat, err)
	}
	r.starts <- struct{}{}
	r.attended.Go(func() {
		err := r.seated(ctx, run, what, seat, nil)
		if <-r.starts; err != nil {
			r.fail(err)
		}
	})
	return nil
}

// wait starts a run as soon as it has what it waits for, and lets others try meanwhile. It returns when few enough wait
// and this one has its place in the line, so that the next one does not get in front of it.
func (r *runner) wait(ctx context.Context, run int, what Start, claim func(ctx context.Context, queued func()) (*claim.Seat, error)) error {
	select {
	case r.waits <- struct{}{}:
	default:
		r.displace(run, what)
		select {
		case r.waits <- struct{}{}:
		case <-r.changed: // another one may be the next: back into the line, and look again
			r.unclaim(run, true)
			return nil
		case <-ctx.Done():
			return r.seated(ctx, run, what, nil, ctx.Err())
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	r.stoppable(run, cancel)
	r.ticketed(run, what, true)
	placed, done := make(chan struct{}), make(chan struct{})
	r.attended.Go(func() {
		defer cancel()
		seat, err := claim(ctx, sync.OnceFunc(func() { close(placed) }))
		r.ticketed(run, what, false)
		close(done)
		<-r.waits
		if err := r.seated(ctx, run, what, seat, err); err != nil {
			r.fail(err)
		}
	})
	if what.CPU {
		return nil
	}
	select {
	case <-placed:
	case <-done:
	}
	return nil
}

// displace takes the ticket of the last run that waits, if this run goes before it. That run goes back into the line.
func (r *runner) displace(run int, what Start) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if what.CPU {
		return
	}
	var runs []int
	var own []queue.Own
	for other, o := range r.tickets {
		runs, own = append(runs, other), append(own, o)
	}
	last := r.own(run).Displaces(own, time.Now().UnixNano())
	if last < 0 {
		return
	}
	delete(r.tickets, runs[last])
	if stop := r.stops[runs[last]]; stop != nil {
		stop()
	}
}

// own is what orders a run among those of its queue. The lock is held.
func (r *runner) own(run int) queue.Own {
	one := &r.state.Runs[run]
	return queue.Own{Nice: one.Nice, Arrival: one.Submitted.UnixNano(), Estimate: r.state.Estimate(run), Count: one.GPUs}
}

// ticketed notes whether a run waits with a ticket.
func (r *runner) ticketed(run int, what Start, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if yes && !what.CPU {
		r.tickets[run] = r.own(run)
	} else {
		delete(r.tickets, run)
	}
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
	r.unclaim(run, false)
	return err
}

// unclaim lets go of what a run had before it was started; again puts it back into the line.
func (r *runner) unclaim(run int, again bool) {
	r.mu.Lock()
	r.claims--
	r.state.Untake(run)
	if again && r.state.MayStart(run) {
		r.line(run)
	}
	r.refill()
	r.mu.Unlock()
	<-r.slots
	r.wake()
}

// wake has dispatch look again.
func (r *runner) wake() { signalOn(r.freed) }

// signalOn leaves a value in the channel.
func signalOn(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// seated starts a run that has its lease.
func (r *runner) seated(ctx context.Context, run int, what Start, seat *claim.Seat, err error) error {
	if ctx.Err() != nil && err != nil {
		r.stoppable(run, nil)
		r.unclaim(run, true)
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
		r.unclaim(run, true)
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
			return desk.Wait(ctx, command, nil)
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
