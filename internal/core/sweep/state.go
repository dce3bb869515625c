package sweep

import (
	"encoding/json"
	"fmt"
	"time"

	"gpuard/internal/core/gpu"
)

// Kind is an event of a run.
type Kind string

// Kinds of events. The events of a run are Begin, Start, End; Gone if its end is unknown.
const (
	Begin Kind = "begin" // its process is about to be created
	Start Kind = "start" // its process exists
	End   Kind = "end"   // its process has ended, or could not be created
	Gone  Kind = "gone"  // its process does not exist, and its exit status is unknown: the run is repeated
	Again Kind = "again" // it failed, and the user asked to repeat it
)

// Event is one line of the journal.
type Event struct {
	Kind    Kind      `json:"is"`
	Run     int       `json:"run"`
	At      time.Time `json:"at"`
	PID     int       `json:"pid,omitempty"`
	Ticks   uint64    `json:"ticks,omitempty"` // of Start: start time of the process, since boot (proc_pid_stat(5), field 22)
	Boot    string    `json:"boot,omitempty"`
	Lease   string    `json:"lease,omitempty"`
	Devices []Device  `json:"devices,omitempty"`
	Exit    int       `json:"exit,omitempty"`    // -1 when a signal ended it
	Signal  string    `json:"signal,omitempty"`  // that ended it
	Seconds float64   `json:"seconds,omitempty"` // from its start to its end
	Stopped bool      `json:"stopped,omitempty"` // it was ended because the sweep was stopped: the run is not done
	Fault   string    `json:"fault,omitempty"`   // of the machine while it ran
	Problem string    `json:"problem,omitempty"` // why it could not be started
}

// Device is a device of a run.
type Device struct {
	Index int      `json:"index"`
	UUID  gpu.UUID `json:"uuid"`
}

// Phase is the progress of a run.
type Phase uint8

// Phases of a run.
const (
	Waiting Phase = iota // not started
	Begun                // between Begin and Start
	Running
	OK     // ended with 0
	Failed // ended otherwise, and is not started again by itself
)

// Run is the state of a run.
type Run struct {
	Phase  Phase
	Starts int
	Last   Event // End, or the last event of a run that has not ended

	failures int   // since it was last requested
	begun    Event // its last Begin, or Start
}

// Born is the event that identifies the run's process, while its Phase is Begun or Running.
func (r *Run) Born() Event { return r.begun }

// Knows reports whether a process with that start time is in some run's Start event, also of a run that has ended: a
// sweep that was killed before it collected a child leaves it there.
func (s *State) Knows(pid int, ticks uint64) bool {
	for i := range s.Runs {
		if e := &s.Runs[i].begun; e.Kind == Start && e.PID == pid && e.Ticks == ticks {
			return true
		}
	}
	return false
}

// Retry is what follows a failure.
type Retry struct {
	Times int  `json:"times,omitempty"`
	Any   bool `json:"any,omitempty"` // also when the failure may not be the machine's fault
}

// State is the state of all runs: the sum of the events.
type State struct {
	Runs  []Run
	Count Count
	retry Retry
}

// Count is the number of runs by phase.
type Count struct{ All, Waiting, Running, OK, Failed int }

// NewState is the state of a sweep without events.
func NewState(runs int, retry Retry) *State {
	return &State{Runs: make([]Run, runs), Count: Count{All: runs, Waiting: runs}, retry: retry}
}

// Read adds a line of the journal.
func (s *State) Read(line []byte) error {
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("it is no event: %w", err)
	}
	return s.Add(e)
}

// Add adds an event. An impossible one is an error: the journal belongs to another sweep.
func (s *State) Add(e Event) error {
	if e.Run < 0 || e.Run >= len(s.Runs) {
		return fmt.Errorf("it names run %d, and there are %d", e.Run, len(s.Runs))
	}
	r := &s.Runs[e.Run]
	open := r.Phase == Begun || r.Phase == Running
	switch {
	case e.Kind == Begin && r.Phase == Waiting, e.Kind == Start && r.Phase == Begun:
		phase := Begun
		if e.Kind == Start {
			r.Starts++
			phase = Running
		}
		r.begun = e
		s.move(r, phase)
	case e.Kind == End && open:
		s.end(r, e)
	case e.Kind == Gone && open:
		s.move(r, Waiting)
	case e.Kind == Again && r.Phase == Failed:
		r.failures = 0
		s.move(r, Waiting)
	default:
		return fmt.Errorf("run %d cannot have the event %q now", e.Run, e.Kind)
	}
	r.Last = e
	return nil
}

func (s *State) end(r *Run, e Event) {
	good := e.Exit == 0 && e.Signal == "" && e.Problem == ""
	switch {
	case e.Stopped && !good: // a run that ended with 0 at that moment is done
		s.move(r, Waiting)
	case good:
		s.move(r, OK)
	default:
		r.failures++
		if r.failures <= s.retry.Times && e.Problem == "" && (s.retry.Any || e.Fault != "") {
			s.move(r, Waiting)
		} else {
			s.move(r, Failed)
		}
	}
}

// move changes the phase, and the counts with it.
func (s *State) move(r *Run, to Phase) {
	*s.Count.of(r.Phase)--
	r.Phase = to
	*s.Count.of(to)++
}

func (c *Count) of(p Phase) *int {
	switch p {
	case Begun, Running:
		return &c.Running
	case OK:
		return &c.OK
	case Failed:
		return &c.Failed
	}
	return &c.Waiting
}

// Done is the number of runs that are over.
func (c Count) Done() int { return c.OK + c.Failed }

// In lists the runs of a phase.
func (s *State) In(phases ...Phase) (runs []int) {
	for i := range s.Runs {
		for _, p := range phases {
			if s.Runs[i].Phase == p {
				runs = append(runs, i)
			}
		}
	}
	return runs
}
