package runs

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
		return r.refused(ctx, run, err)
	}
	command := cmp.Or(what.Name, machine.BaseName(what.Argv))
	if !r.work.Each {
		seat, err := r.claim(ctx, desk, command)
		return r.meanwhile(ctx, run, what, seat, err)
	}
	if what.CPU {
		r.cpus <- struct{}{} // there is room: only this goroutine takes one
	}
	seat, err := desk.TryNow(ctx, command)
	var refusal *job.Refusal
	if err == nil && seat.Said != "" { // it goes to the CPU, and may have to wait there
		r.attended.Go(func() {
			if err := r.seated(ctx, run, what, seat, nil); err != nil {
				r.fail(err)
			}
		})
		return nil
	}
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

// wait starts a run as soon as it has what it waits for, and lets others try meanwhile. It returns when this one has its
// place in the line, so that the next one does not get in front of it.
func (r *runner) wait(ctx context.Context, run int, what Start, claim func(ctx context.Context, queued func()) (*claim.Seat, error)) error {
	select {
	case r.waits <- struct{}{}: // there is room, or will be: another run is giving its ticket up
	case <-ctx.Done():
		return r.seated(ctx, run, what, nil, ctx.Err())
	}
	ctx, cancel := context.WithCancel(ctx)
	r.stoppable(run, cancel)
	r.ticketed(run, true)
	placed, done := make(chan struct{}), make(chan struct{})
	r.attended.Go(func() {
		defer cancel()
		seat, err := claim(ctx, sync.OnceFunc(func() { close(placed) }))
		r.ticketed(run, false)
		close(done)
		<-r.waits
		r.wake()
		if err := r.seated(ctx, run, what, seat, err); err != nil {
			r.fail(err)
		}
	})
	select {
	case <-placed:
	case <-done:
	}
	return nil
}

// displace takes the ticket of the last run that waits, if this run goes before it. That run goes back into the line. The
// lock is held.
func (r *runner) displace(run int) bool {
	var runs []int
	var own []queue.Own
	for other, o := range r.tickets {
		runs, own = append(runs, other), append(own, o)
	}
	last := r.own(run).Displaces(own, time.Now().UnixNano())
	if last < 0 || r.stops[runs[last]] == nil {
		return false
	}
	delete(r.tickets, runs[last])
	r.stops[runs[last]]()
	return true
}

// own is what orders a run among those of its queue. The lock is held.
func (r *runner) own(run int) queue.Own {
	one := &r.state.Runs[run]
	return queue.Own{Nice: one.Nice, Arrival: one.Submitted.UnixNano(), Estimate: r.state.Estimate(run), Count: one.GPUs}
}

// ticketed notes whether a run waits with a ticket.
func (r *runner) ticketed(run int, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if yes {
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

// refused ends a run for which there is no lease. Where each asks for its own, what may be over in a while, as a driver
// that is being exchanged, only delays the run; else it ends all.
func (r *runner) refused(ctx context.Context, run int, err error) error {
	var refusal *job.Refusal
	var usage *exit.Usage
	switch {
	case !r.work.Each || errors.Is(err, syscall.ENOSPC):
		r.unclaim(run)
		return err
	case errors.As(err, &refusal) || errors.As(err, &usage) || errors.Is(err, os.ErrNotExist):
		return r.stillborn(run, err)
	}
	r.delayed(err)
	<-r.slots
	ctx, cancel := context.WithCancel(ctx)
	r.stoppable(run, cancel)
	r.attended.Go(func() {
		defer cancel()
		select {
		case <-time.After(cmp.Or(r.host.Times.Retry, retry)):
		case <-ctx.Done(): // or its owner cancels it
		}
		r.untake(run)
		r.wake()
	})
	return nil
}

// delayed says why runs are tried again later, once.
func (r *runner) delayed(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text := why.Error(); text != r.why {
		r.why = text
		r.host.Say(fmt.Sprintf("jobs are tried again every %v: %s", cmp.Or(r.host.Times.Retry, retry), text))
	}
}

// unclaim lets go of what a run had before it was started.
func (r *runner) unclaim(run int) {
	r.untake(run)
	<-r.slots
	r.wake()
}

// untake makes a run that was about to be started one of those that may be.
func (r *runner) untake(run int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.stops, run)
	delete(r.taken, run)
	r.state.Untake(run)
	r.state.Offer(run)
	r.refill()
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
		r.unclaim(run)
		return nil //nolint:nilerr // ended meanwhile: that is no failure
	}
	if err != nil {
		return r.refused(ctx, run, err)
	}
	if seat.Said != "" && !what.CPU {
		select {
		case r.cpus <- struct{}{}:
			what.CPU = true
		case <-ctx.Done():
		}
	}
	if r.work.Keep == nil && batch.HungUp(lifeFD) { // without delay: the goroutine that reads it may run later
		r.cancel()
	}
	r.mu.Lock()
	wanted := r.state.MayStart(run)
	r.mu.Unlock()
	if ctx.Err() != nil || !wanted {
		r.leaveProcessor(what)
		r.unclaim(run)
		return seat.Leave()
	}
	err = r.start(run, what, seat)
	if err != nil {
		_ = seat.Leave()
	}
	if errors.Is(err, errUnwanted) {
		r.leaveProcessor(what)
		r.unclaim(run)
		return nil
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
