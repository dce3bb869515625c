package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/interrupt"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/store"
)

// Waiting without a daemon: a request that cannot be served writes a ticket, and looks again when something changes. Only the
// first few of a user look at all; every other one sleeps behind them (store.Waiting.Behind). What the request
// waits for decides what wakes it:
//
//   - a lease, or a ticket before it: the folder is watched, and nothing is done until something ends there;
//   - a process without a lease: its end is waited for by pidfd, and the machine is looked at slowly, since it may give back
//     memory before that;
//   - memory of a job that just ended: looks at growing distances;
//   - somebody who is next and does not come: a timer, after which they are passed over;
//   - anything else, such as a device's health: slow looks.

// late says that the time of --wait ran out.
type late struct{ refusal *job.Refusal }

// Error is what was not given, and how long it was waited for.
func (l *late) Error() string { return l.refusal.Error() }

// Unwrap returns the refusal of the last look, which lists the reasons.
func (l *late) Unwrap() error { return l.refusal }

// errLate ends the waiting.
var errLate = errors.New("the time of --wait ran out")

// signalled ends the waiting in favour of a signal.
type signalled struct{ sig os.Signal }

// Error names the signal.
func (s *signalled) Error() string { return "interrupted by " + s.sig.String() }

// wait queues until devices are given. Signals find no ticket left behind: one that stops the process takes the ticket away
// before, and whoever goes on afterwards stands at the end.
func (c *claiming) wait(ctx context.Context, refusal *job.Refusal) (*decision, error) {
	caught := interrupt.Catch()
	defer caught.Stop()
	if c.app.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.app.Wait, errLate)
		defer cancel()
	}
	w := &waiting{claiming: c, began: time.Now(), awake: make(chan struct{}, 1), refusal: refusal, exits: map[blocking]<-chan struct{}{}}
	for {
		d, err := w.queue(ctx, caught)
		w.show(false)
		var by *signalled
		switch {
		case errors.Is(err, errLate):
			last := *w.refusal
			last.Summary += ", after waiting " + c.app.Wait.String()
			return nil, &late{&last}
		case !errors.As(err, &by):
			caught.Stop()
			c.belated(caught, d)
			return d, err
		case by.sig == syscall.SIGTSTP:
			if c.app.Live {
				c.app.Say("left the line; fg or bg puts this request at its end")
			}
			interrupt.Suspend()
		default:
			caught.Stop()
			interrupt.Die(by.sig)
		}
	}
}

// belated heeds a signal that came after the waiting was over and before this process reacts to signals by itself again.
func (c *claiming) belated(caught *interrupt.Caught, d *decision) {
	for {
		select {
		case sig := <-caught.Signals:
			switch {
			case sig == syscall.SIGCONT, c.reload(sig):
			case sig == syscall.SIGTSTP:
				interrupt.Suspend()
			default:
				c.giveUp(d)
				interrupt.Die(sig)
			}
		default:
			return
		}
	}
}

// reload is what systemctl reload usually sends: a service that waits in line counts as started, and what it will start has read nothing yet.
func (c *claiming) reload(sig os.Signal) bool {
	executed, _ := c.app.Env.Lookup("SYSTEMD_EXEC_PID") // by systemd itself (systemd.exec(5))
	return sig == syscall.SIGHUP && executed == strconv.Itoa(os.Getpid())
}

// waiting is a request in the line.
type waiting struct {
	*claiming
	began   time.Time
	mine    *store.Waiting
	watcher *store.Watcher // nil where the system has none left
	awake   chan struct{}  // has a value when this process was continued
	refusal *job.Refusal   // of the last look
	exits   map[blocking]<-chan struct{}
	gone    chan struct{} // has a value when one of the blocking processes has ended
	fading  patience
	slow    time.Duration
}

// blocking is a process without a lease.
type blocking struct {
	pid   int
	start uint64
}

