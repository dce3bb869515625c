package claim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/queue"
	"gpuard/internal/host/sys"
)

// tracedDecision is one line of the file that GPUARD_TRACE names: a decision under the folder lock, with all that the
// queue was asked. What queue.NextTicket answers to it is what happened. Lines are written after the lock is released:
// their order is that of boot.
type tracedDecision struct {
	Schema string `json:"schema"` // "gpuard.trace/1"
	// Wall clock, ns since 1970.
	Now  int64 `json:"now"`
	Boot int64 `json:"boot"` // CLOCK_BOOTTIME, ns
	// Ticket that asks; "" for a request without one.
	Me  string `json:"me"`
	UID uint32 `json:"uid"` // its owner
	// The process that asks.
	PID int `json:"pid"`
	// Ticket whose turn it is; "" for a request without one.
	Next string `json:"next"`
	// What it wants is free; otherwise no request is next.
	Free bool `json:"free"`
	// What the one that asks was given.
	Given []gpu.UUID `json:"given"`
	// All waiting requests, this one included.
	Line []tracedTicket `json:"line"`
	Held []tracedLease  `json:"held"` // living leases
	// What each device could give.
	Rooms map[gpu.UUID]pick.Room `json:"rooms"`
	// "UID/ID" of tickets that were passed over.
	Passed map[string]bool `json:"passed"`

	// What is reserved, by "UID/ID" of the ticket.
	Reserved map[string]queue.Reservation `json:"reserved"`
	// No reservation begins on the device before: CLOCK_BOOTTIME, ns.
	Rest map[gpu.UUID]int64 `json:"rest"`
}

// tracedTicket and tracedLease carry what their files do not: owner and arrival.
type tracedTicket struct {
	job.Ticket
	Owner   uint32 `json:"uid"`
	Arrival int64  `json:"arrival"` // ns since 1970
}

type tracedLease struct {
	job.Lease
	Owner uint32 `json:"uid"`
}

// isTracing reports whether decisions are written down.
func isTracing(host *machine.Host) bool {
	path, _ := host.Env.Lookup("GPUARD_TRACE")
	return path != ""
}

// decisionTrace is the file that GPUARD_TRACE names, while one claim is made. Decisions are collected under the folder
// lock and written when it is free again: the file may be a pipe that is full, or lie on a disk that does not answer.
type decisionTrace struct {
	host      *machine.Host
	file      *os.File
	decisions []tracedDecision
}

// openTrace opens the file before the folder is locked; nil where none is named.
func openTrace(host *machine.Host) (*decisionTrace, error) {
	path, _ := host.Env.Lookup("GPUARD_TRACE")
	if path == "" {
		return nil, nil //nolint:nilnil // nothing is traced
	}
	if !filepath.IsAbs(path) {
		return nil, exit.Usagef("cannot write the trace %s: GPUARD_TRACE must be an absolute path", path)
	}

	file, err := sys.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if errors.Is(err, syscall.ENXIO) {
		return nil, fmt.Errorf("cannot write the trace: %s is a pipe that no program reads; start the reader first, or unset GPUARD_TRACE to do without", path)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write the trace: %w; unset GPUARD_TRACE to do without", err)
	}

	return &decisionTrace{host: host, file: file}, nil
}

// addDecision collects a decision. The folder lock is held.
func (d *decisionTrace) addDecision(l *queueView, plan job.Plan, refusal *job.Refusal) {
	if d == nil || l == nil {
		return
	}

	q := l.asked
	t := tracedDecision{
		Schema: "gpuard.trace/1", Now: q.Now, Boot: q.Boot, Me: l.me.ID, UID: l.me.UID, PID: os.Getpid(), Next: l.next.ID, Free: l.free,
		Given: []gpu.UUID{}, Line: []tracedTicket{}, Held: []tracedLease{}, Rooms: q.Rooms, Passed: q.Passed,
		Reserved: q.Reserved, Rest: q.Rest,
	}

	for _, ticket := range q.Tickets {
		t.Line = append(t.Line, tracedTicket{ticket, ticket.UID, ticket.Arrival})
	}

	for _, lease := range q.Held {
		t.Held = append(t.Held, tracedLease{lease, lease.UID})
	}

	if refusal == nil {
		t.Given = plan.UUIDs()
	}

	d.decisions = append(d.decisions, t)
}

// pipeWriteTimeout is how long a pipe may be full before its lines are lost.
const pipeWriteTimeout = 100 * time.Millisecond

// writeDecisions appends the decisions and closes the file. What fails here is no fault of the claim, which has been
// made.
func (d *decisionTrace) writeDecisions() {
	if d == nil {
		return
	}
	defer d.file.Close() //nolint:errcheck // the write says it

	// Files that are no pipe have none.
	_ = d.file.SetWriteDeadline(time.Now().Add(pipeWriteTimeout))
	for i := range d.decisions {
		err := d.writeDecision(i)
		if err != nil {
			d.host.Say(fmt.Sprintf("the trace is not complete: %v; unset GPUARD_TRACE to do without", err))
			return
		}
	}
}

func (d *decisionTrace) writeDecision(i int) error {
	data, err := json.Marshal(&d.decisions[i])
	if err != nil {
		return err
	}

	_, err = d.file.Write(append(data, '\n'))

	return err
}
