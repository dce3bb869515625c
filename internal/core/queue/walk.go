package queue

import (
	"cmp"
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// walk goes through the tickets in order and remembers what those that wait keep for themselves.
type walk struct {
	q     *Question
	order []job.Ticket
	held  map[gpu.UUID][]end // leases that keep a device from the tickets, first end first
	keeps []keep
}

// end is when a lease has certainly ended (CLOCK_BOOTTIME, ns; never: nobody knows), and what share it then gives back.
type end struct {
	at    int64
	share gpu.Bytes
}

// keep is what one waiting ticket keeps for itself.
type keep struct {
	ticket job.Ticket
	on     []gpu.UUID
	by     int64 // its reservation: CLOCK_BOOTTIME, ns; never when there is none
	spare  int   // how many of its devices it can do without at its reservation
}

func (q *Question) walk() *walk {
	w := &walk{q: q, held: map[gpu.UUID][]end{}}
	w.order, _ = q.compete()
	w.order = slices.DeleteFunc(w.order, func(t job.Ticket) bool { return t.Count < 1 || len(w.devices(t)) < t.Count })
	for id := range q.Rooms {
		for _, l := range q.Held {
			if l.Holds(id) && !q.inside(l, id) {
				w.held[id] = append(w.held[id], end{q.end(l), l.Share})
			}
		}
		slices.SortFunc(w.held[id], func(a, b end) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.share, a.share))
		})
	}
	return w
}

// inside tells leases that do not keep the device from the scope's tickets: the lease that they wait in and those around
// that one, another scheduler's where the devices were given by one, and parts of a lease that counts anyway, because
// they end with it. A parent counts only if it is of the same user and has the device too.
func (q *Question) inside(l job.Lease, id gpu.UUID) bool {
	scope := q.scope()
	if scope.Allocation != "" && l.Allocation != scope.Allocation {
		return true
	}
	around := q.around(scope.Parent)
	if slices.Contains(around, l.ID) {
		return true
	}
	return l.Parent != "" && !slices.Contains(around, l.Parent) && slices.ContainsFunc(q.Held, func(p job.Lease) bool {
		return p.ID == l.Parent && p.UID == l.UID && p.Holds(id) && p.Parent != l.ID && p.ID != l.ID
	})
}

// scope is any of the tickets: all have the same Parent and Allocation.
func (q *Question) scope() job.Ticket {
	if len(q.Tickets) == 0 {
		return job.Ticket{}
	}
	return q.Tickets[0]
}

// around lists the lease and those that it is a part of.
func (q *Question) around(id string) []string {
	var out []string
	for id != "" && !slices.Contains(out, id) {
		out = append(out, id)
		i := slices.IndexFunc(q.Held, func(l job.Lease) bool { return l.ID == id })
		if i < 0 {
			break
		}
		id = q.Held[i].Parent
	}
	return out
}

// end is when the lease has certainly ended. One that should have ended and is still there has no known end.
func (q *Question) end(l job.Lease) int64 {
	if l.Until <= q.Boot {
		return never
	}
	return l.Until
}

