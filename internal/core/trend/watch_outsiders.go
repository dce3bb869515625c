package trend

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/option"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/status"
)

// Outsider is a process without a lease on a device that another user has leased.
type Outsider struct {
	PID     int
	Start   uint64 // ticks since boot
	UID     uint32
	User    string
	Program string // its name
	// Name of the device: "GPU 3".
	Place string
	// The warning for its user; "" none.
	Warning string
}

// outsiderTroubles are the processes on a leased device that its owners did not start. Each is told at the level of the
// rules; one that is still there when the grace is over is to be ended. Those that are there are noted in present.
func (w *Watch) outsiderTroubles(now time.Time, p deviceOrSlice, present map[string]bool) (all []Trouble) {
	for _, one := range p.Processes {
		if !w.isIntruder(one, p) {
			continue
		}

		t := w.intruderTrouble(one, p)
		all = append(all, t)
		if one.UID == nil || !t.Level.AtLeast(policy.Warn) || !w.mayEndProcess(one) {
			continue
		}

		at := t.key
		present[at] = true
		if w.warned == nil {
			w.warned = map[string]time.Time{}
		}

		if _, known := w.warned[at]; !known {
			w.warned[at] = now
		}

		if over := now.Sub(w.warned[at]) - w.Rules.Grace; over >= 0 {
			t.What, t.Level = Evicted, policy.End
			t.kin = fmt.Sprint("end ", one.PID, " ", one.Start)
			t.key = fmt.Sprint(t.kin, " try ", w.triesWithin(over))
			all = append(all, t)
		}
	}
	return all
}

// triesWithin is the number of times that serve has tried to end an outsider by now. over is how long ago its grace
// ended. Where that failed, as when the driver did not answer, the next tries come after 1, 2, 4, 8 … minutes.
func (w *Watch) triesWithin(over time.Duration) int {
	return 1 + bits.Len64(uint64(over/w.scaledMinutes(1))) //nolint:gosec // not below 0
}

// isIntruder: what cannot be told, such as whose a process is, is no reason to accuse anybody. A container that gpuard
// runs has the lease of the engine's command, and its processes belong to the users that its image names.
func (w *Watch) isIntruder(one status.Process, p deviceOrSlice) bool {
	engine := func(l status.Lease) bool {
		return slices.Contains([]string{"docker", "podman", "nerdctl"}, l.Command)
	}

	// A job of theirs, if outside of the lease.
	owns := func(l status.Lease) bool { return l.User == one.User }
	return one.Foreign && !slices.ContainsFunc(p.around, owns) && !one.Ended && one.Lease == "" && one.User != "" && len(p.Leases) > 0 &&
		(one.Container == "" || !slices.ContainsFunc(p.Leases, engine)) && !w.Rules.Spares(programOf(one))
}

// mayEndProcess: a container is ended by its engine, and what may serve a display by its user.
func (w *Watch) mayEndProcess(one status.Process) bool {
	return w.Rules.Outsiders == policy.End && one.Container == "" && !one.Spared && one.Start != 0
}

// intruderTrouble is the trouble with an outsider. A level that was raised is another trouble.
func (w *Watch) intruderTrouble(one status.Process, p deviceOrSlice) Trouble {
	level := w.Rules.Outsiders
	if !level.AtLeast(policy.Report) {
		level = policy.Off
	}

	name, owner := programOf(one).Name(), p.Leases[0].User
	t := p.newTrouble(Intruder, fmt.Sprint(level, " ", one.PID, " ", one.Start), fmt.Sprintf("process %d of %s (%s) uses %s without a lease, which %s has leased", one.PID, one.User, name, p.name, owner))
	t.User, t.kin = one.User, fmt.Sprint("kin ", level, " ", one.User, " ", name, " ", p.UUID)
	t.Outsider = &Outsider{PID: one.PID, Start: one.Start, User: one.User, Program: name, Place: p.name}

	switch {
	case one.UID == nil && level.AtLeast(policy.Report):
		level = policy.Report
	case level.AtLeast(policy.Warn):
		level = policy.Warn
		t.Outsider.UID = *one.UID
		t.Outsider.Warning = option.Sprintf("your process %d (%s) uses %s, which %s has leased. Please end it, and start it with: {gpuard run}", one.PID, name, p.name, owner)
		if one.Spared {
			t.Outsider.Warning = fmt.Sprintf("your process %d (%s) uses %s, which %s has leased. Please let it draw on another GPU", one.PID, name, p.name, owner)
		}

		if w.mayEndProcess(one) {
			t.Outsider.Warning += fmt.Sprintf(". It is ended in %s", w.Rules.Grace)
		}
	}

	t.Level = level

	return t
}

