package pick

import (
	"fmt"
	"slices"

	"gpuard/internal/core/gpu"
)

// oldDriverReserve is what the driver may keep for itself where it does not report its reserve: such drivers count it
// as used memory.
func oldDriverReserve(u *unit) gpu.Bytes {
	if u.mig == nil && u.dev.MemoryReserved != nil {
		return 0
	}
	return reserve(u)
}

// unseenWorthANote is used memory without a process, tolerated but large enough to tell.
const unseenWorthANote = 64 * gpu.MiB

// crowd is a group of processes on one device.
type crowd struct {
	ps    []gpu.Process
	known gpu.Bytes
	vague bool // some do not say how much they use
}

func (c *crowd) add(p gpu.Process) {
	c.ps = append(c.ps, p)
	if p.Memory == nil {
		c.vague = true
		return
	}
	c.known += max(0, *p.Memory)
}

// foreign judges who is on a device that no lease covers. Three groups: our own (inside a lease, or everything in an
// allocation: those devices were given to us as they are), display processes, and all others. Memory that is
// used but not accounted for goes to the group with a process of unknown size, else it is a group of its own.
func (q *question) foreign(u *unit, ps []gpu.Process, out *use) {
	var own, display, others crowd
	for _, p := range ps {
		switch {
		case q.mine(p):
			own.add(p)
		case p.Kind == gpu.GraphicsProcess:
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
	q.tell(out, own, display, others, unseen)
}

// mine are the processes that the lease is for, and those of the lease we are inside of. There only the owner tells:
// who is in whose process tree is not known here.
func (q *question) mine(p gpu.Process) bool {
	if slices.Contains(q.in.Own, p.PID) {
		return true
	}
	if q.in.Allocation != "" {
		return true
	}
	return q.in.Parent != nil && p.UID != nil && *p.UID == q.in.Parent.UID
}

func (q *question) unexplained(u *unit, known gpu.Bytes) (rest gpu.Bytes, readable bool) {
	if u.used() == nil {
		return 0, false
	}
	return max(0, *u.used()-known-oldDriverReserve(u)), true
}

// tooMuch says which group makes the device busy, nil when all are tolerable.
func (q *question) tooMuch(u *unit, others, display crowd, unseen gpu.Bytes, readable bool) *obstacle {
	tolerate := q.in.Tolerate
	young := slices.IndexFunc(others.ps, q.young)
	switch o := q.alone(u, others); {
	case o != nil:
		return o
	case others.known > tolerate.Memory || others.vague && !readable:
		return q.inUse(others, "")
	case young >= 0:
		return q.inUse(crowd{ps: others.ps[young : young+1]}, ", which has just started")
	case len(others.ps) > 0 && q.working(u):
		return q.inUse(others, fmt.Sprintf(", and it is %.0f %% busy", *u.utilization()*100))
	case display.known > tolerate.Display || display.vague && !readable:
		return q.inUse(display, fmt.Sprintf(", more than the %s that a display may use", tolerate.Display))
	case unseen > tolerate.Memory:
		return &obstacle{code: "foreign-memory",
			text:   fmt.Sprintf("%s are used by no visible process (container or another PID namespace)", unseen),
			remedy: fmt.Sprintf("find who uses %s (a container, another PID namespace) and end it", u.label)}
	}
	return nil
}

func (q *question) inUse(c crowd, tail string) *obstacle {
	o := &obstacle{code: "foreign-process", text: "in use without a lease by " + q.crowded(c.ps) + tail, remedy: q.endAll(c.ps)}
	if !slices.ContainsFunc(c.ps, func(p gpu.Process) bool { return !ending(p) }) {
		o.code, o.remedy = "ending", "try again in a moment: "+q.crowded(c.ps)
	}
	return o
}

// tell writes what a plan says about neighbours that are tolerated: never hidden, each with how to end it.
func (q *question) tell(out *use, own, display, others crowd, unseen gpu.Bytes) {
	for _, p := range others.ps {
		note := "tolerated small neighbour " + q.who(p)
		if !ending(p) {
			note += "; " + q.end(p)
		}
		out.notes = append(out.notes, note)
	}
	for _, p := range display.ps {
		out.notes = append(out.notes, fmt.Sprintf("also drives a display: %s; %s", q.who(p), q.end(p)))
	}
	for _, p := range own.ps {
		out.notes = append(out.notes, fmt.Sprintf("already used inside %s by %s", q.inside(), q.who(p)))
	}
	if unseen > unseenWorthANote {
		out.notes = append(out.notes, fmt.Sprintf("%s are used by no visible process", unseen))
	}
}

func (q *question) inside() string {
	switch {
	case q.in.Parent != nil:
		return "lease " + q.in.Parent.ID
	case q.in.Allocation != "":
		return q.in.Allocation
	}
	return "the process tree that the lease is for"
}
