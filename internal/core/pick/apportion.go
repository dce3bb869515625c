package pick

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// pool is the shared lease that we are inside of, nil outside: there its promise is all there is.
func (q *question) pool() *job.Lease {
	if q.in.Parent != nil && q.in.Parent.Share > 0 {
		return q.in.Parent
	}
	return nil
}

// share is what the lease will promise on each device; 0 for whole devices.
func (q *question) share() gpu.Bytes {
	if p := q.pool(); p != nil && q.spec.Share <= 0 {
		return p.Share
	}
	return max(0, q.spec.Share)
}

// apportion judges a device of which a share is wanted.
func (q *question) apportion(u *unit, ps []gpu.Process, out *use) {
	leases := q.holders(u, out)
	b := q.ledger(u, ps, leases)
	out.processes = blockers(b.others.ps)
	if whole := wholes(b.groups, u); len(whole) > 0 {
		out.busy, out.processes = q.heldBy(whole)
		return
	}
	if out.busy = q.single(u, ps, b); out.busy != nil {
		return
	}
	q.spend(u, b, out)
}

// inPool judges a device inside a shared lease. Leases and processes of others there are its neighbours, and paid for.
func (q *question) inPool(u *unit, ps []gpu.Process, out *use) {
	pool := q.pool()
	parts := q.below(u, pool)
	b := q.purse(pool, ps, parts)
	whole := wholes(b.groups, u)
	if q.spec.Share <= 0 && len(b.groups) > 0 {
		whole = parts
	}
	out.processes = blockers(b.others.ps)
	if len(whole) > 0 {
		out.busy, out.processes = q.heldBy(whole)
		return
	}
	if q.spec.Share <= 0 { // what runs here already is ours, as it is inside an exclusive lease
		out.left, out.ours = new(b.left()), len(b.others.ps) > 0
		q.notes(b, out)
		return
	}
	q.spend(u, b, out)
}

// below lists the leases inside another one, at any depth, that touch the device.
func (q *question) below(u *unit, top *job.Lease) []job.Lease {
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
		if inside[l.ID] && l.ID != top.ID && l.UID == top.UID && touches(l, u) {
			out = append(out, l)
		}
	}
	return out
}

// wholes are the leases that are no shares of just this device: exclusive ones, unreadable ones, and shares of a slice
// of it or of the GPU that it is a slice of.
func wholes(gs []*group, u *unit) []job.Lease {
	var out []job.Lease
	for _, g := range gs {
		if g.Share <= 0 || !g.Holds(u.id()) || g.Unreadable {
			out = append(out, g.Lease)
		}
	}
	return out
}

// single says that the compute mode lets one process in, so that a device cannot be shared; behind MPS it can.
func (q *question) single(u *unit, ps []gpu.Process, b *ledger) *obstacle {
	mps := q.spec.Quota == job.MPS && !slices.ContainsFunc(b.groups, func(g *group) bool { return g.Quota != job.MPS })
	switch {
	case !closedToSecond(u.dev) || slices.ContainsFunc(ps, isServer) || mps && len(b.others.ps) == 0:
		return nil
	case len(b.others.ps) > 0:
		return q.alone(u, b.others)
	case len(b.groups) > 0:
		o, _ := q.heldBy([]job.Lease{b.groups[0].Lease})
		o.text += ", and its compute mode " + u.dev.ComputeMode + " lets no second process in"
		return o
	}
	return nil
}

// spend decides whether what is left suffices.
func (q *question) spend(u *unit, b *ledger, out *use) {
	if b.vague {
		out.busy = &obstacle{code: "memory", text: "how much of its memory is in use is unknown, so no share of it can be promised", remedy: "leave out --share for a whole GPU"}
		if q.pool() != nil {
			out.busy.remedy = fmt.Sprintf("end what runs in lease %s beside, or leave out --share for all of it", q.pool().ID)
		}
		return
	}
	out.shared, out.left = len(b.groups) > 0, new(b.left())
	if *out.left < q.share() {
		out.busy = q.short(u, b)
		out.wait = q.freeing(b, q.share())
		return
	}
	out.ours = q.pool() != nil && len(b.others.ps) > 0 || slices.ContainsFunc(b.others.ps, q.mine)
	if b.own.known > q.share() {
		out.busy = &obstacle{code: "memory", text: fmt.Sprintf("%s use %s already, more than a share of %s", q.crowded(b.own.ps), b.own.known, q.share()),
			remedy: fmt.Sprintf("ask for a larger share (--share %s)", atLeast(b.own.known))}
		return
	}
	q.notes(b, out)
}

