package queue

import (
	"maps"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// Overdue is how long a ticket may be next, with what it wants free, before it is passed over: its owner is stopped.
const Overdue = 2 * time.Second

// Turn remembers, from one look at the queue to the next, whose turn it is and who let it pass. It is a hint: everybody may
// write it, so nothing but waiting time may depend on it. The zero value is good. Methods change copies only.
type Turn struct {
	Next   map[string]int64 `json:"next,omitempty"`   // by Ticket.Key: CLOCK_BOOTTIME (ns) since when it is next, one per scope
	Passed map[string]int64 `json:"passed,omitempty"` // by Ticket.Key: CLOCK_BOOTTIME (ns) at which it was passed over
	Unsure map[string]int64 `json:"unsure,omitempty"` // by Ticket.Key: CLOCK_BOOTTIME (ns) at which a device was seen that it does not know

	Reserved map[string]Reservation `json:"reserved,omitempty"` // by Ticket.Key
	Rest     map[gpu.UUID]int64     `json:"rest,omitempty"`     // CLOCK_BOOTTIME (ns) before which none begins on the device
}

// See decides whose turn it is. me is the Key of the ticket whose owner asks, "" for none: it is not passed over any more.
// A ticket that has been next for overdue is passed over, with all others of its user except me, and the one after it
// is next. The answer is that of Next with q.Passed as the new Turn has it; turn.Next tells since when it
// is next. alive are all tickets, of any scope: others are forgotten.
func (t Turn) See(q Question, me string, alive []job.Ticket, overdue time.Duration) (turn Turn, next job.Ticket, ok bool) {
	turn = t.clone(q, alive)
	delete(turn.Passed, me)
	for {
		asked := turn.Put(q)
		w := asked.walk()
		next, ok = w.next()
		key := next.Key()
		since, seen := turn.Next[key]
		for _, other := range q.Tickets {
			delete(turn.Next, other.Key())
		}
		if _, passed := turn.Passed[key]; !ok || passed {
			turn.reserve(w, key)
			return turn, next, ok
		}
		if !seen || key == me {
			since = q.Boot
		}
		if q.Boot-since < int64(overdue) || key == me {
			turn.Next[key] = since
			turn.reserve(w, key)
			return turn, next, ok
		}
		turn = turn.pass(q, next, me)
	}
}

// reserve remembers the reservations that begin or continue, with the pauses that follow if they end now, and drops those
// that have ended. next is the Key of the ticket that may start: its reservation lasts until it does.
func (t Turn) reserve(w *walk, next string) {
	for _, other := range w.order {
		if key := other.Key(); w.reached[key] || w.q.Passed[key] {
			delete(t.Reserved, key)
		}
	}
	for _, k := range w.keeps {
		t.Reserved[k.ticket.Key()] = k.Reservation
	}
	for _, c := range w.order {
		key := c.Key()
		if r, ok := t.Reserved[key]; ok && (key == next || w.reached[key]) {
			r.Seen = w.q.Boot
			t.Reserved[key] = r
			t.pause(c.devices, r, r.Seen, w.q.Boot)
		}
	}
}

// pass passes the ticket over, with all others of its user except me.
func (t Turn) pass(q Question, next job.Ticket, me string) Turn {
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

// Put is the question with what the Turn knows of passed tickets and reservations.
func (t Turn) Put(q Question) Question {
	q.Passed = map[string]bool{}
	for key := range t.Passed {
		q.Passed[key] = true
	}
	q.Reserved, q.Rest = t.Reserved, t.Rest
	return q
}

// clone keeps what is known of living tickets, and the pauses that are not over, those after reservations that have lapsed included.
func (t Turn) clone(q Question, alive []job.Ticket) Turn {
	out := Turn{Next: map[string]int64{}, Passed: map[string]int64{}, Unsure: map[string]int64{},
		Reserved: map[string]Reservation{}, Rest: map[gpu.UUID]int64{}}
	for id, until := range t.Rest {
		out.rest(id, until, q.Boot)
	}
	for _, a := range alive {
		key := a.Key()
		if at, ok := t.Next[key]; ok && past(at, q.Boot) {
			out.Next[key] = at
		}
		if at, ok := t.Passed[key]; ok && past(at, q.Boot) {
			out.Passed[key] = at
		}
		if at, ok := t.Unsure[key]; ok && past(at, q.Boot) {
			out.Unsure[key] = at
		}
		switch r, ok := t.Reserved[key]; {
		case !ok || !r.plausible(q, a):
		case r.Until >= q.Boot:
			out.Reserved[key] = r
		default:
			out.pause(a.Devices, r, r.Until, q.Boot)
		}
	}
	return out
}

// past reports whether the time is one of this boot until now. All users can write the record, and no queue writes another time.
func past(at, now int64) bool { return at >= 0 && at <= now }

// adjusted is by how much the wall clock may have been changed since a reservation began.
const adjusted = time.Minute

// plausible reports whether the rule can have made the reservation: all users can write the record. So an invented one keeps
// devices no longer than one that the ticket could have had.
func (r Reservation) plausible(q Question, t job.Ticket) bool {
	if !(r.Price >= 1 && r.Price < tenth) || !past(r.Since, r.Seen) || !past(r.Seen, q.Boot) || r.Until < r.Since {
		return false
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(r.Devices))); len(r.Devices) != t.Count || len(distinct) != t.Count {
		return false
	}
	age := (q.Now - t.Arrival) - (q.Boot - r.Since) + int64(adjusted)
	return float64(r.Until-r.Since)*r.Price <= float64(age)
}

// pause lets no reservation begin on the devices for as long as r has lasted at end, times its price.
func (t Turn) pause(devices []gpu.UUID, r Reservation, end, now int64) {
	for _, id := range devices {
		t.rest(id, end+int64(float64(end-r.Since)*r.Price), now)
	}
}

// longestRest is the longest pause that is believed, a week: all users can write the record. A pause is no longer than the age that
// the ticket had when its reservation began. So only after a ticket that has waited for more than a week it is cut short.
const longestRest = 14 * Patience

// rest lets no reservation begin on the device before until.
func (t Turn) rest(id gpu.UUID, until, now int64) {
	if until = min(until, now+int64(longestRest)); until > max(now, t.Rest[id]) {
		t.Rest[id] = until
	}
}