func programOf(p status.Process) policy.Program {
	return policy.Program{UID: p.UID, User: p.User, Command: p.Command, Display: p.Display, Memory: p.Memory}
}

// minOnCPUMinutes is for how many minutes a lease computes beside its devices before it is told, and minCPUShare the
// part of one processor that it uses meanwhile.
const (
	minOnCPUMinutes = 15
	minCPUShare     = 0.1
)

// cpuRecord is what is known of a lease whose devices have nothing to do.
type cpuRecord struct {
	// When it was seen first.
	met time.Time
	// Zero: no reading yet.
	since time.Time
	// The time of its processes at that moment.
	time time.Duration
	// Its devices were used: they are not forgotten, but wait.
	used bool
}

// onCPUTroubles are leases whose devices were not used since their start, while their command computes. A reading that
// is absent gives no verdict, and begins the time again.
func (w *Watch) onCPUTroubles(now time.Time, spots []deviceOrSlice) (all []Trouble) {
	if w.computing == nil {
		w.computing = map[string]cpuRecord{}
	}

	live := map[string]bool{}
	for _, p := range spots {
		for _, l := range p.Leases {
			if live[l.ID] {
				continue
			}
			live[l.ID] = true
			if w.checkComputesOnCPU(now, l, spots) {
				all = append(all, p.leaseTrouble(OnCPU, l, fmt.Sprintf("computes on the processor: nothing of it has used its GPU for %d minutes", int(now.Sub(w.computing[l.ID].since)/w.scaledMinutes(1)))))
			}
		}
	}

	keepWanted(w.computing, live)

	return all
}

// checkComputesOnCPU reports whether a lease has computed beside its devices for long enough.
func (w *Watch) checkComputesOnCPU(now time.Time, l status.Lease, spots []deviceOrSlice) bool {
	known, met := w.computing[l.ID]
	if !met {
		// What it did before is not known.
		known = cpuRecord{met: now, used: l.Since == nil || l.Since.Before(w.began.Add(-w.scaledMinutes(1)))}
	}

	read := l.Computed != nil && *l.Computed >= known.time && !known.since.IsZero()
	for _, p := range spots {
		if !slices.ContainsFunc(p.Leases, func(o status.Lease) bool { return o.ID == l.ID }) {
			continue
		}
		if now.Sub(known.met) > w.scaledMinutes(1)/6 {
			// Before that it may be the end of the lease before.
			known.used = known.used || p.Computes() || p.Utilization != nil && *p.Utilization > maxIdleLoad
		}
		read = read && p.Unlisted == "" && p.Utilization != nil && isNearlyEmpty(p)
	}

	spent := now.Sub(known.since)
	verdict := false
	switch {
	case !read && l.Computed != nil:
		known.since, known.time = now, *l.Computed
	case !read:
		known.since, known.time = time.Time{}, 0
	case spent >= w.scaledMinutes(minOnCPUMinutes):
		verdict = float64(*l.Computed-known.time) >= minCPUShare*float64(spent)
		if !verdict {
			known.since, known.time = now, *l.Computed
		}
	}

	w.computing[l.ID] = known

	return verdict && !known.used && !l.Ended && !l.Unreadable
}

// isNearlyEmpty: memory that no listed process has may be that of a process in a container.
func isNearlyEmpty(p deviceOrSlice) bool {
	return p.MemoryUsed != nil && p.MemoryTotal != nil && *p.MemoryUsed <= max(512*gpu.MiB, *p.MemoryTotal/20)
}
