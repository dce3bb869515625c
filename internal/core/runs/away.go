package runs

import (
	"errors"
	"time"
)

// Away is a run that another scheduler has. This machine starts and waits for nothing; whoever asks that scheduler
// writes down what it says.
type Away struct {
	Engine string     `json:"engine,omitempty"` // "slurm", "kubernetes"
	Mark   string     `json:"mark,omitempty"`   // by which the job is found there if its ID was not written down
	Task   string     `json:"task,omitempty"`   // of an array
	ID     string     `json:"id,omitempty"`     // as the engine calls it
	Place  string     `json:"place,omitempty"`  // its cluster, or its namespace
	State  Stand      `json:"state,omitempty"`
	Why    string     `json:"why,omitempty"`   // why it waits, or how it failed, in words
	Node   string     `json:"node,omitempty"`  // on which it runs or ran
	Began  *time.Time `json:"began,omitempty"` // its last start
}

// Stand is where an engine has a run.
type Stand string

// Stands of a run. After the first three it is over.
const (
	Queued  Stand = "queued"
	Stopped Stand = "held" // its owner does not want it to start for now
	Active  Stand = "active"

	Finished Stand = "finished" // the event has its exit code
	Broken   Stand = "broken"   // likewise, or a signal
	Ended    Stand = "cancelled"
	Unknown  Stand = "unknown" // the engine does not know the job any more
	Refused  Stand = "refused" // the engine never took it: it is no job
)

// Over reports whether the engine has ended it.
func (s Stand) Over() bool {
	return s == Finished || s == Broken || s == Ended || s == Unknown || s == Refused
}

// told takes what an engine said. Several processes may ask at the same time; the first end that is written counts.
func (s *State) told(e Event) error {
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
		s.move(e.Run, OK)
	case Broken, Unknown, Refused:
		s.move(e.Run, Failed)
	case Ended:
		s.move(e.Run, Cancelled)
	case Queued, Stopped, Active:
	}
	return nil
}
