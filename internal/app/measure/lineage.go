package measure

import (
	"cmp"
	"context"
	"os"
	"slices"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/quota"
	"gpuard/internal/core/visible"
)

// lineageTable is which process counts against which lease: that of its nearest ancestor for which there is one. A job
// may start another with a lease of its own, and then what that uses is no part of the first.
type lineageTable struct {
	host   *machine.Host
	roots  map[int][]job.Lease // by process id
	parent map[string]string   // of each live lease
	share  map[string]gpu.Bytes
}

// readLineage is how the leases of this user that count here are related.
func (m *measurer) readLineage() lineageTable {
	k := lineageTable{host: m.host, roots: map[int][]job.Lease{}, parent: map[string]string{}, share: map[string]gpu.Bytes{}}
	for _, l := range m.held {
		if l.UID != uint32(os.Geteuid()) || l.Unreadable || l.Namespace != m.host.Proc.PIDNamespace() {
			continue
		}
		k.roots[l.PID] = append(k.roots[l.PID], l)
		k.parent[l.ID], k.share[l.ID] = l.Parent, l.Share
	}
	return k
}

// leaseOf finds the lease of a process, "" for none.
func (k lineageTable) leaseOf(pid int) string {
	for p, steps := pid, 0; p > 1 && steps < 4096; steps++ {
		s, err := k.host.Proc.Stat(p)
		if err != nil {
			break
		}
		if l := k.rootLease(pid, p, s.Start); l != "" {
			return l
		}
		p = s.PPID
	}
	id := k.leaseInEnv(pid)
	if _, live := k.parent[id]; live {
		return id
	}

	return ""
}

// rootLease is the lease that was made for process p itself. A program that takes its place may have made another one;
// then the environment of the process in question says which is meant.
func (k lineageTable) rootLease(pid, p int, start uint64) string {
	mine := slices.DeleteFunc(slices.Clone(k.roots[p]), func(l job.Lease) bool { return l.Start != start })
	switch len(mine) {
	case 0:
		return ""
	case 1:
		return mine[0].ID
	}

	id := k.leaseInEnv(pid)
	if slices.ContainsFunc(mine, func(l job.Lease) bool { return l.ID == id }) {
		return id
	}

	return slices.MaxFunc(mine, func(a, b job.Lease) int { return cmp.Compare(a.SinceBoot, b.SinceBoot) }).ID
}

// leaseInEnv is the lease in a process's environment.
func (k lineageTable) leaseInEnv(pid int) string {
	env, err := k.host.Proc.Environ(pid)
	if err != nil {
		return ""
	}
	id, _ := visible.Env(env).Lookup("GPUARD_LEASE")

	return id
}

// partOf reports whether lease id is l itself, or inside of a part of it, and of which; that is "" for l itself.
func (k lineageTable) partOf(id, l string) (of string, ok bool) {
	for steps := 0; id != "" && steps < 64; steps++ {
		if id == l {
			return of, true
		}
		of, id = id, k.parent[id]
	}
	return "", false
}

// machineReading is what all leases are measured by.
type machineReading struct {
	machine gpu.Machine
	err     error // why there is none
	kin     lineageTable
	// The lease against which each living process on the devices counts, "" for none.
	leases map[int]string
}

// readMachine reads the devices and the processes, and adds to the members of each lease what is in its tree by now.
func (m *measurer) readMachine(ctx context.Context, what gpu.What) *machineReading {
	roots := map[string][]int{}
	for id, w := range m.leases {
		roots[id] = w.livingMembers()
	}

	for id, tree := range m.host.Proc.ProcessTrees(roots) {
		for _, pid := range tree {
			if s, err := m.host.Proc.Stat(pid); err == nil && s.State != "Z" {
				m.leases[id].members[pid] = s.Start
			}
		}
	}

	r := &machineReading{leases: map[int]string{}}
	r.machine, r.err = m.host.Read(ctx, what)

	// After the processes: the lease of each is older than the process.
	m.held, _ = m.folder.Leases()
	r.kin = m.readLineage()
	if r.err != nil {
		return r
	}

	for _, p := range r.machine.Processes {
		if _, known := r.leases[p.PID]; !known && p.Start != 0 && m.host.Proc.IsAlive(p.PID, p.Start) {
			r.leases[p.PID] = r.kin.leaseOf(p.PID)
		}
	}

	return r
}

// notListed is why a device cannot be measured that is hidden here, or gone.
const notListed = "the driver does not list it"

// deviceBlindReason says why a device cannot be measured; "" where it can.
func (m *measurer) deviceBlindReason(r *machineReading, device gpu.UUID) string {
	if r.err != nil {
		return r.err.Error()
	}
	if _, _, found := r.machine.FindDevice(device); !found {
		return notListed
	}
	return m.host.UnlistedReason(r.machine, []gpu.UUID{device})
}

// usesOn are the processes on one device that count against the lease.
func (w *leaseMeter) usesOn(r *machineReading, device gpu.UUID) []quota.Use {
	var out []quota.Use
	parts, sums := map[int]string{}, map[string]gpu.Bytes{}
	for _, p := range r.machine.ProcessesOn(device) {
		of, alive := r.leases[p.PID]
		if !alive {
			continue
		}

		if start, member := w.members[p.PID]; of == "" && member && start == p.Start {
			of = w.lease.ID
		}

		part, ok := r.kin.partOf(of, w.lease.ID)
		if !ok {
			continue
		}

		parts[p.PID] = part
		if p.Memory != nil {
			sums[part] += *p.Memory
		}

		out = append(out, quota.Use{PID: p.PID, Start: p.Start, Command: prose.ProgramName(p.Command), Memory: p.Memory})
	}

	for i := range out {
		part := parts[out[i].PID]
		out[i].Keeps = part != "" && sums[part] <= r.kin.share[part]
	}

	return sortByPID(out)
}
