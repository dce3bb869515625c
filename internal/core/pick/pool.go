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

// parentPool returns the shared lease that this request runs inside, nil when there is none. Inside one, only the
// memory that it promises can be given.
func (q *query) parentPool() *job.Lease {
	if q.in.Parent != nil && q.in.Parent.Share > 0 {
		return q.in.Parent
	}
	return nil
}

// promisedShare is what the lease will promise on each device; 0 for whole devices.
func (q *query) promisedShare() gpu.Bytes {
	if p := q.parentPool(); p != nil && q.spec.Share <= 0 {
		return p.Share
	}
	return max(0, q.spec.Share)
}

// judgeForShare judges a device for a request that wants a share of it.
func (q *query) judgeForShare(u *unit, ps []gpu.Process, out *use) {
	leases := q.blockingLeases(u, out)
	b := q.deviceLedger(u, ps, leases)
	out.processes = blockersOf(b.others.ps)
	if whole := exclusiveLeases(b.groups, u); len(whole) > 0 {
		out.busy, out.processes = q.leasedObstacle(whole)
		return
	}

	out.busy = q.shareModeObstacle(u, ps, b)
	if out.busy != nil {
		return
	}

	q.fitShare(u, b, out)
}

// judgeInPool judges a device inside a shared lease. What other leases and processes take from the device does not
// count: the pool's memory is reserved already.
func (q *query) judgeInPool(u *unit, ps []gpu.Process, out *use) {
	pool := q.parentPool()
	parts := q.subLeases(u, pool)
	b := q.poolLedger(pool, ps, parts)
	whole := exclusiveLeases(b.groups, u)
	if q.spec.Share <= 0 && len(b.groups) > 0 {
		whole = parts
	}

	out.processes = blockersOf(b.others.ps)
	if len(whole) > 0 {
		out.busy, out.processes = q.leasedObstacle(whole)
		return
	}

	if q.spec.Share <= 0 {
		// Processes that run here belong to the caller, as inside an exclusive lease.
		out.left, out.ours = new(b.memoryLeft()), len(b.others.ps) > 0
		q.noteShared(b, out)
		return
	}

	q.fitShare(u, b, out)
}

// subLeases lists the leases inside top, at any depth, that touch the device.
func (q *query) subLeases(u *unit, top *job.Lease) []job.Lease {
	inside := map[string]bool{top.ID: true}
	var out []job.Lease
	for grown := true; grown; {
		grown = false
		for _, l := range q.held {
			if l.UID == top.UID && inside[l.Parent] && !inside[l.ID] {
				inside[l.ID], grown = true, true
			}
		}
	}

	for _, l := range q.held {
		if inside[l.ID] && l.ID != top.ID && l.UID == top.UID && leaseTouches(l, u) {
			out = append(out, l)
		}
	}

	return out
}

// exclusiveLeases lists the leases that are not shares of exactly this device: exclusive ones, unreadable ones, and
// shares of one of its slices or of its parent GPU.
func exclusiveLeases(gs []*group, u *unit) []job.Lease {
	var out []job.Lease
	for _, g := range gs {
		if g.Share <= 0 || !g.Holds(u.id()) || g.Unreadable {
			out = append(out, g.Lease)
		}
	}
	return out
}

// shareModeObstacle returns an obstacle when the compute mode allows only one process, so that the device cannot be
// shared. With MPS it can: all clients run inside its one server.
func (q *query) shareModeObstacle(u *unit, ps []gpu.Process, b *ledger) *obstacle {
	mps := q.spec.Quota == job.MPS && !slices.ContainsFunc(b.groups, func(g *group) bool { return g.Quota != job.MPS })
	switch {
	case !allowsOneProcess(u.dev) || slices.ContainsFunc(ps, gpu.Process.ServesMPS) || mps && len(b.others.ps) == 0:
		return nil
	case len(b.others.ps) > 0:
		return q.exclusiveModeObstacle(u, b.others)
	case len(b.groups) > 0:
		o, _ := q.leasedObstacle([]job.Lease{b.groups[0].Lease})
		o.text += ", and its compute mode " + u.dev.ComputeMode + " lets no second process in"
		return o
	}
	return nil
}

// fitShare decides whether the remaining memory suffices for the share.
func (q *query) fitShare(u *unit, b *ledger, out *use) {
	if b.vague {
		out.busy = &obstacle{code: "memory", text: "how much of its memory is in use is unknown, so no share of it can be promised", remedy: option.Expand("leave out {share} for a whole GPU")}
		if q.parentPool() != nil {
			out.busy.remedy = option.Sprintf("end what else runs in lease %s, or leave out {share} for all of it", q.parentPool().ID)
		}
		return
	}

	out.shared, out.left = len(b.groups) > 0, new(b.memoryLeft())
	if *out.left < q.promisedShare() {
		out.busy = q.shareRoomObstacle(u, b)
		out.wait = q.freeingRemedy(b, q.promisedShare())
		return
	}

	out.ours = q.parentPool() != nil && len(b.others.ps) > 0 || slices.ContainsFunc(b.others.ps, q.isInOwnLease)
	if b.own.known > q.promisedShare() {
		out.busy = &obstacle{code: "memory", text: fmt.Sprintf("%s use %s already, more than a share of %s", q.processesText(b.own.ps), b.own.known, q.promisedShare()),
			remedy: option.Sprintf("ask for a larger share ({share=%s})", formatSizeFlagUp(b.own.known))}
		return
	}

	q.noteShared(b, out)
}

