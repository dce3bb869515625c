package claim

import (
	"cmp"
	"context"
	"slices"
	"time"

	"gpuard/internal/core/job"
	"gpuard/internal/core/queue"
)

// wakeReason is why a waiting request wakes.
type wakeReason struct {
	// Another attempt may give another answer.
	retry bool
	// The machine must be read for it, because what changed there is told by nothing else.
	fresh bool
	// It may well get a device.
	likely bool
}

// awaitWake returns when something has happened.
func (w *waitingRequest) awaitWake(ctx context.Context) (wakeReason, error) {
	pause, fresh := w.untilNextTry()
	timer := time.After(pause)

	// Only on a terminal.
	var beat <-chan time.Time
	if w.host.Live && w.host.Stand != nil {
		t := time.NewTicker(recountInterval)
		defer t.Stop()
		beat = t.C
	}

	for {
		select {
		case <-ctx.Done():
			return wakeReason{}, context.Cause(ctx)
		case <-w.folderChanges():
			w.fading = w.request.newPatience()
			look, err := w.awaitFree(ctx)
			return wakeReason{retry: look, likely: look}, err
		case <-w.awake:
			return wakeReason{retry: true, fresh: true}, nil
		case <-w.watchExits():
			return wakeReason{retry: true, fresh: true}, nil
		case <-timer:
			return wakeReason{retry: true, fresh: fresh}, nil
		case <-beat:
			w.recountQueue()
		}
	}
}

// recountInterval is the time between two counts of the queue on a terminal.
const recountInterval = 2 * time.Second

// folderChanges has a value when a lease or a ticket has ended.
func (w *waitingRequest) folderChanges() <-chan struct{} {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Changed
}

// readInterval is the time between two readings of the machine by the first in line. Where a reading takes long
// (nvidia-smi), no more than a tenth of the time goes into it.
func (w *waitingRequest) readInterval() time.Duration {
	return max(cmp.Or(w.host.Times.Slow, time.Second), 10*w.took)
}

// untilNextTry is the time until the request checks again without an event, and whether it must then read the machine.
func (w *waitingRequest) untilNextTry() (shortest time.Duration, fresh bool) {
	q := w.request
	sooner := func(d time.Duration, reads bool) {
		if d > 0 && (shortest == 0 || d < shortest) {
			shortest, fresh = d, reads
		}
	}

	if l := q.queue; l != nil && l.free && !l.mayStart() {
		left := time.Duration(l.turn.Next[l.next.Key()]-l.boot) + cmp.Or(w.host.Times.Overdue, queue.PassOverAfter)
		sooner(max(left, 0)+time.Duration(w.ahead+1)*10*time.Millisecond, false)
	}

	if l := q.queue; l != nil && l.nextLapse() > 0 {
		sooner(l.nextLapse()+time.Duration(w.ahead+1)*10*time.Millisecond, false)
	}

	if e := q.firstEnding(w.refusal); w.fading.shouldRetry(e) && (e != endingLease || w.watcher == nil) {
		// The end of a lease is told.
		sooner(w.fading.next*time.Duration(w.ahead+1), true)
		w.fading.next = min(2*w.fading.next, time.Second)
	}

	every := w.readInterval()
	if w.ahead > 0 {
		// In case those ahead are stopped.
		every *= time.Duration(30 * w.ahead)
	}

	// Counted from the last reading: events that need none come more often than that where many wait.
	sooner(max(every-time.Since(w.tried), time.Millisecond), true)
	if w.watcher == nil {
		sooner(min(w.readInterval(), time.Second), false)
	}

	return shortest, fresh
}

// turnDelay is how long a request lets each of those ahead go first.
const turnDelay = 4 * time.Millisecond

// awaitFree waits, after a lease or a ticket has ended, until the request may use that, and reports whether it has to
// try. As many requests as there are free devices try immediately, and the others one after the other while a device is
// left: a crowd that tries at the same time would keep the processors from the jobs that start.
func (w *waitingRequest) awaitFree(ctx context.Context) (look bool, err error) {
	for waited := time.Duration(0); ; {
		free := w.countUsable()
		if free == 0 {
			w.markSkipped()
			return false, nil
		}

		wait := time.Duration(max(0, min(w.ahead, 20)-free+1))*turnDelay - waited
		if wait <= 0 {
			return true, nil
		}

		began := time.Now()
		select {
		case <-time.After(wait):
		case <-w.folderChanges():
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}

		waited += time.Since(began)
	}
}

// countUsable counts the devices that the request may be able to use now, and the requests ahead, without the folder
// lock. The count is never too small: 0 means that too few of the suitable devices are without a lease. Devices that
// were busy at the last attempt for a reason that no lease and no ticket changes do not count.
func (w *waitingRequest) countUsable() (free int) {
	q, l := w.request, w.request.queue
	all := len(w.mine.Ticket.Devices)
	if l != nil {
		order := queue.OrderTickets(l.asked)
		w.ahead = w.folder.CountRemaining(order[:max(0, slices.IndexFunc(order, l.isMe))])
	}

	sight, err := w.folder.ReadSight(w.boot)
	if err != nil || q.spec.Share > 0 || w.mine.Ticket.Parent != "" || w.mine.Ticket.Allocation != "" || q.spec.Moving != "" {
		// Others may have the same devices.
		return all
	}
	if len(q.newDevices(sight.Changes, w.mine.Ticket.Known)) > 0 {
		return all
	}

	for _, id := range w.mine.Ticket.Devices {
		told := sight.Changes[id].Generation != q.view.Changes[id].Generation
		busy := slices.ContainsFunc(w.refusal.Reasons, func(r job.Reason) bool { return r.UUID == id && needsPolling(r) })
		if !sight.Leased[job.DeviceHash(id)] && !sight.Leased[job.ManyDevices] && (told || !busy) {
			free++
		}
	}

	if free < w.mine.Ticket.Count {
		return 0
	}

	return free
}

// needsPolling reports whether no file shows the end of this reason.
func needsPolling(r job.Reason) bool {
	return r.Verdict == job.Busy && r.Lease == "" && r.Code != "leased" && r.Code != "kept"
}

// markSkipped records that no attempt was needed.
func (w *waitingRequest) markSkipped() {
	w.skipped = true
	if l := w.request.queue; l != nil {
		l.free = false
	}
	if w.host.Stand != nil {
		w.updateShown()
		w.recountQueue()
	}
}

// updateShown updates what is shown about the request without an attempt.
func (w *waitingRequest) updateShown() {
	q := w.request
	held, _ := w.folder.Leases()
	if _, refusal := q.decidePlan(held, q.view.Last, time.Now()); refusal != nil {
		w.refusal, q.view.Held = refusal, held
	}
}
