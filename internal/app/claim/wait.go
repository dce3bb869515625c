package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/queue"
	"gpuard/internal/host/interrupt"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/store"
)

// A request that cannot be served writes a ticket, and tries again when something changes. There is no daemon. Only the
// first few requests of a user try; the others sleep behind them (store.Waiting.Behind). What wakes a request, in
// wake.go:
//
//   - a lease, or a ticket ahead, ends: inotify on the folder;
//   - a process without a lease ends: its pidfd;
//   - memory of a job that has just ended may be free: the machine is read at growing intervals;
//   - the request that is next does not act: a timer, after which it is passed over;
//   - changes that no file shows, such as a new device or one that is healthy again: only the first in the queue reads the machine,
//     once a second, and calls the others if one of them may start.

// errLate ends the waiting.
var errLate = errors.New("the time of --wait ran out")

// signalError ends the waiting in favour of a signal.
type signalError struct{ sig os.Signal }

// Error names the signal.
func (s *signalError) Error() string { return "interrupted by " + s.sig.String() }

// waitInQueue queues until devices are given. No ticket stays behind after a signal: before a signal stops the process,
// the ticket is removed, and a continued process queues at the end.
func (c *claimer) waitInQueue(ctx context.Context, refusal *job.Refusal) (*Decision, error) {
	caught := interrupt.CatchSignals()
	defer caught.Stop()
	if limit := c.request.spec.Waiting.Limit; limit > 0 {
		waiting, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)

		// Not as a deadline: a reading would get what is left of the time, and its devices would seem not to answer.
		end := time.AfterFunc(limit, func() { cancel(errLate) })
		defer end.Stop()
		ctx = waiting
	}

	w := &waitingRequest{claimer: c, began: time.Now(), awake: make(chan struct{}, 1), refusal: refusal, exits: map[blockingProcess]<-chan struct{}{}}
	for {
		d, err := w.queueOnce(ctx, caught)
		w.showProgress(false)
		var by *signalError
		switch {
		case errors.Is(err, errLate):
			if w.skipped {
				w.updateShown()
			}
			last := *w.reliableRefusal()
			last.Summary += ", after waiting " + c.request.spec.Waiting.Limit.String()

			return nil, &job.Late{Refusal: &last}
		case !errors.As(err, &by):
			caught.Stop()
			c.obeyLateSignal(caught, d)
			return d, err
		case by.sig == syscall.SIGTSTP:
			if c.host.Live {
				c.host.Say("left the line; fg or bg puts this request at its end")
			}
			interrupt.Suspend()
		default:
			caught.Stop()
			interrupt.DieBySignal(by.sig)
		}
	}
}

// obeyLateSignal heeds a signal that came after the waiting was over and before this process reacts to signals by
// itself again.
func (c *claimer) obeyLateSignal(caught *interrupt.SignalCatcher, d *Decision) {
	for {
		select {
		case sig := <-caught.Signals:
			switch {
			case sig == syscall.SIGCONT, c.isReload(sig):
			case sig == syscall.SIGTSTP:
				interrupt.Suspend()
			default:
				c.releaseDecision(d)
				interrupt.DieBySignal(sig)
			}
		default:
			return
		}
	}
}

// isReload is what systemctl reload usually sends: a service that waits in line counts as started, and what it will
// start has read nothing yet.
func (c *claimer) isReload(sig os.Signal) bool {
	// By systemd itself (systemd.exec(5)).
	executed, _ := c.host.Env.Lookup("SYSTEMD_EXEC_PID")
	return sig == syscall.SIGHUP && executed == strconv.Itoa(os.Getpid())
}

// waitingRequest is a request in the line.
type waitingRequest struct {
	*claimer
	began time.Time
	mine  *store.Waiting
	// nil where the system has none left.
	watcher *store.Watcher
	// Has a value when this process was continued.
	awake chan struct{}
	// The refusal of the last attempt.
	refusal *job.Refusal
	// The refusal of the last attempt for which all devices answered; nil: of none.
	answers *job.Refusal
	// Called when the ticket is in the line; may be nil.
	queued func()
	exits  map[blockingProcess]<-chan struct{}
	// Has a value when one of the blocking processes has ended.
	gone   chan struct{}
	fading retryLimit
	// Requests that come first, as far as is known.
	ahead int
	// Things have changed since the last attempt.
	skipped bool
	// When the machine was last read, or could not be.
	tried time.Time
	took  time.Duration // that
	// The machine cannot be read, and that was said.
	silent bool
	// Readings in a row in which a device was late.
	late int
	// Too many devices are gone, and that was said.
	missing bool
}

