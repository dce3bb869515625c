package queue

import (
	"cmp"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// Reservation keeps devices for a ticket that waits for several of them to be free at the same time.
type Reservation struct {
	Devices []gpu.UUID `json:"devices"`           // as many as the ticket needs
	Since   int64      `json:"since_ns"`          // CLOCK_BOOTTIME at its beginning
	Seen    int64      `json:"seen_ns"`           // CLOCK_BOOTTIME when it last was in force for certain
	Until   int64      `json:"until_ns"`          // CLOCK_BOOTTIME after which it has lapsed
	Price   float64    `json:"price"`             // for how long none may begin for each moment that it lasts
	Certain bool       `json:"certain,omitempty"` // enforced ends promise that all devices are free at Until
}

// tenth is the part of the devices' time that reservations may keep idle: one in ten.
const tenth = 10

// reserve notes what a ticket that does not start now has reserved, or reserves from now on.
func (w *walk) reserve(t candidate) {
	w.reached[t.Key()] = true
	r, ok := w.reserved(t)
	if !ok {
		if r, ok = w.worth(t); !ok || !w.seek(t) || w.resting(t) || !w.idle(t, r.Devices) {
			return
		}
	}
	w.keeps = append(w.keeps, keep{t, r})
}

// reserved is the reservation that the ticket has already, as long as its set can still become complete.
func (w *walk) reserved(t candidate) (Reservation, bool) {
	r, ok := w.q.Reserved[t.Key()]
	if !ok || r.Since > w.q.Boot || r.Until < w.q.Boot || w.q.Passed[t.Key()] || len(r.Devices) != t.Count {
		return r, false
	}
	return r, !slices.ContainsFunc(r.Devices, func(id gpu.UUID) bool { return !slices.Contains(t.devices, id) || !w.hopeful(t, id) })
}

// seek lets the ticket be the only one with a reservation on any of its devices; false where another one is that already.
func (w *walk) seek(t candidate) bool {
	if slices.ContainsFunc(t.devices, func(id gpu.UUID) bool { by, sought := w.sought[id]; return sought && by != t.Key() }) {
		return false
	}
	for _, id := range t.devices {
		w.sought[id] = t.Key()
	}
	return true
}

// resting tells whether one of the ticket's devices was reserved too recently.
func (w *walk) resting(t candidate) bool {
	return slices.ContainsFunc(t.devices, func(id gpu.UUID) bool { return w.q.Rest[id] > w.q.Boot })
}

// hopeful tells whether the device has room for the ticket now or may have when its leases have ended.
func (w *walk) hopeful(t candidate, id gpu.UUID) bool {
	return len(w.held[id]) > 0 || w.q.Ending[id] || w.room(t.Ticket, id)
}

// idle tells whether another ticket could use one of the devices now. Until then there is nothing to keep.
func (w *walk) idle(t candidate, set []gpu.UUID) bool {
	return len(w.q.Tickets) > 1 && slices.ContainsFunc(set, func(id gpu.UUID) bool { return w.room(t.Ticket, id) || w.shared(id) })
}

// shared tells whether the device carries shares, and so can carry more.
func (w *walk) shared(id gpu.UUID) bool {
	return slices.ContainsFunc(w.held[id], func(e end) bool { return e.share > 0 })
}

// cost is how many devices the ticket may keep from others while it waits for its set; those that carry shares cost all the time.
func (w *walk) cost(t candidate) int {
	if t.Share > 0 || slices.ContainsFunc(t.devices, w.shared) {
		return t.Count
	}
	return t.Count - 1
}

// vacancy is when a device has room for a ticket.
type vacancy struct {
	id gpu.UUID
	at int64 // CLOCK_BOOTTIME, ns
}

// worth is the reservation that the ticket can have from now on, if one is worth having.
func (w *walk) worth(t candidate) (Reservation, bool) {
	cost := w.cost(t)
	if cost == 0 || w.q.Passed[t.Key()] {
		return Reservation{}, false
	}
	now, price := w.q.Boot, max(1, float64(tenth*cost)/float64(len(t.devices))-1)
	longest := int64(float64(max(0, w.q.Now-t.Arrival)) / price)
	r := Reservation{Since: now, Seen: now, Price: price, Certain: true}
	free := w.vacancies(t, func(e end) int64 { return e.certain })
	if len(free) < t.Count {
		return r, false
	}
	if r.Until = free[t.Count-1].at; r.Until-now <= longest {
		inTime := 0
		for inTime < len(free) && free[inTime].at <= r.Until {
			inTime++
		}
		r.Devices = ids(free[inTime-t.Count : inTime])
		return r, true
	}
	free = w.vacancies(t, func(e end) int64 { return e.guessed })
	r.Until, r.Certain, r.Devices = now+longest, false, ids(free[:t.Count])
	return r, free[t.Count-1].at <= r.Until
}

// vacancies are the devices that the ticket may hope for and when each has room for it, as far as leases tell; first comes first.
func (w *walk) vacancies(t candidate, at func(end) int64) []vacancy {
	var out []vacancy
	for _, id := range t.devices {
		if w.hopeful(t, id) {
			out = append(out, vacancy{id, w.vacant(t, id, at)})
		}
	}
	slices.SortFunc(out, func(a, b vacancy) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(string(a.id), string(b.id)))
	})
	return out
}

// vacant is when the device has room: for a share as soon as enough of it was given back, else when all leases have ended.
func (w *walk) vacant(t candidate, id gpu.UUID, at func(end) int64) int64 {
	leases := w.held[id]
	if w.room(t.Ticket, id) || len(leases) == 0 { // without a lease it is hopeful because it is about to be left
		return w.q.Boot
	}
	slices.SortFunc(leases, func(a, b end) int { return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(b.share, a.share)) })
	if room := w.q.Rooms[id].Share; t.Share > 0 && room != nil {
		left := *room
		for _, l := range leases {
			if left += l.share; left >= t.Share {
				return at(l)
			}
		}
	}
	return at(leases[len(leases)-1])
}

func ids(list []vacancy) []gpu.UUID {
	out := make([]gpu.UUID, len(list))
	for i, v := range list {
		out[i] = v.id
	}
	return out
}
