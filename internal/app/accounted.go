package app

import (
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/leftover"
	"gpuard/internal/core/visible"
)

// unleased says which processes and devices of m the leases account for.
func (a *App) unleased(m gpu.Machine, held []job.Lease) leftover.Question {
	q := leftover.Question{Machine: m, Lease: a.leasesOf(m, held), Covered: map[gpu.UUID]bool{}}
	for _, d := range m.Devices {
		q.Covered[d.UUID] = slices.ContainsFunc(held, func(l job.Lease) bool {
			return l.Holds(d.UUID) || slices.ContainsFunc(d.MIG, func(s gpu.MIGDevice) bool { return l.Holds(s.UUID) })
		})
	}
	return q
}

// leasesOf says for each process which living lease it belongs to: it is in the tree of the lease's process, names the lease
// in its environment, or, where that cannot be read, is of the same user on a device of the lease. The last may hide
// a leftover of that user; accusing a running job would be worse.
func (a *App) leasesOf(m gpu.Machine, held []job.Lease) map[int]string {
	out, roots := map[int]string{}, map[string][]int{}
	for _, l := range held {
		if !l.Unreadable && l.Namespace == a.Proc.Namespace() && a.hardware() {
			roots[l.ID] = []int{l.PID}
		}
	}
	trees := a.Proc.Trees(roots)
	for _, l := range held {
		for _, pid := range trees[l.ID] {
			out[pid] = l.ID
		}
	}
	for _, p := range m.Processes {
		if _, done := out[p.PID]; done {
			continue
		}
		id, readable := "", false
		if a.hardware() {
			env, err := a.Proc.Environ(p.PID)
			readable = err == nil
			id, _ = visible.Env(env).Lookup("GPUARD_LEASE")
		}
		for _, l := range held {
			mine := p.UID == nil || *p.UID == l.UID
			if readable && mine && l.ID == id || !readable && mine && a.covers(m, l, p.GPU) || l.Unreadable && a.covers(m, l, p.GPU) {
				out[p.PID] = l.ID
			}
		}
	}
	return out
}

// covers reports whether the lease holds the device, or the GPU that the slice is of, or a slice of it.
func (a *App) covers(m gpu.Machine, l job.Lease, id gpu.UUID) bool {
	d, _, ok := m.Find(id)
	return ok && (l.Holds(id) || l.Holds(d.UUID) || slices.ContainsFunc(d.MIG, func(s gpu.MIGDevice) bool { return id == d.UUID && l.Holds(s.UUID) }))
}
