// Package batchlog is the record of commands that are started one after the other, as those of a sweep and of a queue:
// the events of each, and the state that they add up to:
//
//	s := runs.NewState(3, runs.Retry{})
//	err := s.Add(runs.Event{Kind: runs.Begin, Run: 0})
//
// It must not start processes or open files.
package batchlog

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"gpuard/internal/core/supervise"
)

// Phase is the progress of a run.
type Phase uint8

// Phases of a run.
const (
	Waiting Phase = iota // not started
	// Between Begin and Start.
	Begun
	Running
	// Another scheduler has it (Away).
	Elsewhere
	OK // ended with 0
	// Ended otherwise, and is not started again by itself.
	Failed
	// Its owner wanted it to end, before its start or after it.
	Cancelled
)

// Run is the state of a run.
type Run struct {
	Phase  Phase
	Starts int

	// When it came into the queue; zero elsewhere, as Nice and the like.
	Submitted time.Time
	Name      string
	Nice      int
	Held      bool
	CPU       bool
	// The place of its Submit in the journal.
	Offset int64
	Time   time.Duration
	Kind   uint32
	GPUs   int
	Spent  Spent // over all starts
	// Another scheduler has it; nil: this machine does.
	Away *Away
	// Its Submit cannot be read: nothing is known of it but its number.
	Unread bool

	array     *arrayGroup
	after     []After
	retry     Retry
	cancelled bool
	// The failures since it was last requested.
	failures int32
	// The last of these failures in a row that did not last.
	streak int32
	// Its last Begin, or Start; nil before.
	begun *Event
	// Its last Ran, while its command is not started again; nil: none.
	ran *Event
	// End, or the last event of a run that has not ended; nil before; most of 100,000 runs only wait.
	last *Event
}

// BirthEvent is the event that identifies the run's process, while its Phase is Begun or Running.
func (r *Run) BirthEvent() Event { return eventOrZero(r.begun) }

// RanEvent is how the command of its keeper ended, by that; nil while that has not seen it.
func (r *Run) RanEvent() *Event { return r.ran }

// LastEvent is its End, or the last event of a run that has not ended.
func (r *Run) LastEvent() Event { return eventOrZero(r.last) }

func eventOrZero(e *Event) Event {
	if e == nil {
		return Event{}
	}
	return *e
}

// KnowsProcess reports whether a process with that start time is in some run's Start event, also of a run that has
// ended: a sweep that was killed before it collected a child leaves it there.
func (s *State) KnowsProcess(pid int, ticks uint64) bool {
	for i := range s.Runs {
		if e := s.Runs[i].begun; e != nil && e.Kind == Start && e.PID == pid && e.Ticks == ticks {
			return true
		}
	}
	return false
}

// Retry is what follows a failure.
type Retry struct {
	Times int `json:"times,omitempty"`
	// Also when the failure may not be the machine's fault.
	Any bool `json:"any,omitempty"`
}

// State is the state of all runs: the sum of the events.
type State struct {
	Runs  []Run
	Count Count

	// Nothing is to be started for now.
	Paused bool
	// Lines of a queue that cannot be read or are impossible, and were left out.
	Odd int

	OddLines []OddLine // the first of them

	// Those whose number at the same time is limited, by their first run.
	array map[int]*arrayGroup
	past  Past
	// Runs are submitted, and one whose end is unknown is not repeated by itself.
	queue bool
	lines int // that were read
	lost  int // as that of Tally

	// Runs that may be started since Fresh was called.
	fresh []int
	// Runs that wait for a run.
	heirs map[int][]int
}

// Count is the number of runs by phase.
type Count struct{ All, Waiting, Running, Elsewhere, OK, Failed, Cancelled int }

// NewState is the state of a sweep without events.
func NewState(runs int, retry Retry) *State {
	s := &State{Runs: make([]Run, runs), Count: Count{All: runs, Waiting: runs}}
	for i := range s.Runs {
		s.Runs[i].retry = retry
		s.fresh = append(s.fresh, i)
	}
	return s
}

// NewQueue is the state of a queue without events.
func NewQueue() *State {
	return &State{queue: true, heirs: map[int][]int{}}
}

// TakeFresh lists the runs that may be started and could not when it was called before.
func (s *State) TakeFresh() []int {
	list := s.fresh
	s.fresh = nil
	return list
}

// MayStart reports whether a run waits for nothing but a device.
func (s *State) MayStart(run int) bool {
	r := &s.Runs[run]
	if r.Phase != Waiting || r.Held || s.Paused {
		return false
	}
	return !slices.ContainsFunc(r.after, func(a After) bool { return !s.Over(a.Run) })
}

// Over reports whether a run has ended and is not started again by itself.
func (s *State) Over(run int) bool { return s.Runs[run].Phase >= OK }

// FailedDependency is a run that had to end with 0 before this one and did not; -1 none.
func (s *State) FailedDependency(run int) int {
	for _, a := range s.Runs[run].after {
		if p := s.Runs[a.Run].Phase; !a.Any && (p == Failed || p == Cancelled) {
			return a.Run
		}
	}
	return -1
}

