package batchlog

import (
	"errors"
	"time"
)

// Away is a run that another scheduler has. This machine starts and waits for nothing; whoever asks that scheduler
// writes down what it says.
type Away struct {
	// "slurm", "kubernetes".
	Engine string `json:"engine,omitempty"`
	// The mark by which the job is found there if its ID was not written down.
	Mark string `json:"mark,omitempty"`
	Task string `json:"task,omitempty"` // of an array
	// The ID that the engine calls it by.
	ID string `json:"id,omitempty"`
	// Its cluster, or its namespace.
	Place string      `json:"place,omitempty"`
	State EngineState `json:"state,omitempty"`
	// why it waits, or how it failed, in words.
	Why string `json:"why,omitempty"`
	// The node on which it runs or ran.
	Node  string     `json:"node,omitempty"`
	Began *time.Time `json:"began,omitempty"` // its last start
}

// EngineState is where an engine has a run.
type EngineState string

// Stands of a run. After the first three it is over.
const (
	Queued EngineState = "queued"
	// Its owner does not want it to start for now.
	Stopped EngineState = "held"
	Active  EngineState = "active"

	// The event has its exit code.
	Finished EngineState = "finished"
	// Likewise, or a signal.
	Broken EngineState = "broken"
	Ended  EngineState = "cancelled"
	// The engine does not know the job any more.
	Unknown EngineState = "unknown"
	// The engine never took it: it is no job.
	Refused EngineState = "refused"
)

// Over reports whether the engine has ended it.
func (e EngineState) Over() bool {
	return e == Finished || e == Broken || e == Ended || e == Unknown || e == Refused
}

// applyEngineReport takes what an engine said. Several processes may ask at the same time; the first end that is
// written counts.
func (s *State) applyEngineReport(e Event) error {
	r := &s.Runs[e.Run]
	if r.Away == nil || e.Told == nil {
		return errors.New("no other scheduler has that run")
	}
	if s.Over(e.Run) {
		return nil
	}

	now := *r.Away
	now.State, now.Why = e.Told.State, e.Told.Why

	for to, said := range map[*string]string{&now.ID: e.Told.ID, &now.Place: e.Told.Place, &now.Node: e.Told.Node} {
		if said != "" {
			*to = said
		}
	}

	if e.Told.Began != nil {
		now.Began = e.Told.Began
	}

	r.Away, r.last = &now, &e

	switch now.State {
	case Finished:
		s.changePhase(e.Run, OK)
	case Broken, Unknown, Refused:
		s.changePhase(e.Run, Failed)
	case Ended:
		s.changePhase(e.Run, Cancelled)
	case Queued, Stopped, Active:
	}

	return nil
}
