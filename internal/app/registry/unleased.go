package registry

import (
	"cmp"
	"slices"
	"strings"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/leftover"
	"gpuard/internal/core/visible"
)

// LeftoverInput says which processes and devices of m the leases account for.
func LeftoverInput(host *machine.Host, m gpu.Machine, held []job.Lease) leftover.Input {
	q := leftover.Input{Machine: m, Lease: LeasesByPID(host, m, held), Covered: map[gpu.UUID]bool{}}
	for _, d := range m.Devices {
		q.Covered[d.UUID] = slices.ContainsFunc(held, func(l job.Lease) bool {
			return l.Holds(d.UUID) || slices.ContainsFunc(d.MIG, func(s gpu.MIGDevice) bool { return l.Holds(s.UUID) })
		})
	}
	return q
}

// LeasesByPID says for each process which living lease it belongs to: it is in the tree of the lease's process, names
// the lease in its environment, or, where that cannot be read, is of the same user on a device of the lease. The last
// may hide a leftover of that user; accusing a running job would be worse. Of several trees the smallest counts: a
// lease may be taken inside another one.
func LeasesByPID(host *machine.Host, m gpu.Machine, held []job.Lease) map[int]string {
	out, roots := map[int]string{}, map[string][]int{}
	for _, l := range held {
		if !l.Unreadable && l.Namespace == host.Proc.PIDNamespace() && host.IsHardware() && isOwnCommand(host, l) {
			roots[l.ID] = []int{l.PID}
		}
	}

	trees := host.Proc.ProcessTrees(roots)
	nested := slices.Clone(held)
	slices.SortStableFunc(nested, func(a, b job.Lease) int {
		return cmp.Or(cmp.Compare(len(trees[b.ID]), len(trees[a.ID])), strings.Compare(a.Parent, b.Parent))
	})

	for _, l := range nested {
		for _, pid := range trees[l.ID] {
			out[pid] = l.ID
		}
	}

	for _, p := range m.Processes {
		if _, done := out[p.PID]; done || p.PID == 0 {
			continue
		}

		if id := leaseServed(host, m, held, p); id != "" {
			out[p.PID] = id
			continue
		}

		id, readable := "", false
		if host.IsHardware() {
			env, err := host.Proc.Environ(p.PID)
			readable = err == nil
			id, _ = visible.Env(env).Lookup("GPUARD_LEASE")
		}

		for _, l := range held {
			mine := p.UID == nil || *p.UID == l.UID
			if readable && mine && l.ID == id || !readable && mine && coversDevice(host, m, l, p.GPU) || l.Unreadable && coversDevice(host, m, l, p.GPU) {
				out[p.PID] = l.ID
			}
		}
	}

	return out
}

// leaseServed is a lease whose programs compute through the server of MPS that p is, "" where it is none. Its daemon
// was started for the user, not for one of the leases.
func leaseServed(host *machine.Host, m gpu.Machine, held []job.Lease, p gpu.Process) string {
	if !p.ServesMPS() || p.UID == nil {
		return ""
	}
	i := slices.IndexFunc(held, func(l job.Lease) bool {
		return l.Quota == job.MPS && l.UID == *p.UID && coversDevice(host, m, l, p.GPU)
	})
	if i < 0 {
		return ""
	}

	return held[i].ID
}

// ProcessesInside lists the processes that belong to the first of these leases, to a lease inside of it, or to one of
// the others, which are around it. It reads /proc only if a process of the lease's user is on one of its devices.
func ProcessesInside(host *machine.Host, m gpu.Machine, held []job.Lease, around []string) (pids []int) {
	parent := map[string]string{}
	for _, l := range held {
		parent[l.ID] = l.Parent
	}

	first := slices.IndexFunc(held, func(l job.Lease) bool { return len(around) > 0 && l.ID == around[0] })
	if first < 0 || !slices.ContainsFunc(m.Processes, func(p gpu.Process) bool {
		return p.UID != nil && *p.UID == held[first].UID && coversDevice(host, m, held[first], p.GPU)
	}) {
		return nil
	}

	for pid, id := range LeasesByPID(host, m, held) {
		if slices.Contains(around, id) {
			pids = append(pids, pid)
			continue
		}
		for steps := 0; id != "" && steps < len(held); steps++ {
			// Forged parents may go in a circle.
			id = parent[id]
			if id == around[0] {
				pids = append(pids, pid)
				break
			}
		}
	}

	return pids
}

// isOwnCommand reports whether the process of a lease is its command: a user may write any PID into a lease of one's
// own. A command may have become root's (sudo), and root leases for others.
func isOwnCommand(host *machine.Host, l job.Lease) bool {
	uid, known := host.Proc.Owner(l.PID)
	return (!known || uid == l.UID || uid == 0 || l.UID == 0) && host.Proc.IsAlive(l.PID, l.Start)
}

// coversDevice reports whether the lease holds the device, or the GPU that the slice is of, or a slice of it.
func coversDevice(host *machine.Host, m gpu.Machine, l job.Lease, id gpu.UUID) bool {
	d, _, ok := m.FindDevice(id)
	return ok && (l.Holds(id) || l.Holds(d.UUID) || slices.ContainsFunc(d.MIG, func(s gpu.MIGDevice) bool { return id == d.UUID && l.Holds(s.UUID) }))
}