// queue stands in the line once, until there is an answer or a signal.
func (w *waiting) queue(ctx context.Context, caught *interrupt.Caught) (*decision, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	heard := make(chan os.Signal, 1)
	go func() { heard <- w.listen(ctx, caught, cancel) }()
	d, err := w.stand(ctx)
	cancel(nil)
	sig := <-heard // also one that came when the last look was over, and so is not the cause of ctx
	switch cause := context.Cause(ctx); {
	case sig != nil: // whatever the last look came to: the signal counts
		w.giveUp(d)
		return nil, &signalled{sig}
	case err != nil && errors.Is(cause, errLate): // in the middle of a look
		return nil, errLate
	}
	return d, err
}

// giveUp gives back what a look has brought; nil where it has brought nothing.
func (c *claiming) giveUp(d *decision) {
	if d != nil && d.Held != nil {
		_ = c.folder.Release(d.Held.Lease, c.boot)
		_ = d.Held.Lock.Close()
	}
}

// listen turns signals into the end of ctx, and returns the one that ends the waiting; nil when ctx ended by itself.
func (w *waiting) listen(ctx context.Context, caught *interrupt.Caught, cancel context.CancelCauseFunc) os.Signal {
	for {
		select {
		case sig := <-caught.Signals:
			if w.reload(sig) {
				continue
			}
			if sig != syscall.SIGCONT {
				cancel(&signalled{sig})
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

// stand takes a ticket and looks until something is given.
func (w *waiting) stand(ctx context.Context) (*decision, error) {
	q := w.question
	in, _ := q.context(q.seen.Held, time.Now())
	ticket := q.ticket(in, time.Now())
	if self, err := w.app.Proc.Stat(os.Getpid()); err == nil {
		ticket.Start = self.Start
	}
	if len(ticket.Devices) < ticket.Count { // nothing here could ever be enough
		return nil, w.refusal
	}
	var err error
	if w.mine, err = w.folder.Queue(ticket); err != nil {
		return nil, err
	}
	defer w.mine.Withdraw() //nolint:errcheck // one that stays is dead all the same, and removed by the next claim
	if err := w.behind(ctx, len(q.machine.Devices)+4); err != nil {
		return nil, err
	}
	if w.watcher, err = w.folder.Watch(); err == nil {
		defer w.watcher.Close() //nolint:errcheck // nothing was written
	}
	w.app.Patience = cmp.Or(w.app.Patience, patient)
	w.fading, w.slow = patience{app: w.app, started: time.Now()}, cmp.Or(w.app.Slow, 5*time.Second)
	for fresh := false; ; {
		held, err := w.look(ctx, fresh)
		if err == nil {
			d := q.decided(held, w.folder)
			if w.watcher != nil {
				d.Watch = w.watcher.Leave()
			}
			return d, nil
		}
		if !errors.As(err, &w.refusal) || w.refusal.Never {
			return nil, err
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		w.show(true)
		if fresh, err = w.sleep(ctx); err != nil {
			return nil, err
		}
	}
}

// behind sleeps while n tickets of this user stand before. Who looks on sees the place now and then.
func (w *waiting) behind(ctx context.Context, n int) error {
	for pause := 5 * time.Second; ; pause = min(2*pause, 30*time.Second) {
		part, cancel := ctx, context.CancelFunc(func() {})
		if w.app.Live {
			part, cancel = context.WithTimeout(ctx, pause)
		}
		w.show(true)
		err := w.mine.Behind(part, n)
		cancel()
		if err == nil || ctx.Err() != nil || !w.app.Live {
			return err
		}
	}
}

// look claims with the last reading of the machine where that suffices: what leases and tickets changed is seen without it.
// Reading an invented machine costs nothing.
func (w *waiting) look(ctx context.Context, fresh bool) (*store.Held, error) {
	w.app.said = said{}
	if rules, err := w.app.rules(); err == nil { // as the files are by now, and as they were where somebody is about to write them
		w.question.rules = rules
	}
	for stale := 0; ; stale++ {
		if fresh || stale > 0 || !w.app.hardware() {
			if err := w.read(ctx); err != nil {
				return nil, err
			}
		}
		w.question.last = stale > rereads
		held, err := w.app.record(w.question, w.folder, w.boot, w.mine)
		if !errors.Is(err, errStale) {
			return held, err
		}
	}
}

// sleep returns when another look may give another answer; fresh says that the machine must be read for it.
func (w *waiting) sleep(ctx context.Context) (fresh bool, err error) {
	pause, fresh := w.pause()
	var timer <-chan time.Time
	if pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		timer = t.C
	}
	var changed <-chan struct{}
	if w.watcher != nil {
		changed = w.watcher.Changed
	}
	var beat <-chan time.Time // for somebody who looks at the line
	if w.app.Live && w.app.Stand != nil {
		t := time.NewTicker(renewal)
		defer t.Stop()
		beat = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-changed:
			w.fading, w.slow = patience{app: w.app, started: time.Now()}, cmp.Or(w.app.Slow, 5*time.Second)
			return false, w.step(ctx)
		case <-w.awake:
			return true, nil
		case <-w.watchExits():
			return true, nil
		case <-timer:
			return fresh, nil
		case <-beat:
			w.renew()
		}
	}
}

// renewal is the time between two counts of the line for somebody who looks at it.
const renewal = 2 * time.Second

// step lets those who stand before look first, or all would ask for the lock at the same moment.
func (w *waiting) step(ctx context.Context) error {
	place := 1
	if l := w.question.line; l != nil {
		place, _ = l.place()
	}
	timer := time.NewTimer(time.Duration(min(place, 20)-1) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pause is the time until the next look that nothing else asks for, 0 for none, and whether that look must read the machine.
func (w *waiting) pause() (shortest time.Duration, fresh bool) {
	q, slowest := w.question, 30*time.Second
	sooner := func(d time.Duration, reads bool) {
		if d > 0 && (shortest == 0 || d < shortest) {
			shortest, fresh = d, reads
		}
	}
	if l := q.line; l != nil && l.free && !l.mine() {
		place, _ := l.place()
		left := time.Duration(l.turn.Next[l.next.ID]-l.boot) + cmp.Or(w.app.Overdue, 2*time.Second)
		sooner(max(left, 0)+time.Duration(place)*10*time.Millisecond, false)
	}
	if w.fading.lasts(q.ending(w.refusal)) {
		sooner(w.fading.next, true)
		w.fading.next = min(2*w.fading.next, time.Second)
	}
	if w.watcher == nil {
		sooner(min(w.slow, time.Second), false)
	}
	if slices.ContainsFunc(w.refusal.Reasons, untold) {
		sooner(w.slow, true)
		w.slow = min(2*w.slow, slowest)
	}
	return shortest, fresh
}

// untold is a reason whose end no file tells.
func untold(r job.Reason) bool {
	return r.Verdict == job.Busy && r.Lease == "" && r.Code != "leased" && r.Code != "kept"
}

// watchExits has a value when one of the processes that block has ended.
func (w *waiting) watchExits() <-chan struct{} {
	if !w.app.hardware() {
		return nil
	}
	if w.gone == nil {
		w.gone = make(chan struct{}, 1)
	}
	const most = 16 // each takes a thread
	for _, r := range w.refusal.Reasons {
		for _, p := range r.Processes {
			b := blocking{p.PID, p.Start}
			if _, known := w.exits[b]; known || len(w.exits) == most || !untold(r) || p.Start == 0 || !w.app.Proc.Alive(p.PID, p.Start) {
				continue
			}
			pidfd, err := launch.Pidfd(p.PID)
			if err != nil {
				continue
			}
			ended := launch.Exited(pidfd)
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

// want is the request in a few words.
func want(spec job.Spec) string {
	n := max(spec.GPUs, len(spec.Devices))
	text := fmt.Sprintf("%d GPUs", n)
	switch {
	case spec.MIG != "":
		text = "a " + gpu.Clean(spec.MIG) + " slice"
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
