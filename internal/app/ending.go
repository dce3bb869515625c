package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/store"
)

// ending is what a busy device owes to something that is about to be over.
type ending int

const (
	notEnding   ending = iota
	endingLease        // the command is gone, its holder is about to notice
	fadingUse          // memory of a lease that just ended, or of a process that ended after the reading
)

// noticing is how long the end of a command may take to become the end of its lease: the holder has to notice it.
const noticing = time.Second

// limits returns how long to try again before a device counts as busy, and the first pause; each further one is twice as long.
func (p *patience) limits(e ending) (longest, first time.Duration) {
	switch e {
	case endingLease:
		return noticing, time.Millisecond
	case fadingUse:
		return p.fading, 50 * time.Millisecond
	}
	return 0, 0
}

// patience limits how often one claim tries again.
type patience struct {
	app     *App
	fading  time.Duration // for memory of a job that has ended to be free
	started time.Time
	kind    ending
	next    time.Duration
	told    bool
}

// patience starts now.
func (q *question) patience() patience {
	p := patience{app: q.app, started: time.Now()}
	if !q.spec.Waiting.No {
		p.fading = cmp.Or(q.app.Times.Fading, 10*time.Second)
	}
	return p
}

// lasts reports whether to look again for this kind of ending.
func (p *patience) lasts(e ending) bool {
	longest, first := p.limits(e)
	if e != p.kind {
		p.kind, p.next = e, first
	}
	return time.Since(p.started) < longest
}

func (p *patience) pause(ctx context.Context) error {
	if !p.told && time.Since(p.started) > 500*time.Millisecond && p.kind == fadingUse {
		p.told = true
		p.app.Say(fmt.Sprintf("waiting up to %.0f s for GPU memory of a job that just ended", p.fading.Seconds()))
	}
	timer := time.NewTimer(p.next)
	defer timer.Stop()
	p.next = min(2*p.next, time.Second)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// ending looks for a reason that is about to be over.
func (q *question) ending(r *job.Refusal) ending {
	// What is outside the lease we are in is closed to us for ever, but that lease may be over in a moment.
	if above := q.within(q.seen.Held); len(above) > 0 && q.leaseEnding(above[0]) {
		return endingLease
	}
	if r.Never {
		return notEnding
	}
	found := notEnding
	for _, reason := range r.Reasons {
		switch {
		case reason.Verdict != job.Busy:
		case q.shareEnding(reason.UUID):
			return endingLease
		case reason.Lease != "":
			if q.leaseEnding(reason.Lease) {
				return endingLease
			}
		case q.app.hardware() && q.useFading(reason):
			found = fadingUse
		}
	}
	return found
}

// shareEnding: one of the leases that share the device is about to be given back. No single one is the reason there.
func (q *question) shareEnding(id gpu.UUID) bool {
	return slices.ContainsFunc(q.seen.Held, func(l job.Lease) bool { return l.Share > 0 && l.Holds(id) && q.app.commandGone(l) })
}

// leaseEnding: the command is gone and nobody has said yet that something else still holds the lease.
func (q *question) leaseEnding(id string) bool {
	i := slices.IndexFunc(q.seen.Held, func(l job.Lease) bool { return l.ID == id })
	if i < 0 {
		return false
	}
	return q.app.commandGone(q.seen.Held[i])
}

// commandGone: the command has ended, and nobody has said yet that something else still holds the lease.
func (a *App) commandGone(l job.Lease) bool {
	return !l.Ended && !l.Unreadable && !a.commandAlive(l)
}

// unattended looks up who keeps a lease whose command is gone when its holder cannot say so: the holder was killed or is stopped, or a
// gpuard that stays beside its command was killed before it noted as which process that runs. A process of the command's name is taken
// for the command, because it could be. A stopped holder counts when it is late: it may be continued in a moment.
func (a *App) unattended(folder *store.Folder, l job.Lease, late bool) job.Lease {
	if !a.commandGone(l) {
		return l
	}
	dev, ino, err := folder.LockFile(l)
	if err != nil {
		return l
	}
	holders := a.Proc.OpenBy(dev, ino)
	if len(holders) == 0 && late {
		holders = a.stoppedHolder(folder, l)
	}
	helper := func(stopped bool) bool {
		return slices.ContainsFunc(holders, func(b job.Blocker) bool { return b.Stopped == stopped && OwnHelper(b.PID) })
	}
	if stopped := helper(true); len(holders) == 0 || stopped && !late || helper(false) && !stopped {
		return l // not ours to see, or its holder will say it
	}
	for i := range holders {
		holders[i].Command = baseName(strings.Fields(holders[i].Command))
	}
	if i := slices.IndexFunc(holders, func(b job.Blocker) bool { return b.Command == l.Command }); i >= 0 {
		l.PID, l.Start = holders[i].PID, holders[i].Start
		return l
	}
	l.Ended, l.HeldBy = true, holders
	return l
}

// stoppedHolder finds the holder of another user's lease, whose open files cannot be seen, by its command line. Only a process
// of that user counts.
func (a *App) stoppedHolder(folder *store.Folder, l job.Lease) []job.Blocker {
	for _, pid := range a.Proc.Of(l.UID) {
		if words := Arguments(pid); len(words) < 6 || words[1] != launch.HolderFlag || words[4] != folder.Path || words[5] != l.ID {
			continue
		}
		if p := a.Proc.Describe(pid); p.Stopped {
			return []job.Blocker{p}
		}
	}
	return nil
}

// attended is a refusal that names who keeps the leases whose commands are gone. To find that out takes a walk through /proc, so it is
// done only where the refusal is final, and when the folder is not locked.
func (q *question) attended(folder *store.Folder, r *job.Refusal) *job.Refusal {
	held, found := slices.Clone(q.seen.Held), false
	for i := range held {
		if l := q.app.unattended(folder, held[i], true); l.Ended != held[i].Ended || l.PID != held[i].PID {
			held[i], found = l, true
		}
	}
	q.stays = slices.ContainsFunc(held, func(l job.Lease) bool { return l.Ended })
	if !found {
		return r
	}
	_, again := q.decide(held, q.seen.Last, time.Now())
	if again == nil {
		return r
	}
	q.seen.Held = held
	return again
}

// attend says of each lease whether it is unattended.
func (a *App) attend(folder *store.Folder, held []job.Lease, late bool) {
	for i := range held {
		held[i] = a.unattended(folder, held[i], late)
	}
}

// useFading: a process on the device has ended since the reading, or a lease on it ended moments ago and what is still
// used may be that job's: it belongs to no visible process, or to one that is older than the lease's end.
func (q *question) useFading(r job.Reason) bool {
	if !slices.Contains([]string{"foreign-process", "foreign-memory", "ending", "memory"}, r.Code) {
		return false
	}
	longest := q.patience().fading
	ended := q.seen.Changes[r.UUID].Ended
	recent := ended > 0 && q.seen.Now-ended < int64(longest)
	if recent && len(r.Processes) == 0 {
		return true
	}
	return slices.ContainsFunc(r.Processes, func(p job.Blocker) bool {
		return recent && p.Start <= ticks(ended) || p.Start != 0 && !q.app.Proc.Alive(p.PID, p.Start)
	})
}

// ticks is a moment of CLOCK_BOOTTIME in the unit of a process's start: USER_HZ is 100 on every Linux that Go supports
// (proc_pid_stat(5), field 22; include/asm-generic/param.h).
func ticks(nanoseconds int64) uint64 {
	return uint64(max(0, nanoseconds)) / uint64(10*time.Millisecond)
}