// shareRoomObstacle says what uses the memory when too little remains.
func (q *query) shareRoomObstacle(u *unit, b *ledger) *obstacle {
	left := b.memoryLeft()
	have, want := distinctSizes(max(0, left), q.promisedShare())
	of := u.nominalMemory().String()
	if p := q.parentPool(); p != nil {
		of = fmt.Sprintf("the %s of lease %s", p.Share, p.ID)
	}

	o := &obstacle{code: "memory", text: fmt.Sprintf("%s of %s are left for shares, less than %s: %s", have, of, want, strings.Join(q.memoryUseTexts(b), ", "))}
	if left <= 0 {
		o.text = fmt.Sprintf("nothing of %s is left for shares: %s", of, strings.Join(q.memoryUseTexts(b), ", "))
	}

	if b.unpromisedMemory() < q.promisedShare() && len(b.groups) > 0 {
		o.lease = b.groups[0].ID
	}

	o.remedy = q.freeingRemedy(b, q.promisedShare())
	if left >= gpu.MiB {
		o.remedy = option.Sprintf("ask for a smaller share ({share=%s}), or %s", formatSizeFlag(left), o.remedy)
	}

	return o
}

// memoryUseTexts lists what uses the memory.
func (q *query) memoryUseTexts(b *ledger) []string {
	var out, with []string
	for _, g := range b.groups[:min(maxNamesInText, len(b.groups))] {
		with = append(with, q.sharerText(g))
	}

	if more := len(b.groups) - maxNamesInText; more > 0 {
		with = append(with, fmt.Sprintf("%d more", more))
	}

	if len(with) > 0 {
		out = append(out, "shared with "+prose.JoinWords(with, "and"))
	}

	if len(b.others.ps) > 0 {
		where := "used without a lease by "
		if p := q.parentPool(); p != nil {
			where = "used outside its sub-leases by "
		}
		out = append(out, where+q.processesText(b.others.ps))
	}

	if b.unseen > 0 {
		by := "no visible process"
		if b.main {
			by = "the rest of this machine"
		}
		out = append(out, fmt.Sprintf("%s used by %s", b.unseen, by))
	}

	return out
}

// sharerText names a lease, and its use where that is more than its promise.
func (q *query) sharerText(g *group) string {
	text := leaseText(q.in, g.Lease) + endedText(g.Lease, q.in.Now)
	if g.used > g.Share {
		text += fmt.Sprintf(", which uses %s", g.used)
	}
	return text
}

// freeingRemedy says what must end to free a share of this size: what suffices alone, else both leases and
// processes.
func (q *query) freeingRemedy(b *ledger, want gpu.Bytes) string {
	var leases []string
	var charged gpu.Bytes
	for _, g := range b.groups {
		charged += g.chargedMemory()
		leases = append(leases, fmt.Sprintf("lease %s of %s", g.ID, cmp.Or(prose.Clean(g.User), fmt.Sprintf("uid %d", g.UID))))
	}

	if len(leases) > maxNamesInText {
		leases = []string{prose.CountNoun(len(leases), "lease")}
	}

	wait := fmt.Sprintf("wait until %s ends", prose.JoinWords(leases, "or"))
	end := q.endRemedy(b.others.ps)
	if !slices.ContainsFunc(b.others.ps, func(p gpu.Process) bool { return !isEnding(p) }) {
		end = untilFreedRemedy()
	}

	left := b.memoryLeft()
	switch {
	case len(leases) == 0 && len(b.others.ps) == 0 && b.main:
		return "wait until programs on this machine use less memory"
	case len(leases) == 0 && len(b.others.ps) == 0:
		return "find who uses it (a container, another PID namespace) and end it"
	case len(leases) == 0:
		return end
	case left+charged >= want || len(b.others.ps) == 0:
		if len(b.others.ps) > 0 && left+b.others.known >= want {
			return wait + ", or " + end
		}
		return wait
	case left+b.others.known >= want:
		return end
	}

	return wait + " and " + end
}

// noteShared adds notes about the leases and processes that also use the device.
func (q *query) noteShared(b *ledger, out *use) {
	for _, g := range b.groups {
		out.notes = append(out.notes, "shared with "+q.sharerText(g))
	}

	var display processSet
	for _, p := range b.others.ps {
		switch {
		case out.ours && q.isInOwnLease(p):
			out.notes = append(out.notes, fmt.Sprintf("already used inside %s by %s", q.insideText(), q.processText(p)))
		case q.servesDisplay(p):
			display.addProcess(p)
		case isEnding(p):
			out.notes = append(out.notes, "also used without a lease by "+q.processText(p))
		default:
			out.notes = append(out.notes, fmt.Sprintf("also used without a lease by %s; %s", q.processText(p), q.endText(p)))
		}
	}

	if len(display.ps) > 0 {
		out.notes = append(out.notes, q.displayText(display))
	}

	if b.unseen > minUnseenToNote && !b.main {
		out.notes = append(out.notes, fmt.Sprintf("%s are used by no visible process", b.unseen))
	}
}

// formatSizeFlagUp writes a size for --share, rounded up so that it suffices.
func formatSizeFlagUp(b gpu.Bytes) string { return formatSizeFlag(b + gpu.GiB - 1 - (b-1)%gpu.GiB) }
