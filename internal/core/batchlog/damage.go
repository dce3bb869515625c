package batchlog

import (
	"encoding/json"
	"fmt"
	"slices"
)

// OddLine is a line of a queue's journal that cannot be read, or is impossible after those before it. It is left out,
// and the lines after it count.
type OddLine struct {
	Number int // from 1
	Why    error
}

// DescribeIn says it of a file.
func (o OddLine) DescribeIn(file string) string {
	return fmt.Sprintf("line %d of %s is no record (%v), and is left out", o.Number, file, o.Why)
}

// Tally counts the runs of a queue as State does, without a state of each. A run whose line is damaged keeps its
// number: the first that can be read after it has the next one.
type Tally struct {
	Runs  int
	Lines int
	// Runs at most that lines since the last run have held and that cannot be read.
	Lost int
}

// ReadLine counts a line.
func (t *Tally) ReadLine(line []byte) *OddLine {
	t.Lines++
	e, err := parseEvent(line)
	if err == nil && e.Kind == Submit {
		_, err = e.missingBefore(t.Runs, t.Lost)
		if err == nil {
			t.Runs, t.Lost = e.Run+1, 0
		}
	}

	if err != nil {
		t.Lost += maxLostRuns(e, line)
		return &OddLine{t.Lines, err}
	}

	return nil
}

func parseEvent(line []byte) (e Event, err error) {
	err = json.Unmarshal(line, &e)
	if err != nil {
		return Event{}, fmt.Errorf("it is no event: %w", err)
	}
	if e.Kind != Submit && !e.makesNoRun() {
		return e, fmt.Errorf("there is no event %q", e.Kind)
	}

	return e, nil
}

// missingBefore is how many runs are missing before one that is submitted. More than damaged lines can have held is no
// damage, but a wrong number.
func (e Event) missingBefore(runs, lost int) (missing int, err error) {
	missing = e.Run - runs
	if e.Job == nil || missing < 0 || missing > lost {
		return 0, fmt.Errorf("run %d cannot be added to %d", e.Run, runs)
	}

	for _, a := range e.Job.After {
		if a.Run < 0 || a.Run >= e.Run {
			return 0, fmt.Errorf("run %d cannot wait for run %d", e.Run, a.Run)
		}
	}

	return missing, nil
}

// maxLostRuns is how many runs a line that was left out may have held: several where the breaks between lines are
// damaged too.
func maxLostRuns(e Event, line []byte) int {
	// Bytes that a Submit has at least.
	const shortest = 64
	if e.makesNoRun() {
		return 0
	}
	return 1 + len(line)/shortest
}

// makesNoRun reports an event that makes no run.
func (e Event) makesNoRun() bool {
	return slices.Contains([]Kind{Begin, Start, Moved, Ran, End, Gone, Again, Cancel, Hold, Unhold, Pause, Resume, Tell}, e.Kind)
}

// ReadLine adds a line of the journal, which begins at an offset in it.
func (s *State) ReadLine(line []byte, offset int64) error {
	s.lines++
	e, err := parseEvent(line)
	if err == nil {
		err = s.Add(e)
	}

	switch {
	case err == nil && e.Kind == Submit:
		s.Runs[e.Run].Offset = offset
	case err != nil && s.queue:
		// One line must not make the others unreadable.
		s.skipLine(e, line, err)
		return nil
	}

	return err
}

// skipLine counts a line of a queue that is not added.
func (s *State) skipLine(e Event, line []byte, why error) {
	s.Odd++
	if len(s.OddLines) < maxOddLines {
		s.OddLines = append(s.OddLines, OddLine{s.lines, why})
	}
	s.lost += maxLostRuns(e, line)
}

// maxOddLines is how many odd lines are remembered.
const maxOddLines = 3

// addUnreadable adds a run whose line cannot be read. It is over: nobody knows what it was to do, or whether it has
// done it.
func (s *State) addUnreadable(next Event) {
	end := Event{Kind: End, Run: len(s.Runs), At: next.At, Exit: 125, Problem: "its line in the journal of the queue cannot be read; hand it in again"}
	s.Runs = append(s.Runs, Run{Name: "(unreadable)", Phase: Failed, Unread: true, Submitted: next.At, last: &end})
	s.Count.All++
	s.Count.Failed++
}

// assumeBegun: what has started or ended was begun, also where the line that says it cannot be read. Otherwise it would
// be started once more.
func (s *State) assumeBegun(e Event) {
	if s.Odd == 0 || s.Runs[e.Run].Phase != Waiting || e.Kind != Start && e.Kind != End && e.Kind != Gone {
		return
	}

	begun := Event{Kind: Begin, Run: e.Run, At: e.At}
	s.Runs[e.Run].begun = &begun
	s.changePhase(e.Run, Begun)
	if e.Kind != Start && e.Problem == "" {
		s.Runs[e.Run].Starts++
	}
}