// blockingProcess is a process without a lease.
type blockingProcess struct {
	pid   int
	start uint64
}

// queueOnce waits in the queue once, until there is an answer or a signal.
func (w *waitingRequest) queueOnce(ctx context.Context, caught *interrupt.SignalCatcher) (*Decision, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	heard := make(chan os.Signal, 1)
	go func() { heard <- w.watchSignals(ctx, caught, cancel) }()
	d, err := w.waitWithTicket(ctx)
	cancel(nil)

	// Also one that came after the last attempt, so that it is not the cause of ctx.
	sig := <-heard
	switch cause := context.Cause(ctx); {
	case sig != nil:
		// The signal counts, whatever the last attempt gave.
		w.releaseDecision(d)
		return nil, &signalError{sig}
	case err != nil && errors.Is(cause, errLate):
		// In the middle of an attempt.
		return nil, errLate
	}

	return d, err
}

// releaseDecision frees what an attempt has leased; d may be nil.
func (c *claimer) releaseDecision(d *Decision) {
	if d != nil && d.Held != nil {
		d.Unwatch()
		_ = c.folder.Release(d.Held.Lease, c.boot)
		_ = d.Held.Lock.Close()
	}
}

// watchSignals turns signals into the end of ctx, and returns the one that ends the waiting; nil when ctx ended by
// itself.
func (w *waitingRequest) watchSignals(ctx context.Context, caught *interrupt.SignalCatcher, cancel context.CancelCauseFunc) os.Signal {
	for {
		select {
		case sig := <-caught.Signals:
			if w.isReload(sig) {
				continue
			}
			if sig != syscall.SIGCONT {
				cancel(&signalError{sig})
				return sig
			}

			select {
			case w.awake <- struct{}{}:
			default:
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// waitWithTicket takes a ticket and tries until something is given.
func (w *waitingRequest) waitWithTicket(ctx context.Context) (*Decision, error) {
	q := w.request
	in, _ := q.pickContext(q.view.Held, time.Now())
	ticket := q.makeTicket(in, time.Now())
	if self, err := w.host.Proc.Stat(os.Getpid()); err == nil {
		ticket.Start = self.Start
	}

	if len(ticket.Devices) < ticket.Count {
		// Nothing here could ever be enough.
		return nil, w.refusal
	}

	var err error
	w.mine, err = w.folder.QueueTicket(ticket)
	if err != nil {
		return nil, err
	}

	if w.queued != nil {
		w.queued()
	}

	defer w.mine.Withdraw() //nolint:errcheck // one that stays is dead all the same, and removed by the next claim
	if err := w.sleepBehind(ctx, queue.MaxCompeting); err != nil {
		return nil, err
	}

	w.watcher, err = w.folder.Watch()
	if err == nil {
		defer w.watcher.Close() //nolint:errcheck // nothing was written
	}

	w.host.Patience = cmp.Or(w.host.Patience, machine.ConfigPatience)
	w.fading, w.tried = q.newPatience(), q.readAt

	for next := (wakeReason{retry: true}); ; {
		held, err := w.tryClaim(ctx, next)
		if err == nil {
			d := q.newDecision(held, w.folder)
			if w.watcher != nil {
				d.Watch = w.watcher.Detach()
			}
			return d, nil
		}

		if !errors.As(err, &w.refusal) || w.refusal.Never && !w.mayReturn() {
			return nil, err
		}

		if w.late == 0 {
			w.answers = w.refusal
		}

		w.sayAbsent(w.refusal.Never)
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}

		w.showProgress(true)

		for next.retry = false; !next.retry; {
			next, err = w.awaitWake(ctx)
			if err != nil {
				return nil, err
			}
		}
	}
}

// sleepBehind sleeps while n tickets of this user arrived before: those that do not compete. A ticket that competes may
// be the next one, also before earlier ones of its user, so it has to be awake. On a terminal the place is updated from
// time to time.
func (w *waitingRequest) sleepBehind(ctx context.Context, n int) error {
	for pause := 5 * time.Second; ; pause = min(2*pause, 30*time.Second) {
		part, cancel := ctx, context.CancelFunc(func() {})
		if w.host.Live {
			part, cancel = context.WithTimeout(ctx, pause)
		}

		w.showProgress(true)
		err := w.mine.WaitBehind(part, n)
		cancel()
		if err == nil || ctx.Err() != nil || !w.host.Live {
			return err
		}
	}
}

// tryClaim tries to claim, with the last reading of the machine if that is enough: changes of leases and tickets are
// visible without a new one. Reading an invented machine costs nothing. If the machine cannot be read now, nothing
// changes.
func (w *waitingRequest) tryClaim(ctx context.Context, why wakeReason) (*store.Held, error) {
	w.host.ForgetConfig()
	w.skipped = false

	for stale := 0; ; stale++ {
		w.request.final = stale > rereads

		// Nothing is given on such a reading.
		old := why.likely && time.Since(w.request.readAt) > machine.MaxReadingAge
		if reads := why.fresh || old || stale > 0 || !w.host.IsHardware(); reads {
			because := mayHaveChanged
			if stale > 0 {
				because = readingTooOld
			}

			switch err := w.rereadMachine(ctx, because); {
			case err != nil && ctx.Err() == nil:
				return nil, w.refusal
			case err != nil:
				return nil, err
			}
		}

		held, err := claimLocked(w.host, w.request, w.folder, w.boot, w.mine)
		if errors.Is(err, errStale) {
			continue
		}

		w.ahead = 0
		if w.request.queue != nil {
			place, _ := w.request.queue.queuePosition()
			w.ahead = place - 1
		}

		if err != nil {
			w.renewTicket()
			if why.fresh {
				wakeQueue(w.host, w.request, w.folder, w.boot)
			}
		}

		return held, err
	}
}

// rereadMachine reads the machine, and says once when that fails. It does not wait for a device that is late, or the
// end of a lease on another one would be heeded only when the driver has given the late one up; the next reading may
// find it.
func (w *waitingRequest) rereadMachine(ctx context.Context, why rereadCause) error {
	began := time.Now()
	err := w.rereadChanged(ctx, why, func(ctx context.Context, query gpu.Query) (gpu.Machine, error) {
		m, partial, err := w.host.ReadFast(ctx, query)
		switch {
		case err == nil && partial:
			w.late++
		case err == nil:
			w.late = 0
		}
		return m, err
	})

	w.tried = time.Now()
	w.took = w.tried.Sub(began)
	if err != nil && !w.silent && ctx.Err() == nil {
		w.host.Say(err.Error() + "; this request stays in the line meanwhile")
	}

	w.silent = err != nil

	return err
}

// maxLateReadings is after how many readings in a row a device that was late counts as one that does not answer. In the
// line it has half a second, which may be too little while the machine is busy.
const maxLateReadings = 3

// reliableRefusal is what the request waits for: that of the last attempt for which all devices answered, unless one
// has stopped to answer.
func (w *waitingRequest) reliableRefusal() *job.Refusal {
	if w.late > 0 && w.late < maxLateReadings && w.answers != nil {
		return w.answers
	}
	return w.refusal
}

// watchExits has a value when one of the processes that block has ended.
func (w *waitingRequest) watchExits() <-chan struct{} {
	if !w.host.IsHardware() {
		return nil
	}

	if w.gone == nil {
		w.gone = make(chan struct{}, 1)
	}

	// Each takes a thread.
	const most = 16

	for _, r := range w.refusal.Reasons {
		for _, p := range r.Processes {
			b := blockingProcess{p.PID, p.Start}
			if _, known := w.exits[b]; known || len(w.exits) == most || !needsPolling(r) || p.Start == 0 || !w.host.Proc.IsAlive(p.PID, p.Start) {
				continue
			}

			pidfd, err := launch.OpenPidfd(p.PID)
			if err != nil {
				continue
			}

			ended := launch.ExitChannel(pidfd)
			w.exits[b] = ended
			go func() {
				<-ended
				_ = pidfd.Close()

				select {
				case w.gone <- struct{}{}:
				default:
				}
			}()
		}
	}

	return w.gone
}

// wantText is the request in a few words.
func wantText(spec job.Spec) string {
	n := max(spec.GPUs, len(spec.Devices))
	text := fmt.Sprintf("%d GPUs", n)
	switch {
	case spec.MIG != "":
		text = "a " + prose.Clean(spec.MIG) + " slice"
	case n == 1:
		text = "1 GPU"
	}

	switch {
	case spec.Share > 0:
		text += fmt.Sprintf(" (a share of %s)", spec.Share)
	case spec.Memory > 0:
		text += fmt.Sprintf(" with %s", spec.Memory)
	}

	return text
}
