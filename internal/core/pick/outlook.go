package pick

import (
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/job"
)

// Ends is what is known of leases and processes that have ended, and whose memory the driver may still be freeing.
type Ends struct {
	Now int64 // CLOCK_BOOTTIME, ns
	// How long memory may take to be free after its job has ended.
	Fading time.Duration
	// When a lease on each device ended last: CLOCK_BOOTTIME (ns).
	Leases map[gpu.UUID]int64
	// Processes of the reading that have ended since, or are on their way out.
	Gone map[int]bool
}

// Fading is the time in which a device is about to be free.
type Fading struct {
	// CLOCK_BOOTTIME (ns) at which what used it ended.
	Since int64 `json:"since_ns"`
	// CLOCK_BOOTTIME (ns) after which it counts as busy.
	Until int64 `json:"until_ns"`
}

// ForecastRooms adds to rooms, the answer of RoomByDevice to the same question, what becomes of devices that cannot be
// given now: whether the end of their leases is enough, and whether what has ended is about to leave them. Only for
// devices that are real: an invented one is free when its leases have ended.
func ForecastRooms(rooms map[gpu.UUID]Room, m gpu.Machine, held []job.Lease, in Context, ends Ends) {
	in.Hidden, in.Kept = nil, nil
	q := newQuery(job.Spec{GPUs: 1}, m, held, in)
	if q.parentPool() != nil {
		// There only the sub-leases count, and their memory is the pool's.
		return
	}

	for _, u := range q.allUnits() {
		room, listed := rooms[u.id()]
		if !listed || room.Whole {
			continue
		}

		leases := q.blockingLeases(u, &use{})
		room.Blocked = q.isBlockedBeyondLeases(u, leases, ends)
		if len(leases) == 0 && !room.Blocked && q.healthObstacle(u) == nil {
			room.Fading = ends.fadingTime(u.id())
		}

		rooms[u.id()] = room
	}
}

// fadingTime is the time from the end of the last lease, or from now where only processes have ended.
func (e Ends) fadingTime(id gpu.UUID) *Fading {
	since := e.Now
	if e.hasRecentEnd(id) {
		since = e.Leases[id]
	}
	return &Fading{Since: since, Until: since + int64(e.Fading)}
}

// hasRecentEnd reports whether a lease on the device ended so recently that its memory may still be freed.
func (e Ends) hasRecentEnd(id gpu.UUID) bool {
	at := e.Leases[id]
	return at > 0 && at <= e.Now && e.Now-at < int64(e.Fading)
}

// IsFading reports whether the reason is about to be over: memory that no visible process uses, soon after the end of a
// lease, or a process that has ended. A process that lives keeps its memory.
func (e Ends) IsFading(r job.Reason) bool {
	if !slices.Contains([]string{"foreign-process", "foreign-memory", "ending", "memory"}, r.Code) {
		return false
	}
	if len(r.Processes) == 0 {
		return e.hasRecentEnd(r.UUID)
	}
	return slices.ContainsFunc(r.Processes, func(p job.Blocker) bool { return e.Gone[p.PID] })
}

// isProcessGone reports whether a process has ended: the driver frees its memory without help.
func (e Ends) isProcessGone(p gpu.Process) bool { return isEnding(p) || e.Gone[p.PID] }

// isBlockedBeyondLeases reports whether the device could not be given as a whole even if its leases and all that is
// ending had gone. What cannot be known does not block: then the end of the leases shows it.
func (q *query) isBlockedBeyondLeases(u *unit, leases []job.Lease, ends Ends) bool {
	if q.drainObstacle(u) != nil || q.computeModeObstacle(u) != nil || q.isSickForLong(u) {
		return true
	}

	groups := groupLeases(leases)
	if len(exclusiveLeases(groups, u)) > 0 || slices.ContainsFunc(groups, q.hasNoKnownProcess) {
		// Which of the processes are those of the leases is not known.
		return false
	}

	stay := slices.DeleteFunc(q.processesOn(u), func(p gpu.Process) bool {
		return ends.isProcessGone(p) || len(groups) > 0 && (p.Container != "" || slices.ContainsFunc(groups, func(g *group) bool { return q.belongsToGroup(g, p) }))
	})

	after := *q
	left := u
	ended := ends.hasRecentEnd(u.id())
	if len(groups) > 0 || ended {
		// How busy the device is says nothing: that may be the leases.
		after.in.Now = time.Time{}
		left = u.withoutUtilization()
	}

	if len(groups) > 0 || ended || len(stay) < len(q.processesOn(u)) {
		// So may the memory of no visible process.
		left = left.withMemoryUsedBy(stay)
	}

	var out use
	after.judgeForeignUse(left, stay, &out)

	return out.busy != nil
}

// hasNoKnownProcess reports whether none of the processes of a lease is known.
func (q *query) hasNoKnownProcess(g *group) bool {
	return !slices.ContainsFunc(g.parts, func(id string) bool { return len(q.in.Trees[id]) > 0 })
}

// isSickForLong reports whether the device's health does not come back by itself.
func (q *query) isSickForLong(u *unit) bool {
	if q.healthObstacle(u) == nil {
		return false
	}
	return slices.ContainsFunc(health.Cures(*u.dev, q.in.Now), func(c health.Cure) bool { return !c.MayPass() })
}

// withoutUtilization is the unit without a reading of how busy it is.
func (u *unit) withoutUtilization() *unit {
	out, dev := *u, *u.dev
	dev.Utilization = nil
	out.dev = &dev

	return &out
}

// withMemoryUsedBy is the unit with only the memory of these processes in use, as far as they report it.
func (u *unit) withMemoryUsedBy(ps []gpu.Process) *unit {
	if u.usedMemory() == nil {
		return u
	}

	var set processSet
	for _, p := range ps {
		set.addProcess(p)
	}

	known := min(set.known, *u.usedMemory())
	if set.vague {
		known = *u.usedMemory()
	}

	out, dev := *u, *u.dev
	out.dev = &dev
	if u.mig == nil {
		dev.MemoryUsed = &known
		return &out
	}

	slice := *u.mig
	slice.MemoryUsed = &known
	out.mig = &slice

	return &out
}
