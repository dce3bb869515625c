package queue

import (
	"cmp"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// Reservation keeps devices for a ticket that needs several of them free at the same time.
type Reservation struct {
	// The devices, as many as the ticket needs.
	Devices []gpu.UUID `json:"devices"`
	// CLOCK_BOOTTIME at its beginning.
	Since int64 `json:"since_ns"`
	// CLOCK_BOOTTIME when it was last seen in force.
	Seen int64 `json:"seen_ns"`
	// CLOCK_BOOTTIME after which it has lapsed.
	Until int64 `json:"until_ns"`
	// Length of the pause after it, relative to its own length.
	Price float64 `json:"price"`
	// Enforced ends promise that all devices are free at Until.
	Certain bool `json:"certain,omitempty"`
}

// idleDivisor limits the devices' time that reservations may keep idle to one part in ten.
const idleDivisor = 10

// reserveForTicket records the reservation of a ticket that does not start now, or begins one.
func (w *walk) reserveForTicket(t candidate) {
	w.reached[t.Key()] = true
	if w.alone && (len(w.keeps) > 0 && w.keeps[0].planned || len(w.reached) == 1 && w.planBackfill(t)) {
		return
	}

	r, ok := w.currentReservation(t)
	if !ok {
		r, ok = w.newReservation(t)
		if !ok || !w.claimDevices(t) || w.hasPausedDevice(t) || !w.isContested(t, r.Devices) {
			return
		}
	}

	w.keeps = append(w.keeps, keep{ticket: t, Reservation: r})
}

// planBackfill keeps devices for the first ticket that waits, where all tickets are of one user: those that are
// expected to be free first, and of these the ones that are free last, because that idles least (EASY backfilling:
// Lifka, The ANL/IBM SP scheduling system, JSSPP 1995). It costs no other user anything, so it has no price, and nobody
// has to remember it. It is false where it is not known when they are free: a guess must not keep devices for long.
func (w *walk) planBackfill(t candidate) bool {
	free := w.vacancies(t, func(e end) int64 { return e.planned })
	if w.q.Passed[t.Key()] || len(free) < t.Count || free[t.Count-1].at == unknownEnd {
		return false
	}

	until := free[t.Count-1].at
	w.keeps = append(w.keeps, keep{t, Reservation{Devices: latestInTime(free, t.Count, until), Until: until, Certain: true}, true})

	return true
}

// latestInTime are those of the devices that are free in time, as many as are needed, the last ones.
func latestInTime(free []vacancy, count int, until int64) []gpu.UUID {
	inTime := 0
	for inTime < len(free) && free[inTime].at <= until {
		inTime++
	}
	return vacancyIDs(free[inTime-count : inTime])
}

// currentReservation is the ticket's existing reservation; false where it has none or its set cannot become complete
// any more.
func (w *walk) currentReservation(t candidate) (Reservation, bool) {
	r, ok := w.q.Reserved[t.Key()]
	if !ok || r.Since > w.q.Boot || r.Until < w.q.Boot || w.q.Passed[t.Key()] || len(r.Devices) != t.Count {
		return r, false
	}
	return r, !slices.ContainsFunc(r.Devices, func(id gpu.UUID) bool { return !slices.Contains(t.devices, id) || !w.mayServe(t, id) })
}

// claimDevices makes the ticket the only one that may have a reservation on any of its devices; false where another one
// is that already.
func (w *walk) claimDevices(t candidate) bool {
	if slices.ContainsFunc(t.devices, func(id gpu.UUID) bool { by, taken := w.contender[id]; return taken && by != t.Key() }) {
		return false
	}
	for _, id := range t.devices {
		w.contender[id] = t.Key()
	}
	return true
}

// hasPausedDevice reports whether one of the ticket's devices was reserved too recently.
func (w *walk) hasPausedDevice(t candidate) bool {
	return slices.ContainsFunc(t.devices, func(id gpu.UUID) bool { return w.q.Rest[id] > w.q.Boot })
}

// mayServe reports whether the device has room for the ticket now, or may have when its leases have ended and what has
// ended has left it.
func (w *walk) mayServe(t candidate, id gpu.UUID) bool {
	r := w.q.Rooms[id]
	switch {
	case w.hasRoom(t.Ticket, id):
		return true
	case r.Blocked && t.Share == 0:
		return false
	}
	return len(w.held[id]) > 0 || r.Fading != nil
}

// isContested reports whether another ticket could use one of the devices now. Otherwise a reservation has no effect
// yet.
func (w *walk) isContested(t candidate, set []gpu.UUID) bool {
	return len(w.q.Tickets) > 1 && slices.ContainsFunc(set, func(id gpu.UUID) bool { return w.hasRoom(t.Ticket, id) || w.carriesShares(id) })
}

// carriesShares reports whether the device carries shares, and so can carry more.
func (w *walk) carriesShares(id gpu.UUID) bool {
	return slices.ContainsFunc(w.held[id], func(e end) bool { return e.share > 0 })
}

// idleCost is how many devices the ticket may keep idle while it waits for its set. With shares involved every device
// of the set counts, because other shares could use each of them all the time.
func (w *walk) idleCost(t candidate) int {
	if t.Share > 0 || slices.ContainsFunc(t.devices, w.carriesShares) {
		return t.Count
	}
	return t.Count - 1
}

// vacancy is the time at which a device has room for a ticket.
type vacancy struct {
	id gpu.UUID
	at int64 // CLOCK_BOOTTIME, ns
}

// newReservation is the reservation that the ticket can have from now on, false where none is worth having.
func (w *walk) newReservation(t candidate) (Reservation, bool) {
	cost := w.idleCost(t)
	if cost == 0 || w.q.Passed[t.Key()] {
		return Reservation{}, false
	}

	now, price := w.q.Boot, max(1, float64(idleDivisor*cost)/float64(len(t.devices))-1)
	longest := int64(float64(max(0, w.q.Now-t.Arrival)) / price)
	r := Reservation{Since: now, Seen: now, Price: price, Certain: true}
	free := w.vacancies(t, func(e end) int64 { return e.certain })
	if len(free) < t.Count {
		return r, false
	}

	r.Until = free[t.Count-1].at
	if r.Until-now <= longest {
		r.Devices = latestInTime(free, t.Count, r.Until)
		return r, true
	}

	free = w.vacancies(t, func(e end) int64 { return e.guessed })
	r.Until, r.Certain, r.Devices = now+longest, false, vacancyIDs(free[:t.Count])

	return r, free[t.Count-1].at <= r.Until
}

// vacancies lists the devices that may serve the ticket with the time at which each has room for it, as far as the
// leases say; the first comes first.
func (w *walk) vacancies(t candidate, at func(end) int64) []vacancy {
	var out []vacancy
	for _, id := range t.devices {
		if w.mayServe(t, id) {
			out = append(out, vacancy{id, w.vacancyTime(t, id, at)})
		}
	}
	slices.SortFunc(out, func(a, b vacancy) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(string(a.id), string(b.id)))
	})

	return out
}