// devices are those of the ticket that exist and that its owner may have now, each once.
func (w *walk) devices(t job.Ticket) []gpu.UUID {
	var out []gpu.UUID
	may := w.q.may(t)
	for _, id := range t.Devices {
		if _, exists := w.q.Rooms[id]; exists && may(id) && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// Full reports whether the ticket's owner has so much that the ticket can get nothing, whatever is free (Ticket.Max).
func (q *Question) Full(t job.Ticket) bool { return !slices.ContainsFunc(t.Devices, q.may(t)) }

// may tells which devices the ticket's owner may get now. It follows what pick.Place does with the same rule.
func (q *Question) may(t job.Ticket) func(gpu.UUID) bool {
	if t.Max <= 0 {
		return func(gpu.UUID) bool { return true }
	}
	own := job.Owned(q.Held, t.UID, "")
	if len(own)+t.Count <= t.Max {
		return func(gpu.UUID) bool { return true }
	}
	return func(id gpu.UUID) bool { return t.Share > 0 && len(own) <= t.Max && own[job.DeviceHash(id)] }
}

// room tells whether the device could be given to the ticket now, if nobody else waited.
func (w *walk) room(t job.Ticket, id gpu.UUID) bool {
	r := w.q.Rooms[id]
	if t.Share > 0 {
		return r.Share != nil && *r.Share >= t.Share
	}
	return r.Whole && (t.Memory <= 0 || r.Free != nil && *r.Free >= t.Memory)
}

// fits tells whether the ticket may start now.
func (w *walk) fits(t job.Ticket) bool {
	n := 0
	for _, id := range w.devices(t) {
		if w.room(t, id) && w.blocker(t, id) == nil {
			n++
		}
	}
	return n >= t.Count
}

// blocker is the first of those before the ticket that keeps the device from it; nil when it may have the device.
func (w *walk) blocker(t job.Ticket, id gpu.UUID) *keep {
	for i := range w.keeps {
		if k := &w.keeps[i]; slices.Contains(k.on, id) && !w.harmless(t, id, k) {
			return k
		}
	}
	return nil
}

// harmless are the three cases in which a later ticket may use a kept device.
func (w *walk) harmless(t job.Ticket, id gpu.UUID, k *keep) bool {
	switch {
	case k.by == never:
	case t.Timeout > 0 && int64(t.Timeout) <= k.by-w.q.Boot:
		return true
	case t.Count <= k.spare:
		return true
	}
	return t.Share > 0 && k.ticket.Share > 0 && w.roomy(t, id)
}

// roomy tells whether beside the ticket's share the device has room for those of all before it.
func (w *walk) roomy(t job.Ticket, id gpu.UUID) bool {
	room := w.q.Rooms[id].Share
	if room == nil {
		return false
	}
	left := *room - t.Share
	for _, k := range w.keeps {
		if left >= 0 && slices.Contains(k.on, id) {
			left -= k.ticket.Share // at once negative where somebody asks for more than there is in the world
		}
	}
	return left >= 0
}

func (w *walk) kept(t job.Ticket) map[gpu.UUID]job.Ticket {
	out := map[gpu.UUID]job.Ticket{}
	for id := range w.q.Rooms {
		if k := w.blocker(t, id); k != nil {
			out[id] = k.ticket
		}
	}
	return out
}

// keep notes what a ticket that does not start now keeps for itself.
func (w *walk) keep(t job.Ticket) {
	k := keep{ticket: t, by: never}
	var free []int64
	for _, id := range w.devices(t) {
		if w.hopeful(t, id) {
			k.on = append(k.on, id)
			free = append(free, w.free(t, id))
		}
	}
	if len(k.on) < t.Count {
		return
	}
	slices.Sort(free)
	if k.by = free[t.Count-1]; k.by != never {
		k.spare = w.spare(k, free)
	}
	w.keeps = append(w.keeps, k)
}

// hopeful tells whether the device has room for the ticket now or may have when its leases have ended.
func (w *walk) hopeful(t job.Ticket, id gpu.UUID) bool {
	return len(w.held[id]) > 0 || w.q.Ending[id] || w.room(t, id)
}

// spare counts the devices that are free at the reservation beyond what the ticket, and those before it, need then.
func (w *walk) spare(k keep, free []int64) int {
	n := -k.ticket.Count
	for _, at := range free {
		n += ordinal(at <= k.by)
	}
	for _, before := range w.keeps {
		if slices.ContainsFunc(before.on, func(id gpu.UUID) bool { return slices.Contains(k.on, id) }) {
			n -= before.ticket.Count
		}
	}
	return n
}

// free is when the ticket can certainly have the device: now, or when leases have ended, and not before it is
// anybody's who stands before.
func (w *walk) free(t job.Ticket, id gpu.UUID) int64 {
	at := w.vacant(t, id)
	for i := range w.keeps {
		if k := &w.keeps[i]; k.by > at && slices.Contains(k.on, id) && !w.harmless(t, id, k) {
			at = k.by
		}
	}
	return at
}

// vacant is when the device has room, as far as leases tell: for a share as soon as enough of it was given back, else
// when all have ended.
func (w *walk) vacant(t job.Ticket, id gpu.UUID) int64 {
	if w.room(t, id) {
		return w.q.Boot
	}
	leases := w.held[id]
	if len(leases) == 0 {
		return never
	}
	if room := w.q.Rooms[id].Share; t.Share > 0 && room != nil {
		left := *room
		for _, l := range leases {
			if left += l.share; left >= t.Share {
				return l.at
			}
		}
	}
	return leases[len(leases)-1].at
}