// OpenDependencies lists the runs that have to end before this one.
func (s *State) OpenDependencies(run int) (open []int) {
	for _, a := range s.Runs[run].after {
		if !s.Over(a.Run) {
			open = append(open, a.Run)
		}
	}
	return open
}

// HasStartable reports whether some run waits for nothing but a device.
func (s *State) HasStartable() bool {
	for i := range s.Runs {
		if s.Runs[i].Phase == Waiting && s.MayStart(i) {
			return true
		}
	}
	return false
}

// IsWanted reports whether a run that is about to start, or runs, is still to run.
func (s *State) IsWanted(run int) bool {
	r := &s.Runs[run]
	return !r.cancelled && (r.Phase != Waiting || !r.Held && !s.Paused)
}

// Folder is the folder of a run in the folder of all.
func (s *State) Folder(run int) string {
	if s.queue {
		return JobFolder(run)
	}
	return RunFolder(run, len(s.Runs))
}

// Add adds an event. An impossible one is an error: the journal belongs to another sweep.
func (s *State) Add(e Event) error {
	switch {
	case e.Kind == Submit:
		return s.addRun(e)
	case e.Kind == Tell && e.Run >= 0 && e.Run < len(s.Runs):
		return s.applyEngineReport(e)
	case s.queue && (e.Kind == Pause || e.Kind == Resume):
		s.setPaused(e.Kind == Pause)
		return nil
	}

	if e.Run < 0 || e.Run >= len(s.Runs) {
		return fmt.Errorf("it names run %d, and there are %d", e.Run, len(s.Runs))
	}

	if s.queue {
		s.assumeBegun(e)
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

		begun := e
		if e.Kind == Start {
			// Its keeper may have been faster than who started that.
			begun.Command, begun.CommandTicks = r.begun.Command, r.begun.CommandTicks
		} else {
			r.ran = nil
		}

		r.begun = &begun
		s.changePhase(e.Run, phase)
	case e.Kind == Moved && open:
		r.begun = e.processAfterMove(*r.begun)
		if r.ran != nil && r.ran.Command != e.Command {
			// A short command ends before its Moved is written.
			r.ran = nil
		}
	case e.Kind == Ran && open:
		ran := e
		r.ran = &ran
	case e.Kind == Moved, e.Kind == Ran:
		// The run is over: this changes nothing.
	case e.Kind == End && open:
		s.endRun(e.Run, e)
	case e.Kind == Gone && open:
		s.recordGone(e.Run)
	case e.Kind == Again && !r.Unread && (r.Phase == Failed || r.Phase == Cancelled):
		r.failures, r.streak, r.cancelled = 0, 0, false
		s.changePhase(e.Run, Waiting)
	case s.queue && s.applyRequest(e.Run, e.Kind):
	default:
		return fmt.Errorf("run %d cannot have the event %q now", e.Run, e.Kind)
	}

	if e.Kind != Hold && e.Kind != Unhold && e.Kind != Moved && e.Kind != Ran && (e.Kind != Cancel || !open) {
		last := e
		r.last = &last
	}

	return nil
}

// addRun adds a run.
func (s *State) addRun(e Event) error {
	if !s.queue {
		return fmt.Errorf("run %d cannot be added to %d", e.Run, len(s.Runs))
	}

	missing, err := e.missingBefore(len(s.Runs), s.lost)
	if err != nil {
		return err
	}

	for range missing {
		s.addUnreadable(e)
	}

	s.lost = 0

	for _, a := range e.Job.After {
		s.heirs[a.Run] = append(s.heirs[a.Run], e.Run)
	}

	s.Runs = append(s.Runs, Run{Submitted: e.At, Name: e.Job.Name, Nice: e.Job.Nice, Held: e.Job.Held, CPU: e.Job.CPU, Time: e.Job.Time, Kind: e.Job.Kind, GPUs: e.Job.GPUs, after: e.Job.After, retry: e.Job.Retry})
	s.Count.All++
	if e.Job.Away != nil {
		s.Runs[e.Run].Phase, s.Runs[e.Run].Away = Elsewhere, e.Job.Away
		s.Count.Elsewhere++
		return nil
	}

	s.Count.Waiting++
	s.joinArray(e.Run, e.Job.Array)
	s.OfferRun(e.Run)

	return nil
}

// setPaused lets nothing start, or again what may.
func (s *State) setPaused(on bool) {
	was := s.Paused
	s.Paused = on
	if was && !on {
		for run := range s.Runs {
			s.OfferRun(run)
		}
	}
}

// applyRequest does what an owner asked for, also where it changes nothing.
func (s *State) applyRequest(run int, kind Kind) bool {
	r := &s.Runs[run]
	switch kind {
	case Cancel:
		r.cancelled = !s.Over(run)
		if r.Phase == Waiting {
			s.changePhase(run, Cancelled)
		}
	case Hold, Unhold:
		r.Held = kind == Hold && r.Phase == Waiting
		s.OfferRun(run)
	default:
		return false
	}
	return true
}

