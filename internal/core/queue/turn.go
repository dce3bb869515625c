package queue

import (
	"maps"
	"time"

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
}

// See looks at the queue for the ticket id, whose owner acts now ("" when nobody waits): it is not passed over any more.
// A ticket that has been next for overdue is passed over, with all others of its user except id, and whoever
// comes then is next. The answer is that of Next with q.Passed as the new Turn has it; turn.Next[next.ID] tells since when it
// is next. alive are all tickets, of any scope: others are forgotten.
func (t Turn) See(q Question, id string, alive []job.Ticket, overdue time.Duration) (turn Turn, next job.Ticket, ok bool) {
	turn = t.clone(alive)
	delete(turn.Passed, id)
	for {
		next, ok = Next(turn.Put(q))
		since, seen := turn.Next[next.ID]
		for _, other := range q.Tickets {
			delete(turn.Next, other.ID)
		}
		if _, passed := turn.Passed[next.ID]; !ok || passed {
			return turn, next, ok
		}
		if !seen || since > q.Boot || next.ID == id {
			since = q.Boot
		}
		if q.Boot-since < int64(overdue) || next.ID == id {
			turn.Next[next.ID] = since
			return turn, next, ok
		}
		turn = turn.pass(q, next, id)
	}
}

// pass passes the ticket over, with all others of its user except id.
func (t Turn) pass(q Question, next job.Ticket, id string) Turn {
	turn := Turn{Next: maps.Clone(t.Next), Passed: maps.Clone(t.Passed), Unsure: t.Unsure}
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

// Put is the question with those passed over that the Turn knows.
func (t Turn) Put(q Question) Question {
	q.Passed = map[string]bool{}
	for id := range t.Passed {
		q.Passed[id] = true
	}
	return q
}

// clone keeps what is said of living tickets.
func (t Turn) clone(alive []job.Ticket) Turn {
	out := Turn{Next: map[string]int64{}, Passed: map[string]int64{}, Unsure: map[string]int64{}}
	for _, a := range alive {
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
	return out
}
