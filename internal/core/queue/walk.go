package queue

import (
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// walk goes through the tickets in order and collects the reservations of those that wait.
type walk struct {
	q     *Input
	order []candidate
	// Leases that block a device for the tickets.
	held map[gpu.UUID][]end
	// The tickets that do not start, by Ticket.Key.
	reached map[string]bool
	keeps   []keep
	// The Key of the only ticket that may have a reservation on a device.
	contender map[gpu.UUID]string
	// All tickets are of one user, and it is known how long each takes: estimates count.
	alone bool
}

// candidate is a ticket with those of its devices that exist and that its owner may have now, each once.
type candidate struct {
	job.Ticket
	devices []gpu.UUID
}

// end is the end of a lease (CLOCK_BOOTTIME, ns; never: unknown), and the share that it then gives back.
type end struct {
	certain, guessed, planned int64
	share                     gpu.Bytes
}

// keep is the reservation of a waiting ticket.
type keep struct {
	ticket candidate
	Reservation
	// The reservation rests on estimates, and is not remembered.
	planned bool
}

func (q *Input) newWalk() *walk {
	w := &walk{q: q, held: map[gpu.UUID][]end{}, reached: map[string]bool{}, contender: map[gpu.UUID]string{}, alone: q.hasOneUser() && q.hasAllEstimates()}
	tickets, _ := q.splitCompeting()
	for _, t := range tickets {
		if c := (candidate{t, q.devicesFor(t)}); t.Count >= 1 && len(c.devices) >= t.Count {
			w.order = append(w.order, c)
		}
	}

	for id := range q.Rooms {
		for _, l := range q.Held {
			if l.Holds(id) && !q.ignoresLease(l, id) {
				w.held[id] = append(w.held[id], q.estimateEnd(l))
			}
		}
	}

	for _, t := range w.order {
		if _, ok := w.currentReservation(t); ok {
			w.claimDevices(t)
		}
	}

	return w
}

// firstStartable is the first ticket that may start. w.keeps has the reservations of the tickets ahead of it.
func (w *walk) firstStartable() (job.Ticket, bool) {
	for _, t := range w.order {
		if w.canStart(t) {
			return t.Ticket, true
		}
		w.reserveForTicket(t)
	}
	return job.Ticket{}, false
}

// ignoresLease reports leases that do not block the device for the scope's tickets: the lease that they wait in and its
// parents, those outside the allocation of another scheduler, and sub-leases of a lease that counts, because they end
// with it. A parent counts only if it is of the same user and has the device too.
func (q *Input) ignoresLease(l job.Lease, id gpu.UUID) bool {
	scope := q.scopeTicket()
	if scope.Allocation != "" && l.Allocation != scope.Allocation {
		return true
	}

	around := q.leaseAncestors(scope.Parent)
	if slices.Contains(around, l.ID) {
		return true
	}

	return l.Parent != "" && !slices.Contains(around, l.Parent) && slices.ContainsFunc(q.Held, func(p job.Lease) bool {
		return p.ID == l.Parent && p.UID == l.UID && p.Holds(id) && p.Parent != l.ID && p.ID != l.ID
	})
}

// scopeTicket is any of the tickets: all have the same Parent and Allocation.
func (q *Input) scopeTicket() job.Ticket {
	if len(q.Tickets) == 0 {
		return job.Ticket{}
	}
	return q.Tickets[0]
}

// leaseAncestors lists the lease and its parents.
func (q *Input) leaseAncestors(id string) []string {
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

// estimateEnd estimates the end of a lease. It is unknown for a lease that is past its end. What a user says of a lease
// counts for plans of that user; where nothing is said, or it has passed, the enforced end counts.
func (q *Input) estimateEnd(l job.Lease) end {
	e := end{certain: unknownEnd, guessed: unknownEnd, share: l.Share}
	if at := l.FreesAt(); at > q.Boot {
		e.certain = at
	}

	if l.SinceBoot > 0 && l.SinceBoot <= q.Boot {
		e.guessed = min(q.Boot+(q.Boot-l.SinceBoot), e.certain)
	}

	switch said := l.SinceBoot + int64(l.Time); {
	case l.Time > 0 && l.UID == q.scopeTicket().UID && said > q.Boot:
		e.planned = min(said, e.certain)
	case e.certain < unknownEnd:
		e.planned = e.certain
	default:
		e.planned = unknownEnd
	}

	return e
}

// devicesFor lists those of the ticket that exist and that its owner may have now, each once.
func (q *Input) devicesFor(t job.Ticket) []gpu.UUID {
	out := make([]gpu.UUID, 0, len(t.Devices))
	may := q.deviceFilter(t)
	for _, id := range t.Devices {
		if _, exists := q.Rooms[id]; exists && may(id) && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}

	return out
}

// HasReachedMax reports whether the owner has so many devices that the ticket can get none, even free ones
// (Ticket.Max).
func (q *Input) HasReachedMax(t job.Ticket) bool {
	return !slices.ContainsFunc(t.Devices, q.deviceFilter(t))
}

// deviceFilter reports which devices the ticket's owner may get now. It must agree with pick.Place, which applies the
// same limit.
func (q *Input) deviceFilter(t job.Ticket) func(gpu.UUID) bool {
	if t.Max <= 0 {
		return func(gpu.UUID) bool { return true }
	}
	own := job.OwnedDevices(q.Held, t.UID, "")
	if len(own)+t.Count <= t.Max {
		return func(gpu.UUID) bool { return true }
	}

	return func(id gpu.UUID) bool { return t.Share > 0 && len(own) <= t.Max && own[job.DeviceHash(id)] }
}

// hasRoom reports whether the device could be given to the ticket now, if no other ticket waited.
func (w *walk) hasRoom(t job.Ticket, id gpu.UUID) bool {
	r := w.q.Rooms[id]
	if t.Share > 0 {
		return r.Share != nil && *r.Share >= t.Share
	}
	return r.Whole && (t.Memory <= 0 || r.Free != nil && *r.Free >= t.Memory)
}

func (w *walk) canStart(t candidate) bool {
	n := 0
	for _, id := range t.devices {
		if w.hasRoom(t.Ticket, id) && w.blockingReservation(t.Ticket, id) == nil {
			n++
		}
	}
	return n >= t.Count
}

// blockingReservation is the reservation that keeps the device from the ticket; nil where the ticket may have it.
func (w *walk) blockingReservation(t job.Ticket, id gpu.UUID) *keep {
	for i := range w.keeps {
		if k := &w.keeps[i]; slices.Contains(k.Devices, id) && !w.mayUseReserved(t, id, k) {
			return k
		}
	}
	return nil
}

// mayUseReserved reports the cases in which a later ticket may use a reserved device.
func (w *walk) mayUseReserved(t job.Ticket, id gpu.UUID, k *keep) bool {
	if k.Certain && t.Timeout > 0 && int64(t.Timeout) <= k.Until-w.q.Boot {
		return true
	}
	if k.planned && t.Time > 0 && int64(t.Time) <= k.Until-w.q.Boot {
		return true
	}
	room := w.q.Rooms[id].Share

	return t.Share > 0 && k.ticket.Share > 0 && room != nil && t.Share <= *room && k.ticket.Share <= *room-t.Share
}

func (w *walk) devicesKeptFrom(t job.Ticket) map[gpu.UUID]job.Ticket {
	out := map[gpu.UUID]job.Ticket{}
	for id := range w.q.Rooms {
		if k := w.blockingReservation(t, id); k != nil {
			out[id] = k.ticket.Ticket
		}
	}
	return out
}
