package queue

import (
	"maps"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// PassOverAfter is how long a ticket may be next, with its devices free, before it is passed over: its owner must be
// stopped.
const PassOverAfter = 2 * time.Second

// Turn remembers between two reads of the queue which ticket is next and which were passed over. It is a hint: all
// users can write it, so nothing but waiting time may depend on it. The zero value is valid. Methods change copies
// only.
type Turn struct {
	// When each ticket became the next, by Ticket.Key: CLOCK_BOOTTIME (ns); one per scope.
	Next map[string]int64 `json:"next,omitempty"`
	// When each ticket was passed over, by Ticket.Key: CLOCK_BOOTTIME (ns).
	Passed map[string]int64 `json:"passed,omitempty"`
	// When a device not in Ticket.Known was seen, by Ticket.Key: CLOCK_BOOTTIME (ns).
	Unsure map[string]int64 `json:"unsure,omitempty"`

	Reserved map[string]Reservation `json:"reserved,omitempty"` // by Ticket.Key
	// CLOCK_BOOTTIME (ns) before which none begins on the device.
	Rest map[gpu.UUID]int64 `json:"rest,omitempty"`
}

// DecideNext decides which ticket may start. me is the Key of the caller's ticket, "" for none; it is no longer passed
// over. A ticket that has been next for overdue is passed over, with all others of its user except me, and the one
// after it is next. The answer is that of Next with q.Passed as in the new Turn; turn.Next says since when the ticket
// is next. alive are all tickets, of any scope: others are forgotten.
func (t Turn) DecideNext(q Input, me string, alive []job.Ticket, overdue time.Duration) (turn Turn, next job.Ticket, ok bool) {
	turn = t.copyForLiving(q, alive)
	delete(turn.Passed, me)

	for {
		asked := turn.ApplyTo(q)
		w := asked.newWalk()
		next, ok = w.firstStartable()
		key := next.Key()
		since, seen := turn.Next[key]

		for _, other := range q.Tickets {
			delete(turn.Next, other.Key())
		}

		if _, passed := turn.Passed[key]; !ok || passed {
			turn.recordReservations(w, key)
			return turn, next, ok
		}

		if !seen || key == me {
			since = q.Boot
		}

		if q.Boot-since < int64(overdue) || key == me {
			turn.Next[key] = since
			turn.recordReservations(w, key)
			return turn, next, ok
		}

		turn = turn.passOver(q, next, me)
	}
}

// recordReservations records the reservations that begin or continue, with the pauses that follow if they end now, and
// drops those that have ended. next is the Key of the ticket that may start: its reservation lasts until it does.
func (t Turn) recordReservations(w *walk, next string) {
	for _, other := range w.order {
		if key := other.Key(); w.reached[key] || w.q.Passed[key] {
			delete(t.Reserved, key)
		}
	}
	for _, k := range w.keeps {
		if !k.planned {
			t.Reserved[k.ticket.Key()] = k.Reservation
		}
	}
	for _, c := range w.order {
		key := c.Key()
		if r, ok := t.Reserved[key]; ok && (key == next || w.reached[key]) {
			r.Seen = w.q.Boot
			t.Reserved[key] = r
			t.pauseAfter(c.devices, r, r.Seen, w.q.Boot)
		}
	}
}

// passOver passes the ticket over, with all others of its user except me.
func (t Turn) passOver(q Input, next job.Ticket, me string) Turn {
	turn := t
	turn.Next, turn.Passed = maps.Clone(t.Next), maps.Clone(t.Passed)
	if turn.Passed == nil {
		turn.Passed = map[string]int64{}
	}

	for _, other := range q.Tickets {
		if key := other.Key(); other.UID == next.UID && key != me || key == next.Key() {
			turn.Passed[key] = q.Boot
			delete(turn.Next, key)
		}
	}

	return turn
}

// ApplyTo returns the question with the passed tickets and reservations of the Turn.
func (t Turn) ApplyTo(q Input) Input {
	q.Passed = map[string]bool{}
	for key := range t.Passed {
		q.Passed[key] = true
	}
	q.Reserved, q.Rest = t.Reserved, t.Rest

	return q
}

// ReservationOf is the reservation that a ticket of the question has now, as the Turn remembers it; false where it has none.
func (t Turn) ReservationOf(q Input, ticket job.Ticket) (Reservation, bool) {
	r, found := t.Reserved[ticket.Key()]
	_, passed := t.Passed[ticket.Key()]
	return r, found && !passed && r.Until >= q.Boot && r.isPlausible(q, ticket)
}

// copyForLiving drops what belongs to tickets that are gone and pauses that are over. It adds the pauses after
// reservations that have lapsed.
func (t Turn) copyForLiving(q Input, alive []job.Ticket) Turn {
	out := Turn{Next: map[string]int64{}, Passed: map[string]int64{}, Unsure: map[string]int64{},
		Reserved: map[string]Reservation{}, Rest: map[gpu.UUID]int64{}}
	for id, until := range t.Rest {
		out.pauseUntil(id, until, q.Boot)
	}
	for _, a := range alive {
		key := a.Key()
		if at, ok := t.Next[key]; ok && isValidTime(at, q.Boot) {
			out.Next[key] = at
		}

		if at, ok := t.Passed[key]; ok && isValidTime(at, q.Boot) {
			out.Passed[key] = at
		}

		if at, ok := t.Unsure[key]; ok && isValidTime(at, q.Boot) {
			out.Unsure[key] = at
		}

		switch r, ok := t.Reserved[key]; {
		case !ok || !r.isPlausible(q, a):
		case r.Until >= q.Boot:
			out.Reserved[key] = r
		default:
			out.pauseAfter(a.Devices, r, r.Until, q.Boot)
		}
	}

	return out
}

// isValidTime reports whether a time is of this boot and not in the future. All users can write the record, and the
// queue writes no other times.
func isValidTime(at, now int64) bool { return at >= 0 && at <= now }

// clockSlack is by how much the wall clock may have been changed since a reservation began.
const clockSlack = time.Minute

// isPlausible reports whether the rules can have made the reservation. All users can write the record, and a forged
// reservation must keep devices no longer than a real one could.
func (r Reservation) isPlausible(q Input, t job.Ticket) bool {
	if !(r.Price >= 1 && r.Price < idleDivisor) || !isValidTime(r.Since, r.Seen) || !isValidTime(r.Seen, q.Boot) || r.Until < r.Since {
		return false
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(r.Devices))); len(r.Devices) != t.Count || len(distinct) != t.Count {
		return false
	}
	age := (q.Now - t.Arrival) - (q.Boot - r.Since) + int64(clockSlack)

	return float64(r.Until-r.Since)*r.Price <= float64(age)
}

// pauseAfter forbids reservations on the devices, from end, for r's length until end times its price.
func (t Turn) pauseAfter(devices []gpu.UUID, r Reservation, end, now int64) {
	for _, id := range devices {
		t.pauseUntil(id, end+int64(float64(end-r.Since)*r.Price), now)
	}
}

// maxPause is the longest pause that is accepted, a week: all users can write the record. A real pause is no longer
// than the ticket's age when its reservation began, so this cuts short only those of tickets older than a week.
const maxPause = 14 * Patience

// pauseUntil forbids reservations on the device until a time.
func (t Turn) pauseUntil(id gpu.UUID, until, now int64) {
	until = min(until, now+int64(maxPause))
	if until > max(now, t.Rest[id]) {
		t.Rest[id] = until
	}
}