// short says what the memory is spent on when too little is left.
func (q *question) short(u *unit, b *ledger) *obstacle {
	left := b.left()
	have, want := apart(max(0, left), q.share())
	of := u.size().String()
	if p := q.pool(); p != nil {
		of = fmt.Sprintf("the %s of lease %s", p.Share, p.ID)
	}
	o := &obstacle{code: "memory", text: fmt.Sprintf("%s of %s are left for shares, less than %s: %s", have, of, want, strings.Join(q.spent(b), ", "))}
	if left <= 0 {
		o.text = fmt.Sprintf("nothing of %s is left for shares: %s", of, strings.Join(q.spent(b), ", "))
	}
	if b.promised() < q.share() && len(b.groups) > 0 {
		o.lease = b.groups[0].ID
	}
	o.remedy = q.freeing(b, q.share())
	if left >= gpu.MiB {
		o.remedy = fmt.Sprintf("ask for a smaller share (--share %s), or %s", typed(left), o.remedy)
	}
	return o
}

// spent lists where the memory went.
func (q *question) spent(b *ledger) []string {
	var out, with []string
	for _, g := range b.groups[:min(most, len(b.groups))] {
		with = append(with, q.sharer(g))
	}
	if more := len(b.groups) - most; more > 0 {
		with = append(with, fmt.Sprintf("%d more", more))
	}
	if len(with) > 0 {
		out = append(out, "shared with "+listed(with, "and"))
	}
	if len(b.others.ps) > 0 {
		where := "used without a lease by "
		if p := q.pool(); p != nil {
			where = "used beside its parts by "
		}
		out = append(out, where+q.crowded(b.others.ps))
	}
	if b.unseen > 0 {
		out = append(out, fmt.Sprintf("%s used by no visible process", b.unseen))
	}
	return out
}

// sharer names a lease, and what it takes beyond its promise.
func (q *question) sharer(g *group) string {
	text := whose(q.in, g.Lease) + stillHeld(g.Lease, q.in.Now)
	if g.used > g.Share {
		text += fmt.Sprintf(", which uses %s", g.used)
	}
	return text
}

// freeing is what would have to end for a share of this size: what suffices alone, else both.
func (q *question) freeing(b *ledger, want gpu.Bytes) string {
	var leases []string
	var charged gpu.Bytes
	for _, g := range b.groups {
		charged += g.charge()
		leases = append(leases, fmt.Sprintf("lease %s of %s", g.ID, or(gpu.Clean(g.User), fmt.Sprintf("uid %d", g.UID))))
	}
	if len(leases) > most {
		leases = []string{count(len(leases), "lease")}
	}
	wait := fmt.Sprintf("wait until %s ends", listed(leases, "or"))
	end := q.endAll(b.others.ps)
	if !slices.ContainsFunc(b.others.ps, func(p gpu.Process) bool { return !ending(p) }) {
		end = "try again in a moment"
	}
	left := b.left()
	switch {
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

// notes tell with whom a device is shared, and what else is on it.
func (q *question) notes(b *ledger, out *use) {
	for _, g := range b.groups {
		out.notes = append(out.notes, "shared with "+q.sharer(g))
	}
	for _, p := range b.others.ps {
		switch {
		case out.ours && q.mine(p):
			out.notes = append(out.notes, fmt.Sprintf("already used inside %s by %s", q.inside(), q.who(p)))
		case p.Kind == gpu.GraphicsProcess:
			out.notes = append(out.notes, fmt.Sprintf("also drives a display: %s; %s", q.who(p), q.end(p)))
		case ending(p):
			out.notes = append(out.notes, "also used without a lease by "+q.who(p))
		default:
			out.notes = append(out.notes, fmt.Sprintf("also used without a lease by %s; %s", q.who(p), q.end(p)))
		}
	}
	if b.unseen > unseenWorthANote {
		out.notes = append(out.notes, fmt.Sprintf("%s are used by no visible process", b.unseen))
	}
}

// atLeast is a size as --share takes it, rounded up so that it holds.
func atLeast(b gpu.Bytes) string { return typed(b + gpu.GiB - 1 - (b-1)%gpu.GiB) }
