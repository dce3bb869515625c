package pick

import (
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// Shares of a device's memory. What one device, or slice, still has for them is
//
//	room = total - reserve - foreign - the sum over its leases of max(promised, used by its process tree)
//
// reserve stays aside for what drivers and contexts take beside programs. Foreign is all use that does not provably belong to a
// lease on this device: a process counts as a lease's only if it is in its process tree and of its owner, so that no
// lease can call somebody else's process its own; memory that nobody accounts for is foreign too. A promise counts
// whether or not it is used, and use beyond it counts as well. A device with an exclusive lease takes no share, and one
// with shares no exclusive lease; a lease on a slice and one on its whole GPU exclude each other whatever their kinds.
//
// Inside a shared lease that lease is the machine: room = its promise - what its sub-leases promise or use - what its
// other processes use. There a request without a size takes all of it, and needs that no sub-lease is there.

// reserve is the memory of a device that shares leave aside. It is more than the driver says it keeps for itself, which
// total leaves out already; only units whose total is known have one worth the name.
func reserve(u *unit) gpu.Bytes {
	if u.total() == nil {
		return 512 * gpu.MiB
	}
	return max(512*gpu.MiB, *u.total()/20)
}

// Promisable is what a device that nobody uses has for shares; nil when its memory is not known.
func Promisable(d *gpu.Device) *gpu.Bytes {
	u := &unit{dev: d}
	if u.total() == nil {
		return nil
	}
	return new(max(0, *u.total()-reserve(u)))
}

// group is a lease with its parts: what counts against a device is the outermost lease.
type group struct {
	job.Lease
	parts []string  // ids of the lease and of everything below it
	used  gpu.Bytes // by processes that say how much
}

// charge is what the group takes away from others.
func (g *group) charge() gpu.Bytes { return max(g.Share, g.used) }

// groups puts leases on one device, oldest first, under the outermost of them. A parent counts only if it is of the
// same owner and on the device too: nobody hides a lease behind another one.
func groups(leases []job.Lease) []*group {
	top := make([]int, len(leases))
	for i := range leases {
		at, seen := i, map[int]bool{}
		for {
			seen[at] = true
			l := leases[at]
			up := slices.IndexFunc(leases, func(p job.Lease) bool { return l.Parent != "" && p.ID == l.Parent && p.UID == l.UID })
			if up < 0 {
				break
			}
			if at = up; seen[at] { // leases that name each other as parent: each counts
				at = i
				break
			}
		}
		top[i] = at
	}
	var out []*group
	for i, l := range leases {
		if top[i] != i {
			continue
		}
		g := &group{Lease: l}
		for j := range leases {
			if top[j] == i {
				g.parts = append(g.parts, leases[j].ID)
			}
		}
		out = append(out, g)
	}
	return out
}

// runs reports whether the process provably belongs to the group.
func (q *question) runs(g *group, p gpu.Process) bool {
	return p.UID != nil && *p.UID == g.UID && slices.ContainsFunc(g.parts, func(id string) bool { return slices.Contains(q.in.Trees[id], p.PID) })
}

// ledger is what the memory of one device, or of the shared lease we are inside of, is spent on.
type ledger struct {
	groups []*group
	own    crowd     // what the new lease is for, and runs already
	others crowd     // everybody else's; inside a shared lease what it runs outside its sub-leases
	unseen gpu.Bytes // used, but by no process that we see
	whole  gpu.Bytes // what there is to share
	vague  bool      // how much is used cannot be known
}

// left is what can still be promised; below zero when more is used than there is for shares.
func (b *ledger) left() gpu.Bytes {
	left := b.whole - b.others.known - b.unseen
	for _, g := range b.groups {
		left -= g.charge()
	}
	return left
}

// promised is what would be left if nobody used more than promised.
func (b *ledger) promised() gpu.Bytes {
	left := b.whole
	for _, g := range b.groups {
		left -= g.Share
	}
	return left
}

// ledger of a device. Memory that is used beyond what its processes say is foreign: at most the reserve of it may be the
// driver's own, where the driver does not tell, and then it is taken from there.
func (q *question) ledger(u *unit, ps []gpu.Process, leases []job.Lease) *ledger {
	b := &ledger{groups: groups(leases)}
	if u.total() == nil || u.used() == nil {
		b.vague = true
		return b
	}
	b.whole = *u.total() - reserve(u)
	unsaid := false
	var known gpu.Bytes
	for _, p := range ps {
		b.book(q, p)
		if unsaid = unsaid || p.Memory == nil; p.Memory != nil {
			known += max(0, *p.Memory)
		}
	}
	b.unseen = *u.used() - known
	if !unsaid {
		b.unseen -= oldDriverReserve(u)
	}
	b.unseen = max(0, b.unseen)
	return b
}

// purse is the ledger of the shared lease that we are inside of, on one device: only what runs inside counts.
func (q *question) purse(pool *job.Lease, ps []gpu.Process, leases []job.Lease) *ledger {
	b := &ledger{groups: groups(leases), whole: pool.Share}
	whole := &group{Lease: *pool, parts: []string{pool.ID}}
	for _, l := range leases {
		whole.parts = append(whole.parts, l.ID)
	}
	for _, p := range ps {
		if q.runs(whole, p) {
			b.book(q, p)
		}
	}
	b.vague = b.others.vague
	return b
}

// book puts a process where it belongs.
func (b *ledger) book(q *question, p gpu.Process) {
	if slices.Contains(q.in.Own, p.PID) {
		b.own.add(p)
		return
	}
	ours := false
	for _, g := range b.groups {
		if !q.runs(g, p) {
			continue
		}
		ours = true
		if p.Memory != nil {
			g.used += max(0, *p.Memory)
		}
	}
	if !ours {
		b.others.add(p)
	}
}
