package verify

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/display"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/proof"
	"gpuard/internal/core/visible"
)

// readTree finds the job's processes and what CPU time they used; alive is false when none is left.
func (w *treeWatch) readTree() (alive bool) {
	roots := []int{w.facts.PID}
	for pid, m := range w.members {
		if pid != w.facts.PID && w.host.Proc.IsAlive(pid, m.start) {
			roots = append(roots, pid)
		}
	}

	if !w.host.Proc.IsAlive(w.facts.PID, w.start) {
		// Its PID may belong to another process now.
		roots = roots[1:]
	}

	total := time.Duration(0)

	for _, pid := range w.host.Proc.ProcessTree(roots...) {
		s, err := w.host.Proc.Stat(pid)
		if err != nil || s.State == "Z" {
			continue
		}

		alive = true
		known := w.members[pid]
		if known == nil || known.start != s.Start {
			known = &jobProcess{start: s.Start, before: s.CPU}
			w.members[pid] = known
		}

		known.spent = s.CPU - known.before
	}

	for _, m := range w.members {
		total += m.spent
	}

	w.facts.CPUTime = total

	return alive
}

// noteProcess notes a process of the driver's list that belongs to the job: by descent, or because it was started
// inside the job's lease and has left the tree.
func (w *treeWatch) noteProcess(m gpu.Machine, p gpu.Process) {
	known := w.members[p.PID]
	if known != nil && p.Start != 0 && p.Start != known.start || known == nil && !w.isInLease(p) {
		return
	}

	at := processDevice{p.PID, p.GPU}
	s := w.seen[at]
	if s == nil {
		s = &proof.Sighting{PID: p.PID, GPU: p.GPU, First: w.facts.Watched}
		if own := w.leaseInside(m, p.PID); own != nil {
			s.Lease, s.Leased = own.ID, own.Devices
		}
		w.seen[at] = s
	}

	s.Kind, s.Last, s.Command = p.Kind, w.facts.Watched, cmp.Or(machine.BaseName(strings.Fields(p.Command)), s.Command)
	if d, _, found := m.FindDevice(p.GPU); found {
		s.Spared = display.ScreenOf(*d, m.ProcessesOn(d.UUID)).MayServe(p)
	}

	if p.Memory != nil && (s.Peak == nil || *p.Memory > *s.Peak) {
		s.Peak = new(*p.Memory)
	}
}

// leaseInside is the lease of a process of the job that has another one than the job's first process; nil without one.
func (w *treeWatch) leaseInside(m gpu.Machine, pid int) *job.Lease {
	env, err := w.host.Proc.Environ(pid)
	if err != nil {
		return nil
	}

	own, err := registry.LeaseOf(w.host, m, pid, env)
	if err != nil || own == nil || w.lease != nil && own.ID == w.lease.ID {
		return nil
	}

	return own
}

func (w *treeWatch) isInLease(p gpu.Process) bool {
	if w.lease == nil || p.UID == nil || *p.UID != w.lease.UID {
		return false
	}
	env, err := w.host.Proc.Environ(p.PID)
	id, _ := visible.Env(env).Lookup("GPUARD_LEASE")

	return err == nil && id == w.lease.ID
}

// sightings are in the order of sentences: by process, then as the devices were taken.
func (w *treeWatch) sightings() (out []proof.Sighting) {
	for _, s := range w.seen {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b proof.Sighting) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.First, b.First), cmp.Compare(a.GPU, b.GPU))
	})
	return out
}
