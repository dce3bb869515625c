package pick

import (
	"fmt"
	"slices"

	"gpuard/internal/core/gpu"
)

// oldDriverReserve estimates the memory that the driver keeps for itself where it does not report that: such drivers
// count it as used memory.
func oldDriverReserve(u *unit) gpu.Bytes {
	if u.mig == nil && (u.dev.MemoryReserved != nil || u.dev.MainMemory != nil) {
		return 0
	}
	return reserve(u)
}

// unseenWorthANote is the amount of memory used by no visible process from which a plan mentions it, although it is
// tolerated.
const unseenWorthANote = 64 * gpu.MiB

// processSet is a set of processes on one device.
type processSet struct {
	ps    []gpu.Process
	known gpu.Bytes
	vague bool // some do not report how much memory they use
}

func (c *processSet) add(p gpu.Process) {
	c.ps = append(c.ps, p)
	if p.Memory == nil {
		c.vague = true
		return
	}
	c.known += max(0, *p.Memory)
}

// foreign judges the processes on a device that no lease covers. They form three sets: the caller's own (inside a
// lease, or everything in an allocation, whose devices come as they are), what serves a display, and all others. Used
// memory that no process accounts for is charged to the first set with a process of unknown size, else it counts as
// unseen.
func (q *query) foreign(u *unit, ps []gpu.Process, out *use) {
	var own, display, others processSet
	for _, p := range ps {
		switch {
		case q.isInOwnLease(p):
			own.add(p)
		case q.serves(p):
			display.add(p)
		default:
			others.add(p)
		}
	}
	inside := q.in.Parent != nil || q.in.Allocation != ""
	rest, readable := q.unexplained(u, own.known+display.known+others.known)
	var unseen gpu.Bytes
	switch {
	case others.vague:
		others.known += rest
	case display.vague:
		display.known += rest
	case !own.vague && !inside:
		unseen = rest
	}
	out.busy = q.tooMuch(u, others, display, unseen, readable)
	if out.busy != nil {
		return
	}
	out.ours = len(own.ps) > 0 || inside && rest > q.in.Tolerate.Memory
	q.noteForeign(out, own, display, others, unseen)
}

// isInOwnLease reports whether a process belongs to the request: the lease is for it, or it provably runs inside the
// caller's lease. That it is of the same user on a device of the lease proves nothing: it may have been started
// elsewhere.
func (q *query) isInOwnLease(p gpu.Process) bool {
	if slices.Contains(q.in.Own, p.PID) {
		return true
	}
	if q.in.Allocation != "" {
		return true
	}
	return q.in.Parent != nil && p.UID != nil && *p.UID == q.in.Parent.UID && slices.Contains(q.in.Trees[q.in.Parent.ID], p.PID)
}

func (q *query) unexplained(u *unit, known gpu.Bytes) (rest gpu.Bytes, readable bool) {
	if u.used() == nil {
		return 0, false
	}
	return max(0, *u.used()-known-oldDriverReserve(u)), true
}

// tooMuch returns the obstacle for the first set that makes the device busy, nil when all are tolerable.
func (q *query) tooMuch(u *unit, others, display processSet, unseen gpu.Bytes, readable bool) *obstacle {
	tolerate := q.in.Tolerate
	young := slices.IndexFunc(others.ps, q.young)
	switch o := q.modeTaken(u, others); {
	case o != nil:
		return o
	case others.known > tolerate.Memory || others.vague && !readable && !q.lookAway(u):
		if tolerate.MemoryCut != "" && !others.vague {
			return q.inUse(others, "; "+tolerate.MemoryCut)
		}
		return q.orLookAway(u, q.inUse(others, ""))
	case young >= 0:
		return q.inUse(processSet{ps: others.ps[young : young+1]}, ", which has just started")
	case len(others.ps) > 0 && q.working(u):
		return q.inUse(others, fmt.Sprintf(", and it is %.0f %% busy", *u.utilization()*100))
	case display.known > tolerate.Display || display.vague && !readable && !q.lookAway(u):
		return q.orLookAway(u, q.displayTooLarge(display))
	case unseen > tolerate.Memory:
		return &obstacle{code: "foreign-memory",
			text:   fmt.Sprintf("%s are used by no visible process (container or another PID namespace)", unseen),
			remedy: fmt.Sprintf("find who uses %s (a container, another PID namespace) and end it", u.label)}
	}
	return nil
}

func (q *query) inUse(c processSet, tail string) *obstacle {
	o := &obstacle{code: "foreign-process", text: "in use without a lease by " + q.processesText(c.ps) + tail, remedy: q.endAll(c.ps)}
	if !slices.ContainsFunc(c.ps, func(p gpu.Process) bool { return !ending(p) }) {
		o.code, o.remedy = "ending", untilFreed
	}
	return o
}

// noteForeign adds notes about tolerated processes without a lease, each with how to end it, and one about the display.
func (q *query) noteForeign(out *use, own, display, others processSet, unseen gpu.Bytes) {
	for _, p := range others.ps {
		if out.blind && p.Memory == nil {
			out.notes = append(out.notes, fmt.Sprintf("beside %s, as --any says", q.processText(p)))
			continue
		}
		note := "tolerated small neighbour " + q.processText(p)
		if !ending(p) {
			note += "; " + q.endText(p)
		}
		out.notes = append(out.notes, note)
	}
	if len(display.ps) > 0 {
		out.notes = append(out.notes, q.displayText(display))
	}
	for _, p := range own.ps {
		out.notes = append(out.notes, fmt.Sprintf("already used inside %s by %s", q.inside(), q.processText(p)))
	}
	if unseen > unseenWorthANote {
		out.notes = append(out.notes, fmt.Sprintf("%s are used by no visible process", unseen))
	}
}

func (q *query) inside() string {
	switch {
	case q.in.Parent != nil:
		return "lease " + q.in.Parent.ID
	case q.in.Allocation != "":
		return q.in.Allocation
	}
	return "the process tree that the lease is for"
}
