package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/queue"
)

// traced is one line of the file that GPUARD_TRACE names: a decision under the folder lock, with all that the queue was
// asked. What queue.Next answers to it is what happened.
type traced struct {
	Schema string                 `json:"schema"` // "gpuard.trace/1"
	Now    int64                  `json:"now"`    // wall clock, ns since 1970
	Boot   int64                  `json:"boot"`   // CLOCK_BOOTTIME, ns
	Me     string                 `json:"me"`     // ticket that asks; "" for a request without one
	UID    uint32                 `json:"uid"`    // whose it is
	PID    int                    `json:"pid"`    // the process that asks
	Next   string                 `json:"next"`   // ticket whose turn it is; "" for a request without one
	Free   bool                   `json:"free"`   // what it wants is free; without it nobody is next
	Given  []gpu.UUID             `json:"given"`  // what the one that asks was given
	Line   []ticketTraced         `json:"line"`   // who waits, the one that asks included
	Held   []leaseTraced          `json:"held"`   // living leases
	Rooms  map[gpu.UUID]pick.Room `json:"rooms"`  // what each device could give
	Ending map[gpu.UUID]bool      `json:"ending"` // devices that somebody is about to leave
	Passed map[string]bool        `json:"passed"` // tickets that were passed over

	Reserved map[string]queue.Reservation `json:"reserved"` // by ticket
	Rest     map[gpu.UUID]int64           `json:"rest"`     // no reservation begins on the device before: CLOCK_BOOTTIME, ns
}

// ticketTraced and leaseTraced carry what their files do not: owner and arrival.
type ticketTraced struct {
	job.Ticket
	Owner   uint32 `json:"uid"`
	Arrival int64  `json:"arrival"` // ns since 1970
}

type leaseTraced struct {
	job.Lease
	Owner uint32 `json:"uid"`
}

// tracing reports whether decisions are written down.
func (a *App) tracing() bool {
	path, _ := a.Env.Lookup("GPUARD_TRACE")
	return path != ""
}

// trace appends the decision. The folder lock is held, so the lines stand in the order of the decisions.
func (l *line) trace(plan job.Plan, refusal *job.Refusal) error {
	if l == nil || !l.traced {
		return nil
	}
	q := l.asked
	t := traced{
		Schema: "gpuard.trace/1", Now: q.Now, Boot: q.Boot, Me: l.me.ID, UID: l.me.UID, PID: os.Getpid(), Next: l.next.ID, Free: l.free,
		Given: []gpu.UUID{}, Line: []ticketTraced{}, Held: []leaseTraced{}, Rooms: q.Rooms, Ending: q.Ending, Passed: q.Passed,
		Reserved: q.Reserved, Rest: q.Rest,
	}
	for _, ticket := range q.Tickets {
		t.Line = append(t.Line, ticketTraced{ticket, ticket.UID, ticket.Arrival})
	}
	for _, lease := range q.Held {
		t.Held = append(t.Held, leaseTraced{lease, lease.UID})
	}
	if refusal == nil {
		t.Given = given(plan)
	}
	path, _ := l.app.Env.Lookup("GPUARD_TRACE")
	if !filepath.IsAbs(path) {
		return usagef("cannot write the trace %s: GPUARD_TRACE must be an absolute path", path)
	}
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write the trace: %w; unset GPUARD_TRACE to do without", err)
	}
	_, err = file.Write(append(data, '\n'))
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("cannot write the trace: %w; unset GPUARD_TRACE to do without", err)
	}
	return nil
}
