package queue

import (
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// walk goes through the tickets in order and remembers what those that wait have reserved.
type walk struct {
	q       *Question
	order   []candidate
	held    map[gpu.UUID][]end // leases that keep a device from the tickets
	reached map[string]bool    // by Ticket.Key: the tickets that do not start
	keeps   []keep
	sought  map[gpu.UUID]string // the ticket that has, or is the next to have, a reservation for one of its devices
}

// candidate is a ticket with those of its devices that exist and that its owner may have now, each once.
type candidate struct {
	job.Ticket
	devices []gpu.UUID
}

// end is what is known of the end of a lease (CLOCK_BOOTTIME, ns; never: nothing), and what share it then gives back.
type end struct {
	certain, guessed int64
	share            gpu.Bytes
}

// keep is the reservation of a waiting ticket.
type keep struct {
	ticket candidate
	Reservation
}

func (q *Question) walk() *walk {
	w := &walk{q: q, held: map[gpu.UUID][]end{}, reached: map[string]bool{}, sought: map[gpu.UUID]string{}}
	tickets, _ := q.compete()
	for _, t := range tickets {
		if c := (candidate{t, q.devices(t)}); t.Count >= 1 && len(c.devices) >= t.Count {
			w.order = append(w.order, c)
		}
	}
	for id := range q.Rooms {
		for _, l := range q.Held {
			if l.Holds(id) && !q.inside(l, id) {
				w.held[id] = append(w.held[id], q.end(l))
			}
		}
	}
	for _, t := range w.order {
		if _, ok := w.reserved(t); ok {
			w.seek(t)
		}
	}
	return w
}

// next is the first ticket that may start. What those before it have reserved is in keeps.
func (w *walk) next() (job.Ticket, bool) {
	for _, t := range w.order {
		if w.fits(t) {
			return t.Ticket, true
		}
		w.reserve(t)
	}
	return job.Ticket{}, false
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

// end is what is known of the lease's end. One that should have ended and has not has no known end.
func (q *Question) end(l job.Lease) end {
	e := end{certain: never, guessed: never, share: l.Share}
	if l.Until > q.Boot {
		e.certain = l.Until
	}
	if l.SinceBoot > 0 && l.SinceBoot <= q.Boot {
		e.guessed = min(q.Boot+(q.Boot-l.SinceBoot), e.certain)
	}
	return e
}

// devices are those of the ticket that exist and that its owner may have now, each once.
func (q *Question) devices(t job.Ticket) []gpu.UUID {
	out := make([]gpu.UUID, 0, len(t.Devices))
	may := q.may(t)
	for _, id := range t.Devices {
		if _, exists := q.Rooms[id]; exists && may(id) && !slices.Contains(out, id) {
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

// room tells whether the device could be given to the ticket now, if no other ticket waited.
func (w *walk) room(t job.Ticket, id gpu.UUID) bool {
	r := w.q.Rooms[id]
	if t.Share > 0 {
		return r.Share != nil && *r.Share >= t.Share
	}
	return r.Whole && (t.Memory <= 0 || r.Free != nil && *r.Free >= t.Memory)
}

// fits tells whether the ticket may start now.
func (w *walk) fits(t candidate) bool {
	n := 0
	for _, id := range t.devices {
		if w.room(t.Ticket, id) && w.blocker(t.Ticket, id) == nil {
			n++
		}
	}
	return n >= t.Count
}

// blocker is the reservation that keeps the device from the ticket; nil where the ticket may have it.
func (w *walk) blocker(t job.Ticket, id gpu.UUID) *keep {
	for i := range w.keeps {
		if k := &w.keeps[i]; slices.Contains(k.Devices, id) && !w.harmless(t, id, k) {
			return k
		}
	}
	return nil
}

// harmless are the two cases in which a later ticket may use a reserved device.
func (w *walk) harmless(t job.Ticket, id gpu.UUID, k *keep) bool {
	if k.Certain && t.Timeout > 0 && int64(t.Timeout) <= k.Until-w.q.Boot {
		return true
	}
	room := w.q.Rooms[id].Share
	return t.Share > 0 && k.ticket.Share > 0 && room != nil && t.Share <= *room && k.ticket.Share <= *room-t.Share
}

func (w *walk) kept(t job.Ticket) map[gpu.UUID]job.Ticket {
	out := map[gpu.UUID]job.Ticket{}
	for id := range w.q.Rooms {
		if k := w.blocker(t, id); k != nil {
			out[id] = k.ticket.Ticket
		}
	}
	return out
}
