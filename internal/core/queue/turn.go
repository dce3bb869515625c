package queue

import (
	"maps"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// Overdue is how long a ticket may be next, with what it wants free, before it is passed over: its owner is stopped.
const Overdue = 2 * time.Second

// Turn remembers, from one look at the queue to the next, whose turn it is and who let it pass. It is a hint: everybody may
// write it, so nothing but waiting time may depend on it. The zero value is good. Methods change copies only.
type Turn struct {
	Next   map[string]int64 `json:"next,omitempty"`   // ticket ID: CLOCK_BOOTTIME (ns) since when it is next, one per scope
	Passed map[string]int64 `json:"passed,omitempty"` // ticket ID: CLOCK_BOOTTIME (ns) at which it was passed over
	Unsure map[string]int64 `json:"unsure,omitempty"` // ticket ID: CLOCK_BOOTTIME (ns) at which a device was seen that it does not know

	Reserved map[string]Reservation `json:"reserved,omitempty"` // by ticket ID
	Rest     map[gpu.UUID]int64     `json:"rest,omitempty"`     // CLOCK_BOOTTIME (ns) before which none begins on the device
}

// See looks at the queue for the ticket id, whose owner acts now ("" when nobody waits): it is not passed over any more.
// A ticket that has been next for overdue is passed over, with all others of its user except id, and whoever
// comes then is next. The answer is that of Next with q.Passed as the new Turn has it; turn.Next[next.ID] tells since when it
// is next. alive are all tickets, of any scope: others are forgotten.
func (t Turn) See(q Question, id string, alive []job.Ticket, overdue time.Duration) (turn Turn, next job.Ticket, ok bool) {
	turn = t.clone(alive, q.Boot)
	delete(turn.Passed, id)
	for {
		asked := turn.Put(q)
		w := asked.walk()
		next, ok = w.next()
		since, seen := turn.Next[next.ID]
		for _, other := range q.Tickets {
			delete(turn.Next, other.ID)
		}
		if _, passed := turn.Passed[next.ID]; !ok || passed {
			turn.reserve(w, next)
			return turn, next, ok
		}
		if !seen || since > q.Boot || next.ID == id {
			since = q.Boot
		}
		if q.Boot-since < int64(overdue) || next.ID == id {
			turn.Next[next.ID] = since
			turn.reserve(w, next)
			return turn, next, ok
		}
		turn = turn.pass(q, next, id)
	}
}

// reserve remembers the reservations that begin or go on, and drops those that have ended.
func (t Turn) reserve(w *walk, next job.Ticket) {
	for _, other := range w.order {
		if w.reached[other.ID] || w.q.Passed[other.ID] {
			delete(t.Reserved, other.ID)
		}
	}
	for _, k := range w.keeps {
		t.Reserved[k.ticket.ID] = k.Reservation
	}
	for id, r := range t.Reserved {
		if id == next.ID || w.reached[id] {
			r.Seen = w.q.Boot
			t.Reserved[id] = r
		}
	}
}

// pass passes the ticket over, with all others of its user except id.
func (t Turn) pass(q Question, next job.Ticket, id string) Turn {
	turn := t
	turn.Next, turn.Passed = maps.Clone(t.Next), maps.Clone(t.Passed)
	if turn.Passed == nil {
		turn.Passed = map[string]int64{}
	}
	for _, other := range q.Tickets {
		if other.UID == next.UID && other.ID != id || other.ID == next.ID {
			turn.Passed[other.ID] = q.Boot
			delete(turn.Next, other.ID)
		}
	}
	return turn
}

// Put is the question with what the Turn knows of passed tickets and reservations.
func (t Turn) Put(q Question) Question {
	q.Passed = map[string]bool{}
	for id := range t.Passed {
		q.Passed[id] = true
	}
	q.Reserved, q.Rest = t.Reserved, t.Rest
	return q
}

// absurd is a pause that no reservation causes: the record is wrong.
const absurd = 90 * 24 * time.Hour

// clone keeps what is said of living tickets, and the pauses that are not over, those after reservations that end now included.
func (t Turn) clone(alive []job.Ticket, now int64) Turn {
	out := Turn{Next: map[string]int64{}, Passed: map[string]int64{}, Unsure: map[string]int64{},
		Reserved: map[string]Reservation{}, Rest: map[gpu.UUID]int64{}}
	waits := map[string]bool{}
	for _, a := range alive {
		waits[a.ID] = true
		if at, ok := t.Next[a.ID]; ok {
			out.Next[a.ID] = at
		}
		if at, ok := t.Passed[a.ID]; ok {
			out.Passed[a.ID] = at
		}
		if at, ok := t.Unsure[a.ID]; ok {
			out.Unsure[a.ID] = at
		}
	}
	for id, until := range t.Rest {
		out.rest(id, until, now)
	}
	for id, r := range t.Reserved {
		ended := r.Seen
		if waits[id] {
			ended = min(now, r.Until)
		}
		if waits[id] && r.Until >= now {
			out.Reserved[id] = r
		}
		if pause := float64(ended-r.Since) * r.Price; pause < float64(absurd) {
			for _, device := range r.Devices {
				out.rest(device, ended+int64(pause), now)
			}
		}
	}
	return out
}

// rest lets no reservation begin on the device before until.
func (t Turn) rest(id gpu.UUID, until, now int64) {
	if until > max(now, t.Rest[id]) && until-now < int64(absurd) {
		t.Rest[id] = until
	}
}
