package measure

import (
	"cmp"
	"slices"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
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

	watched int // leases of all users that are measured
}

// kin reads the leases of this user that count here.
func (w *measuring) kin() lineageTable {
	k := lineageTable{host: w.host, roots: map[int][]job.Lease{}, parent: map[string]string{}, share: map[string]gpu.Bytes{}}
	held, _ := w.folder.Leases()
	for _, l := range held {
		if l.Share > 0 && l.Quota != job.NoQuota {
			k.watched++
		}
		if l.UID != w.lease.UID || l.Unreadable || l.Namespace != w.lease.Namespace {
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
		if l := k.root(pid, p, s.Start); l != "" {
			return l
		}
		p = s.PPID
	}
	id := k.says(pid)
	if _, live := k.parent[id]; live {
		return id
	}
	return ""
}

// root is the lease that was made for process p itself. A program that takes its place may have made another one; then
// the environment of the process in question says which is meant.
func (k lineageTable) root(pid, p int, start uint64) string {
	mine := slices.DeleteFunc(slices.Clone(k.roots[p]), func(l job.Lease) bool { return l.Start != start })
	switch len(mine) {
	case 0:
		return ""
	case 1:
		return mine[0].ID
	}
	id := k.says(pid)
	if slices.ContainsFunc(mine, func(l job.Lease) bool { return l.ID == id }) {
		return id
	}
	return slices.MaxFunc(mine, func(a, b job.Lease) int { return cmp.Compare(a.SinceBoot, b.SinceBoot) }).ID
}

// says is the lease in a process's environment.
func (k lineageTable) says(pid int) string {
	env, err := k.host.Proc.Environ(pid)
	if err != nil {
		return ""
	}
	id, _ := visible.Env(env).Lookup("GPUARD_LEASE")
	return id
}

// part reports whether lease id is l itself, or inside of a part of it, and of which; that is "" for l itself.
func (k lineageTable) part(id, l string) (of string, ok bool) {
	for steps := 0; id != "" && steps < 64; steps++ {
		if id == l {
			return of, true
		}
		of, id = id, k.parent[id]
	}
	return "", false
}

// gather lists the living processes of the lease's tree, also of what has left it since.
func (w *measuring) gather() []int {
	var roots []int
	for pid, start := range w.members {
		if w.host.Proc.Alive(pid, start) {
			roots = append(roots, pid)
		} else {
			delete(w.members, pid)
		}
	}
	if len(roots) == 0 {
		return nil
	}
	tree := w.host.Proc.Tree(roots...)
	for _, pid := range tree {
		if s, err := w.host.Proc.Stat(pid); err == nil && s.State != "Z" {
			w.members[pid] = s.Start
		}
	}
	return tree
}

// uses are the processes on one device that count against the lease.
func (w *measuring) uses(on []gpu.Process, k lineageTable) []quota.Use {
	var out []quota.Use
	parts, sums := map[int]string{}, map[string]gpu.Bytes{}
	for _, p := range on {
		if p.Start == 0 || !w.host.Proc.Alive(p.PID, p.Start) {
			continue
		}
		of := k.leaseOf(p.PID)
		if start, member := w.members[p.PID]; of == "" && member && start == p.Start {
			of = w.lease.ID
		}
		part, ok := k.part(of, w.lease.ID)
		if !ok {
			continue
		}
		if parts[p.PID] = part; p.Memory != nil {
			sums[part] += *p.Memory
		}
		out = append(out, quota.Use{PID: p.PID, Start: p.Start, Command: machine.CommandWord(p.Command), Memory: p.Memory})
	}
	for i := range out {
		part := parts[out[i].PID]
		out[i].Keeps = part != "" && sums[part] <= k.share[part]
	}
	return sorted(out)
}