// OfferRun adds a run to those that may be started, if it may.
func (s *State) OfferRun(run int) {
	if s.MayStart(run) {
		s.fresh = append(s.fresh, run)
	}
}

func (s *State) endRun(run int, e Event) {
	r := &s.Runs[run]
	r.Spent.addEvent(e)
	good := e.Exit == 0 && e.Signal == "" && e.Problem == ""
	switch {
	case r.cancelled && !good:
		s.changePhase(run, Cancelled)
	case e.Stopped && !good:
		// A run that ended with 0 at that moment is done.
		s.changePhase(run, Waiting)
	case good:
		if s.queue {
			s.past.Add(r.Kind, r.GPUs, time.Duration(e.Seconds*float64(time.Second)))
		}
		s.changePhase(run, OK)
	default:
		if e.Fault == "" {
			r.streak = int32(supervise.StreakAfter(int(r.streak), time.Duration(e.Seconds*float64(time.Second)))) //nolint:gosec // at most as the starts
		}
		s.recordFailure(run, e.Problem == "" && (r.retry.Any || e.Fault != ""))
	}
}

// IsCancelled reports whether a run was told to end, and has not ended by itself since.
func (s *State) IsCancelled(run int) bool { return s.Runs[run].cancelled }

// recordGone: the run of a sweep is repeated. The job of a queue may have done its work, so it is repeated only if that
// was asked for.
func (s *State) recordGone(run int) {
	switch {
	case !s.queue:
		s.changePhase(run, Waiting)
	case s.Runs[run].cancelled:
		s.changePhase(run, Cancelled)
	default:
		s.recordFailure(run, true)
	}
}

// RestBeforeRetry is how much is left at now of the pause before a failed run is started again; first is the shortest
// pause. It is 0 for a run that has not failed, after a fault of the machine, and where the clock was set back behind
// the failure.
func (s *State) RestBeforeRetry(run int, first time.Duration, now time.Time) time.Duration {
	r := &s.Runs[run]
	e := r.LastEvent()
	if r.Phase != Waiting || r.failures == 0 || e.Kind != End || e.Stopped || e.Fault != "" || now.Before(e.At) {
		return 0
	}

	return max(supervise.RestartPause(first, int(r.streak))-now.Sub(e.At), 0)
}

// DescribeRetry says why a waiting run is started again, and for which time; "" for one that has not failed.
func (s *State) DescribeRetry(run int) string {
	r := &s.Runs[run]
	e := r.LastEvent()
	if r.Phase != Waiting || r.failures == 0 || e.Kind != End || e.Stopped {
		return ""
	}

	ended := supervise.End{Code: e.Exit, Signal: e.Signal}.DescribeEnd(e.Fault)

	return fmt.Sprintf("%s: starting it again, start %d of %d", ended, r.failures+1, r.retry.Times+1)
}

// recordFailure counts a failure; again says whether it is of a kind that is repeated.
func (s *State) recordFailure(run int, again bool) {
	r := &s.Runs[run]
	r.failures++
	if again && int(r.failures) <= r.retry.Times {
		s.changePhase(run, Waiting)
	} else {
		s.changePhase(run, Failed)
	}
}

// changePhase changes the phase, and the counts with it.
func (s *State) changePhase(run int, to Phase) {
	r := &s.Runs[run]
	*s.Count.phaseCounter(r.Phase)--
	before := r.Phase
	r.Phase = to
	s.updateArray(r, before)
	*s.Count.phaseCounter(to)++
	if to == Waiting {
		s.OfferRun(run)
	}

	if s.Over(run) {
		for _, heir := range s.heirs[run] {
			s.OfferRun(heir)
		}
	}
}

func (c *Count) phaseCounter(p Phase) *int {
	switch p {
	case Begun, Running:
		return &c.Running
	case Elsewhere:
		return &c.Elsewhere
	case OK:
		return &c.OK
	case Failed:
		return &c.Failed
	case Cancelled:
		return &c.Cancelled
	}
	return &c.Waiting
}

// CountDone is the number of runs that are over.
func (c Count) CountDone() int { return c.OK + c.Failed + c.Cancelled }

// RunsIn lists the runs of a phase.
func (s *State) RunsIn(phases ...Phase) (runs []int) {
	for i := range s.Runs {
		for _, p := range phases {
			if s.Runs[i].Phase == p {
				runs = append(runs, i)
			}
		}
	}
	return runs
}

// RunFolder is the folder of run i in the folder of all: its number, padded to the digits of the largest.
func RunFolder(i, runs int) string {
	return path.Join("runs", fmt.Sprintf("%0*d", max(4, len(strconv.Itoa(runs-1))), i))
}

// JobFolder is the folder of a run of a queue.
func JobFolder(run int) string { return path.Join("jobs", strconv.Itoa(run+1)) }