// vacancyTime is when the device has room: for a share as soon as enough shares have ended, else when all leases have
// ended.
func (w *walk) vacancyTime(t candidate, id gpu.UUID, at func(end) int64) int64 {
	leases := w.held[id]
	switch {
	case w.hasRoom(t.Ticket, id):
		return w.q.Boot
	case len(leases) == 0:
		return at(w.fadingEnd(id))
	}

	slices.SortFunc(leases, func(a, b end) int { return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(b.share, a.share)) })
	if room := w.q.Rooms[id].Share; t.Share > 0 && room != nil {
		left := *room
		for _, l := range leases {
			left += l.share
			if left >= t.Share {
				return at(l)
			}
		}
	}

	return at(leases[len(leases)-1])
}

// fadingEnd is when what has ended leaves the device: at the latest when it counts as busy, and as a guess it takes as
// long again as it has taken. It is never now, or a reservation would cost nothing and so never end.
func (w *walk) fadingEnd(id gpu.UUID) end {
	f := w.q.Rooms[id].Fading
	if f == nil {
		return end{certain: unknownEnd, guessed: unknownEnd, planned: unknownEnd}
	}
	until := max(f.Until, w.q.Boot+1)

	return end{certain: until, guessed: min(until, w.q.Boot+max(1, w.q.Boot-f.Since)), planned: until}
}

func vacancyIDs(list []vacancy) []gpu.UUID {
	out := make([]gpu.UUID, len(list))
	for i, v := range list {
		out[i] = v.id
	}
	return out
}
