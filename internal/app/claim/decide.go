package claim

import (
	"fmt"
	"os"
	"slices"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/store"
)

// readTrees finds which processes belong to shared leases and to the lease that this request is inside of. It walks
// /proc, so it is not called under the folder lock.
func (q *request) readTrees(held []job.Lease) {
	q.trees = registry.LeaseTrees(q.host, q.machine, held)
	if above := q.enclosingLeases(held); len(above) > 0 {
		q.trees[above[0]] = append(q.trees[above[0]], registry.ProcessesInside(q.host, q.machine, held, above)...)
	}
}

// pickContext collects what a decision needs besides the request, and notes about strange masks.
func (q *request) pickContext(held []job.Lease, now time.Time) (in pick.Context, notes []visible.Note) {
	in = pick.Context{Now: now, Namespace: q.host.Proc.PIDNamespace(), UID: uint32(os.Geteuid()), Tolerate: q.rules.Tolerate, Allocation: q.allocationID(), Trees: q.trees,
		Limits: q.rules.Limits, Apart: q.subject.Apart, Moving: q.spec.Moving}

	if q.spec.Any {
		return in, nil
	}

	in.Hidden, notes = q.hiddenDevices()
	in.MaskOrder = q.env.MaskOrder(q.machine)
	in.Ancestors = q.enclosingLeases(held)
	if note := q.lostLease(held); note.Text != "" {
		notes = append(notes, note)
	}

	for i := range held {
		if len(in.Ancestors) > 0 && held[i].ID == in.Ancestors[0] {
			in.Parent = &held[i]
		}
	}

	return in, notes
}

// decidePlan is the pure part, with everything it needs at hand.
func (q *request) decidePlan(held []job.Lease, last []gpu.UUID, now time.Time) (job.Plan, *job.Refusal) {
	held = slices.Clone(held)
	for i := range held {
		held[i].User = q.names[held[i].UID]
		if held[i].User == "" {
			held[i].User = fmt.Sprint(held[i].UID)
		}
	}

	in, notes := q.pickContext(held, now)
	for _, n := range notes {
		if n.Widens() {
			return job.Plan{}, &job.Refusal{Never: true, Summary: "cannot choose a GPU: " + n.Text, Reasons: []job.Reason{}, Remedy: "unset CUDA_VISIBLE_DEVICES, or correct it"}
		}
	}

	in.Last = last
	if q.queue != nil {
		in.Kept, in.Waiting = q.queue.kept, len(q.queue.asked.Tickets) > 1
	}

	spec := q.spec
	in.Own = q.own
	if len(spec.Devices) == 0 && spec.MIG == "" {
		spec.Devices = slices.DeleteFunc(q.machine.DevicesUnder(q.own), func(id string) bool {
			// Of the rest of its tree.
			return slices.ContainsFunc(held, func(l job.Lease) bool { return l.Holds(gpu.UUID(id)) })
		})
		if len(spec.Devices) > 0 {
			spec.GPUs = 0
		}
	}

	plan, refusal := pick.Place(spec, q.machine, held, in)
	explainMask(refusal, notes)
	q.dropMaskAdvice(refusal)
	if q.machine.Source == "nvidia-smi" {
		// Why, and that it is slow.
		plan.Notes = append(plan.Notes, q.machine.Problems...)
	}

	for _, n := range notes {
		// A mask with a surprise in it is the caller's, and they should know.
		plan.Notes = append(plan.Notes, n.Text)
	}

	return plan, refusal
}

// isStale compares what the answer rests on with the record of changes. Leases change nothing of what is read about an
// invented machine, but people drain its devices too, and write its file anew.
func (q *request) isStale(v store.View, plan job.Plan, refusal *job.Refusal) bool {
	if refusal == nil && q.hasDrainedSince(plan) {
		// Also where there are to be no more rereads: the next one knows it.
		return true
	}
	if q.final {
		return false
	}

	changed := func(id gpu.UUID) bool {
		return q.host.IsHardware() && (v.Unknown || v.Changes[id].Generation > q.lastReading(id).since)
	}

	if refusal == nil {
		// What has come without a lease since the reading is in no record.
		return slices.ContainsFunc(plan.UUIDs(), func(id gpu.UUID) bool { return changed(id) || time.Since(q.lastReading(id).at) > machine.MaxReadingAge })
	}

	if q.host.IsHardware() {
		// An invented machine is read for each attempt.
		q.absent = q.newDevices(v.Changes, knownUUIDs(q.machine))
		if len(q.absent) > 0 {
			return true
		}
	}

	// A device held by a lease is busy whatever the reading says; others may be free by now.
	return slices.ContainsFunc(refusal.Reasons, func(r job.Reason) bool {
		return r.Verdict == job.Busy && r.Lease == "" && changed(r.UUID)
	})
}

// lostLease is a note if the lease that GPUARD_LEASE names is over, while its variables still show its devices. It is
// the only sign for a shell whose holder was killed.
func (q *request) lostLease(held []job.Lease) (note visible.Note) {
	id, set := q.env.Lookup("GPUARD_LEASE")
	if !set || id == "" || q.host.PrivateState || slices.ContainsFunc(held, func(l job.Lease) bool { return l.ID == id }) {
		return note
	}
	return visible.Note{Code: visible.CodeLeaseGone, Text: fmt.Sprintf("lease %s, which GPUARD_LEASE names, is over: its GPUs may be another job's by now", prose.Brief(prose.Clean(id)))}
}

// enclosingLeases lists the lease this process, or the running one, is inside of and the leases that one is a part of,
// innermost first. A GPUARD_LEASE of another user, or of a lease that has ended, means nothing, nor does one that came
// into an allocation with the environment in which its job was submitted.
func (q *request) enclosingLeases(held []job.Lease) []string {
	next, _ := q.env.Lookup("GPUARD_LEASE")
	uid := uint32(os.Geteuid())
	var above []string
	for next != "" && !q.spec.Any && !slices.Contains(above, next) {
		i := slices.IndexFunc(held, func(l job.Lease) bool {
			return l.ID == next && l.UID == uid && !l.Unreadable && l.Allocation == q.allocationID()
		})
		if i < 0 {
			break
		}
		above = append(above, next)
		next = held[i].Parent
	}

	return above
}

func (q *request) allocationID() string {
	if q.spec.Any {
		return ""
	}
	return visible.Allocation(q.env)
}

// deviceIndexes are those of the devices, for people who read the lease.
func deviceIndexes(p job.Plan) (list []int) {
	for _, d := range p.Devices {
		list = append(list, d.Index)
	}
	return list
}
