package pick

import (
	"fmt"
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/option"
)

// oldDriverReserve estimates the memory that the driver keeps for itself where it does not report that: such drivers
// count it as used memory.
func oldDriverReserve(u *unit) gpu.Bytes {
	if u.mig == nil && (u.dev.MemoryReserved != nil || u.dev.MainMemory != nil) {
		return 0
	}
	return shareReserve(u)
}

// minUnseenToNote is the amount of memory used by no visible process from which a plan mentions it, although it is
// tolerated.
const minUnseenToNote = 64 * gpu.MiB

// processSet is a set of processes on one device.
type processSet struct {
	ps    []gpu.Process
	known gpu.Bytes
	// Some do not report how much memory they use.
	vague bool
}

func (c *processSet) addProcess(p gpu.Process) {
	c.ps = append(c.ps, p)
	if p.Memory == nil {
		c.vague = true
		return
	}
	c.known += max(0, *p.Memory)
}

// judgeForeignUse judges the processes on a device that no lease covers. They form three sets: the caller's own (inside
// a lease, or everything in an allocation, whose devices come as they are), what serves a display, and all others. Used
// memory that no process accounts for is charged to the first set with a process of unknown size, else it counts as
// unseen.
func (q *query) judgeForeignUse(u *unit, ps []gpu.Process, out *use) {
	var own, display, others processSet
	for _, p := range ps {
		switch {
		case q.isInOwnLease(p):
			own.addProcess(p)
		case q.servesDisplay(p):
			display.addProcess(p)
		default:
			others.addProcess(p)
		}
	}

	inside := q.in.Parent != nil || q.in.Allocation != ""
	rest, readable := q.unexplainedMemory(u, own.known+display.known+others.known)
	var unseen gpu.Bytes
	switch {
	case others.vague:
		others.known += rest
	case display.vague:
		display.known += rest
	case !own.vague && !inside:
		unseen = rest
	}

	out.busy = q.foreignUseObstacle(u, others, display, unseen, readable)
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

func (q *query) unexplainedMemory(u *unit, known gpu.Bytes) (rest gpu.Bytes, readable bool) {
	if u.usedMemory() == nil {
		return 0, false
	}
	return max(0, *u.usedMemory()-known-oldDriverReserve(u)), true
}

// foreignUseObstacle returns the obstacle for the first set that makes the device busy, nil when all are tolerable.
func (q *query) foreignUseObstacle(u *unit, others, display processSet, unseen gpu.Bytes, readable bool) *obstacle {
	tolerate := q.in.Tolerate
	young := slices.IndexFunc(others.ps, q.isYoung)
	switch o := q.exclusiveModeObstacle(u, others); {
	case o != nil:
		return o
	case others.known > tolerate.Memory || others.vague && !readable && !q.toleratesUnknownUse(u):
		if tolerate.MemoryCut != "" && !others.vague {
			return q.inUseObstacle(others, "; "+tolerate.MemoryCut)
		}
		return q.offerAnyFlag(u, q.inUseObstacle(others, ""))
	case young >= 0:
		return q.inUseObstacle(processSet{ps: others.ps[young : young+1]}, ", which has just started")
	case len(others.ps) > 0 && q.isWorking(u):
		return q.inUseObstacle(others, fmt.Sprintf(", and it is %.0f %% busy", *u.utilization()*100))
	case display.known > tolerate.Display || display.vague && !readable && !q.toleratesUnknownUse(u):
		return q.offerAnyFlag(u, q.displayObstacle(display))
	case unseen > tolerate.Memory:
		return &obstacle{code: "foreign-memory",
			text:   fmt.Sprintf("%s are used by no visible process (container or another PID namespace)", unseen),
			remedy: fmt.Sprintf("find who uses %s (a container, another PID namespace) and end it", u.label)}
	}

	return nil
}

func (q *query) inUseObstacle(c processSet, tail string) *obstacle {
	o := &obstacle{code: "foreign-process", text: "in use without a lease by " + q.processesText(c.ps) + tail, remedy: q.endRemedy(c.ps)}
	if !slices.ContainsFunc(c.ps, func(p gpu.Process) bool { return !isEnding(p) }) {
		o.code, o.remedy = "ending", untilFreedRemedy()
	}
	return o
}

// noteForeign adds notes about tolerated processes without a lease, each with how to end it, and one about the display.
func (q *query) noteForeign(out *use, own, display, others processSet, unseen gpu.Bytes) {
	for _, p := range others.ps {
		if out.blind && p.Memory == nil {
			out.notes = append(out.notes, option.Sprintf("beside %s, as {any} says", q.processText(p)))
			continue
		}
		note := "tolerated small neighbour " + q.processText(p)
		if !isEnding(p) {
			note += "; " + q.endText(p)
		}
		out.notes = append(out.notes, note)
	}
	if len(display.ps) > 0 {
		out.notes = append(out.notes, q.displayText(display))
	}

	for _, p := range own.ps {
		out.notes = append(out.notes, fmt.Sprintf("already used inside %s by %s", q.insideText(), q.processText(p)))
	}
	if unseen > minUnseenToNote {
		out.notes = append(out.notes, fmt.Sprintf("%s are used by no visible process", unseen))
	}
}

func (q *query) insideText() string {
	switch {
	case q.in.Parent != nil:
		return "lease " + q.in.Parent.ID
	case q.in.Allocation != "":
		return q.in.Allocation
	}
	return "the process tree that the lease is for"
}
