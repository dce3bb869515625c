package pick

import (
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// Shares of a device's memory. The room for further shares of one device, or slice, is
//
//	room = total - reserve - foreign - the sum over its leases of max(promised, used by its process tree)
//
//   - reserve is not given as shares: drivers and contexts need memory outside the programs.
//   - foreign is all use that does not provably belong to a lease on this device. A process counts for a lease only if
//     it is in the lease's process tree and has the same owner, so that no lease can claim another user's process.
//     Used memory that no process accounts for is foreign too.
//   - A promise counts whether or not it is used, and use above it counts as well.
//
// A device with an exclusive lease takes no share, and one with shares no exclusive lease. A lease on a slice and one
// on its whole GPU always exclude each other.
//
// Inside a shared lease: room = its promise - what its sub-leases promise or use - what its other processes use. There
// a request without a size takes the whole promise, and needs that there is no sub-lease.

// shareReserve is the memory of a device that is not given as shares. It is in addition to what the driver reports to
// keep for itself, which total does not include. The result is meaningful only for units whose total is known.
func shareReserve(u *unit) gpu.Bytes {
	if u.totalMemory() == nil {
		return 512 * gpu.MiB
	}
	return max(512*gpu.MiB, *u.totalMemory()/20)
}

// ShareableMemory is the memory of an unused device that can be given as shares, of the main memory only what is
// available; nil when its total is not known.
func ShareableMemory(d *gpu.Device) *gpu.Bytes {
	u := &unit{dev: d}
	total := u.totalMemory()
	if total == nil {
		return nil
	}

	if d.MainMemory != nil {
		total = d.MainAvailable
	}

	return new(max(0, *total-shareReserve(u)))
}

// group is a lease with its sub-leases. Only the outermost lease counts against a device.
type group struct {
	job.Lease
	// IDs of the lease and of its sub-leases at any depth.
	parts []string
	// The memory that processes of known size use.
	used gpu.Bytes
}

// chargedMemory is the memory that the group takes from others.
func (g *group) chargedMemory() gpu.Bytes { return max(g.Share, g.used) }

// groupLeases puts the leases of one device, oldest first, under the outermost of them. A parent counts only if it has
// the same owner and is on the device too, so that no lease can hide under another.
func groupLeases(leases []job.Lease) []*group {
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

			at = up
			if seen[at] {
				// Leases that name each other as parent: each counts.
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

// belongsToGroup reports whether the process provably belongs to the group.
func (q *query) belongsToGroup(g *group, p gpu.Process) bool {
	return p.UID != nil && *p.UID == g.UID && slices.ContainsFunc(g.parts, func(id string) bool { return slices.Contains(q.in.Trees[id], p.PID) })
}

// ledger lists what uses the memory of one device, or of the shared lease that the caller runs inside.
type ledger struct {
	groups []*group
	// Processes that the new lease is for.
	own processSet
	// All others; inside a shared lease those outside its sub-leases.
	others processSet
	// Used, but by no visible process.
	unseen gpu.Bytes
	// Memory that can be shared.
	whole gpu.Bytes
	// The memory in use cannot be known.
	vague bool
	// It is the main memory: unseen is what the rest of the machine uses.
	main bool
}

// memoryLeft is what can still be promised; negative when more is used than can be shared.
func (b *ledger) memoryLeft() gpu.Bytes {
	left := b.whole - b.others.known - b.unseen
	for _, g := range b.groups {
		left -= g.chargedMemory()
	}
	return left
}

// unpromisedMemory is what would remain if no lease used more than its promise.
func (b *ledger) unpromisedMemory() gpu.Bytes {
	left := b.whole
	for _, g := range b.groups {
		left -= g.Share
	}
	return left
}

// deviceLedger lists the use of a device. Used memory that no process accounts for is foreign. Where the driver does
// not report its own memory, up to the reserve counts as the driver's, unless a process of unknown size is there.
func (q *query) deviceLedger(u *unit, ps []gpu.Process, leases []job.Lease) *ledger {
	b := &ledger{groups: groupLeases(leases)}
	used := u.usedMemory()
	if u.mig == nil && u.dev.MainMemory != nil {
		// With what the rest of the machine uses.
		used, b.main = new(*u.dev.MainMemory-*u.dev.MainAvailable), true
	}

	if u.totalMemory() == nil || used == nil {
		b.vague = true
		return b
	}

	b.whole = *u.totalMemory() - shareReserve(u)
	unsaid := false
	var known gpu.Bytes
	for _, p := range ps {
		b.chargeProcess(q, p)
		unsaid = unsaid || p.Memory == nil
		if p.Memory != nil {
			known += max(0, *p.Memory)
		}
	}

	b.unseen = *used - known
	if !unsaid {
		b.unseen -= oldDriverReserve(u)
	}

	b.unseen = max(0, b.unseen)

	return b
}

// poolLedger is the ledger of the shared lease that the caller runs inside, on one device: only the lease's own
// processes count.
func (q *query) poolLedger(pool *job.Lease, ps []gpu.Process, leases []job.Lease) *ledger {
	b := &ledger{groups: groupLeases(leases), whole: pool.Share}
	whole := &group{Lease: *pool, parts: []string{pool.ID}}
	for _, l := range leases {
		whole.parts = append(whole.parts, l.ID)
	}

	for _, p := range ps {
		if q.belongsToGroup(whole, p) {
			b.chargeProcess(q, p)
		}
	}

	b.vague = b.others.vague

	return b
}

// chargeProcess charges a process to its group.
func (b *ledger) chargeProcess(q *query, p gpu.Process) {
	if slices.Contains(q.in.Own, p.PID) {
		b.own.addProcess(p)
		return
	}
	ours := false
	for _, g := range b.groups {
		if !q.belongsToGroup(g, p) {
			continue
		}
		ours = true
		if p.Memory != nil {
			g.used += max(0, *p.Memory)
		}
	}
	if !ours {
		b.others.addProcess(p)
	}
}
