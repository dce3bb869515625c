package claim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/host/store"
)

// endingKind is what a busy device owes to something that is about to be over.
type endingKind int

const (
	notEnding endingKind = iota
	// The command is gone, its holder is about to notice.
	endingLease
	// Memory of a lease that just ended, or of a process that ended after the reading.
	fadingUse
)

// retryLimits returns how long to try again before a device counts as busy, and the first pause; each further one is
// twice as long.
func (p *retryLimit) retryLimits(e endingKind) (longest, first time.Duration) {
	switch e {
	case endingLease:
		return registry.NoticeTimeout, time.Millisecond
	case fadingUse:
		return p.fading, 50 * time.Millisecond
	}
	return 0, 0
}

// retryLimit limits how often one claim tries again.
type retryLimit struct {
	host *machine.Host
	// How long memory of a job that has ended is waited for.
	fading  time.Duration
	started time.Time
	kind    endingKind
	next    time.Duration
	told    bool
}

// newPatience starts now.
func (q *request) newPatience() retryLimit {
	p := retryLimit{host: q.host, started: time.Now()}
	if !q.spec.Waiting.No {
		p.fading = cmp.Or(q.host.Times.Fading, 10*time.Second)
	}
	return p
}

// shouldRetry reports whether to try again for this kind of ending.
func (p *retryLimit) shouldRetry(e endingKind) bool {
	longest, first := p.retryLimits(e)
	if e != p.kind {
		p.kind, p.next = e, first
	}
	return time.Since(p.started) < longest
}

func (p *retryLimit) waitPause(ctx context.Context) error {
	if !p.told && time.Since(p.started) > 500*time.Millisecond && p.kind == fadingUse {
		p.told = true
		p.host.Say(fmt.Sprintf("waiting up to %.0f s for GPU memory of a job that just ended", p.fading.Seconds()))
	}

	timer := time.After(p.next)
	p.next = min(2*p.next, time.Second)

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer:
		return nil
	}
}

// firstEnding returns the first reason that is about to be over.
func (q *request) firstEnding(r *job.Refusal) endingKind {
	// What is outside the lease we are in is closed to us for ever, but that lease may be over in a moment.
	if above := q.enclosingLeases(q.view.Held); len(above) > 0 && q.isLeaseEnding(above[0]) {
		return endingLease
	}
	if r.Never {
		return notEnding
	}

	found, ends := notEnding, q.recentEnds()
	for _, reason := range r.Reasons {
		switch {
		case reason.Verdict != job.Busy:
		case q.isShareEnding(reason.UUID):
			return endingLease
		case reason.Lease != "":
			if q.isLeaseEnding(reason.Lease) {
				return endingLease
			}
		case q.host.IsHardware() && ends.IsFading(reason):
			found = fadingUse
		}
	}

	return found
}

// isShareEnding: one of the leases that share the device is about to be given back. No single one is the reason there.
func (q *request) isShareEnding(id gpu.UUID) bool {
	return slices.ContainsFunc(q.view.Held, func(l job.Lease) bool { return l.Share > 0 && l.Holds(id) && registry.IsCommandGone(q.host, l) })
}

// isLeaseEnding: the command is gone, and nothing is recorded yet that still holds the lease.
func (q *request) isLeaseEnding(id string) bool {
	i := slices.IndexFunc(q.view.Held, func(l job.Lease) bool { return l.ID == id })
	if i < 0 {
		return false
	}
	return registry.IsCommandGone(q.host, q.view.Held[i])
}

// withHolders is the refusal with the names of the processes that keep leases whose commands are gone. Finding them
// takes a walk through /proc, so this is for the final refusal, when the folder is not locked.
func (q *request) withHolders(folder *store.Folder, r *job.Refusal) *job.Refusal {
	held, found := slices.Clone(q.view.Held), false
	for i := range held {
		if l := registry.FindUnattended(q.host, folder, held[i], true); l.Ended != held[i].Ended || l.PID != held[i].PID {
			held[i], found = l, true
		}
	}

	q.stuckLease = slices.ContainsFunc(held, func(l job.Lease) bool { return l.Ended })
	if !found {
		return r
	}

	_, again := q.decidePlan(held, q.view.Last, time.Now())
	if again == nil {
		return r
	}

	q.view.Held = held

	return again
}

// recentEnds is what has ended, by the record of leases and by the state that the processes of the reading have now.
func (q *request) recentEnds() pick.Ends {
	ends := pick.Ends{Now: q.view.Now, Fading: cmp.Or(q.host.Times.Fading, 10*time.Second), Leases: map[gpu.UUID]int64{}, Gone: map[int]bool{}}
	if !q.host.IsHardware() {
		return ends
	}

	for id, c := range q.view.Changes {
		ends.Leases[id] = c.Ended
	}

	for _, p := range q.machine.Processes {
		leased := slices.ContainsFunc(q.view.Held, func(l job.Lease) bool { return l.Share == 0 && l.Holds(p.GPU) })
		if p.Start != 0 && !leased && q.host.Proc.IsEnding(p.PID, p.Start) {
			ends.Gone[p.PID] = true
		}
	}

	return ends
}
