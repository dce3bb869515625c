package pick

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// use is the state of one device, or slice, for this request.
type use struct {
	// nil: free for a lease.
	busy *obstacle
	// That block, or are tolerated.
	processes []job.Blocker
	// The notes for a plan with this device.
	notes []string
	idle  bool
	// Nothing tells whether it is in use.
	blind bool
	// Free for the caller, whose own lease or allocation already runs processes on it.
	ours bool
	// Carries shares already.
	shared bool
	// Memory that can be promised; nil where no share was asked for, or none can be given.
	left *gpu.Bytes
	// What must end to free more memory for shares.
	wait string
}

// lacksRoom reports that the device takes shares, but has too little memory for this one.
func (u *use) lacksRoom() bool {
	return u.busy != nil && u.busy.code == "memory" && u.left != nil
}

// usageOf judges health, drains and compute mode first, then leases, then processes: to wait for a lease on a sick
// device would be in vain.
func (q *query) usageOf(u *unit) use {
	ps := q.processesOn(u)
	out := use{idle: q.isIdle(u, ps), blind: isUseUnknown(u), processes: blockersOf(ps)}
	for _, judge := range []func(*unit) *obstacle{q.healthObstacle, q.drainObstacle, q.computeModeObstacle} {
		out.busy = judge(u)
		if out.busy != nil {
			break
		}
	}

	if out.busy != nil {
		return out
	}

	if u.mig == nil && u.dev.MainMemory != nil && (q.spec.Memory > 0 || q.spec.Share > 0) {
		out.notes = append(out.notes, fmt.Sprintf("its memory is the main memory, in which everything on this machine works: %s of %s are available", *u.dev.MainAvailable, *u.dev.MainMemory))
	}

	switch {
	case q.parentPool() != nil:
		q.judgeInPool(u, ps, &out)
	case q.spec.Share > 0:
		q.judgeForShare(u, ps, &out)
	default:
		if by := q.blockingLeases(u, &out); len(by) > 0 {
			out.busy, out.processes = q.leasedObstacle(by)
			return out
		}
		q.judgeForeignUse(u, ps, &out)
	}

	if t, kept := q.in.Kept[u.id()]; kept && out.busy == nil {
		out.busy = q.keptObstacle(t)
	}

	return out
}

// keptObstacle names the waiting job that is ahead of this one.
func (q *query) keptObstacle(t job.Ticket) *obstacle {
	who := fmt.Sprintf("%s of %s", cmp.Or(shortCommand(t.Command), "a command"), cmp.Or(prose.Clean(t.User), fmt.Sprintf("uid %d", t.UID)))
	text := "kept for " + who
	if t.PID > 0 {
		text += " (" + PIDText(t.PID, isOtherNamespace(t.Namespace, q.in.Namespace)) + ")"
	}

	text += ", which has its turn first"
	if !t.Since.IsZero() {
		text += " and waits since " + clockText(q.in.Now, t.Since)
	}

	return &obstacle{code: "kept", text: text, remedy: "wait until " + who + " has started"}
}

// blockingLeases lists the leases that block the device, oldest first. A lease on a slice also blocks the whole GPU,
// and the reverse. The caller's own and parent leases do not block. In another scheduler's allocation, leases outside
// it only get a note.
func (q *query) blockingLeases(u *unit, out *use) []job.Lease {
	var by []job.Lease
	for _, l := range q.held {
		if !leaseTouches(l, u) || slices.Contains(q.in.Ancestors, l.ID) {
			continue
		}
		if q.in.Allocation != "" && l.Allocation != q.in.Allocation {
			out.notes = append(out.notes, fmt.Sprintf("lease %s also covers it; %s gave it to you all the same", leaseText(q.in, l), q.in.Allocation))
			continue
		}
		by = append(by, l)
	}
	return by
}

// leasedObstacle describes the leases, at least one, that block the device.
func (q *query) leasedObstacle(all []job.Lease) (*obstacle, []job.Blocker) {
	by := slices.DeleteFunc(slices.Clone(all), func(l job.Lease) bool {
		// A sub-lease of a lease that is named anyway adds nothing.
		return l.Parent != "" && slices.ContainsFunc(all, func(p job.Lease) bool { return p.ID == l.Parent && p.ID != l.ID })
	})

	if len(by) == 0 {
		// Leases that name each other as parent: invalid, but still leases.
		by = all[:1]
	}

	var texts, ends []string
	var holders []job.Blocker
	for _, l := range by {
		texts = append(texts, "leased as "+leaseText(q.in, l)+endedText(l, q.in.Now))
		ends = append(ends, fmt.Sprintf("lease %s of %s ends", l.ID, cmp.Or(prose.Clean(l.User), fmt.Sprintf("uid %d", l.UID))))
		holders = append(holders, l.HeldBy...)
	}

	o := &obstacle{code: "leased", text: strings.Join(texts, "; also "), remedy: "wait until " + strings.Join(ends, " and "), lease: by[0].ID}
	if first := by[0]; first.Ended && first.WaitsUntil(q.in.Now).IsZero() {
		o.remedy = option.Sprintf("end lease %s ({gpuard release} %[1]s)", first.ID)
		if kill := first.KillText(*q.m); kill != "" && !isOtherNamespace(first.Namespace, q.in.Namespace) {
			o.remedy = fmt.Sprintf("end what is left of lease %s there (%s)", first.ID, kill)
		}
		if p := first.StoppedHolder(); p != nil && !isOtherNamespace(first.Namespace, q.in.Namespace) {
			o.remedy = fmt.Sprintf("continue process %d (kill -CONT %[1]d), or %s", p.PID, o.remedy)
		}
		if q.in.UID != 0 && q.in.UID != first.UID {
			o.remedy = fmt.Sprintf("ask %s to %s", cmp.Or(prose.Clean(first.User), "its owner"), o.remedy)
		}
	} else if first.Apart && first.UID == q.in.UID {
		o.remedy = option.Sprintf("give lease %s back ({gpuard release} %[1]s)", first.ID)
	}

	return o, holders
}

func leaseTouches(l job.Lease, u *unit) bool {
	if l.Holds(u.id()) || l.Holds(u.dev.UUID) {
		return true
	}
	return u.mig == nil && slices.ContainsFunc(u.dev.MIG, func(s gpu.MIGDevice) bool { return l.Holds(s.UUID) })
}

func compareLeaseAge(a, b job.Lease) int {
	return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID), cmp.Compare(a.UID, b.UID), cmp.Compare(a.PID, b.PID))
}

// processesOn lists those on the device, largest first. A process that the driver reports on a split GPU without its
// slice counts on every slice whose own memory use is not readable.
func (q *query) processesOn(u *unit) []gpu.Process {
	ps := q.m.ProcessesOn(u.id())
	if u.mig != nil && u.mig.MemoryUsed == nil {
		for _, p := range q.m.Processes {
			if p.GPU == u.dev.UUID {
				ps = append(ps, p)
			}
		}
	}
	slices.SortFunc(ps, func(a, b gpu.Process) int {
		return cmp.Or(cmp.Compare(processMemory(b), processMemory(a)), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Start, b.Start),
			strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Command, b.Command), strings.Compare(a.User, b.User),
			strings.Compare(a.State, b.State), strings.Compare(string(a.GPU), string(b.GPU)), a.Started.Compare(b.Started),
			strings.Compare(a.Container, b.Container), cmp.Compare(ownerUID(a), ownerUID(b)))
	})

	return ps
}

// processMemory sorts a process of unknown size first: it may be the largest.
func processMemory(p gpu.Process) gpu.Bytes {
	if p.Memory == nil {
		return 1 << 62
	}
	return *p.Memory
}

func ownerUID(p gpu.Process) int64 {
	if p.UID == nil {
		return -1
	}
	return int64(*p.UID)
}

// isIdle reports low utilization and no young process.
func (q *query) isIdle(u *unit, ps []gpu.Process) bool {
	return !q.isWorking(u) && !slices.ContainsFunc(ps, q.isYoung)
}

func (q *query) isWorking(u *unit) bool {
	load := u.utilization()
	return load != nil && *load > q.in.Tolerate.Utilization
}

func (q *query) isYoung(p gpu.Process) bool {
	if q.in.Now.IsZero() || p.Started.IsZero() {
		return false
	}
	return q.in.Now.Sub(p.Started) < q.in.Tolerate.YoungerThan
}

// freeMemoryObstacle returns an obstacle when the free memory does not suffice now.
func (q *query) freeMemoryObstacle(u *unit) *obstacle {
	free := q.availableMemory(u, u.use)
	switch {
	case q.spec.Memory <= 0 || free != nil && *free >= q.spec.Memory:
		return nil
	case free == nil:
		return &obstacle{code: "memory", text: "how much of its memory is free is unknown", remedy: option.Expand("leave out {mem}")}
	}

	have, want := distinctSizes(*free, q.spec.Memory)
	of := u.nominalMemory()
	if p := q.parentPool(); p != nil {
		of = p.Share
	}

	o := &obstacle{code: "memory", text: fmt.Sprintf("%s of %s are free, less than %s", have, of, want)}
	if len(u.use.processes) > 0 {
		o.text += ": " + q.blockersText(u.use.processes)
	}

	if *free >= gpu.MiB {
		o.remedy = option.Sprintf("ask for less memory ({mem=%s})", formatSizeFlag(*free))
	}

	return o
}

// availableMemory is what --mem can ask for now: inside a shared lease at most what remains of it. nil when unknown.
func (q *query) availableMemory(u *unit, now use) *gpu.Bytes {
	free := u.freeMemory()
	if q.parentPool() == nil || free == nil || now.left == nil {
		return free
	}
	return new(max(0, min(*free, *now.left)))
}
