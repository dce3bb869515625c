package userqueue

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/status"
)

// State is where a job is.
type State string

// States of a job.
const (
	// Its owner does not want it to start for now.
	Held State = "held"
	// Other jobs have to end before.
	After   State = "after"
	Waiting State = "waiting" // for a device
	Running State = "running"
	Done    State = "done"   // ended with 0
	Failed  State = "failed" // ended otherwise
	// It ran when the machine or both processes of the queue went down, and nobody saw its end.
	Lost      State = "lost"
	Cancelled State = "cancelled" // by its owner

	// The engine that had it does not know it any more: nobody saw its end.
	Unknown State = "unknown"
	// The engine never took it.
	Refused State = "refused"
)

// Over reports whether the job has ended.
func (s State) Over() bool {
	return s == Done || s == Failed || s == Lost || s == Cancelled || s == Unknown || s == Refused
}

// Entry is one job for people and programs.
type Entry struct {
	Number int `json:"job"` // its number, from 1
	// The name of the job, or the base name of its program.
	Name    string   `json:"name"`
	State   State    `json:"state"`          // where it is
	Command []string `json:"command"`        // its words
	Folder  string   `json:"folder"`         // in which it runs
	Note    string   `json:"note,omitempty"` // of its owner
	Spec    job.Spec `json:"-"`
	// --machine; "" for the hardware.
	Machine string `json:"-"`
	// What it asks for, in words.
	Asks string `json:"asks"`
	// Jobs with a lower one start first.
	Nice int `json:"nice"`
	// When it was handed in.
	Submitted time.Time `json:"submitted"`
	// Jobs that have to end before.
	Awaits []int `json:"awaits"`
	// Its last start; null before the first.
	Started *time.Time `json:"started"`
	// Null while it has not.
	Ended *time.Time `json:"ended"`
	// How often it was started.
	Starts int `json:"starts"`
	// The PID of its command; 0 while it does not run.
	PID     int               `json:"pid"`
	Devices []batchlog.Device `json:"devices"` // of the last start
	// Its exit code; null while there is none, and after a signal.
	Exit *int `json:"exit"`
	// That ended it, such as "SIGKILL"; "" for none.
	Signal   string `json:"signal"`
	TimedOut bool   `json:"timed_out"` // --timeout ended it
	// Duration of the last start.
	Seconds float64 `json:"seconds"`
	// Most memory of one device that was measured, in bytes; null nothing was measured.
	Peak *gpu.Bytes `json:"peak"`
	// Mean of the measured utilisation of its devices, 0..1; null nothing was measured.
	Load *float64 `json:"load"`
	// Seconds from submit to the last start, or until now.
	Waited float64 `json:"waited"`
	// Seconds of one device, over all starts.
	Granted float64 `json:"granted"`
	// How much of these was used, by the measured load.
	Used float64 `json:"used"`
	// Likewise; what is neither used nor idle was not measured.
	Idle float64 `json:"idle"`
	// --expect; 0 not said.
	Time float64 `json:"expect_seconds"`
	// How long it may take: by --expect, else by the last runs of the same command, else by those of the queue; 0
	// unknown.
	Estimate float64 `json:"estimate_seconds"`
	// When it may start, by estimates; null unknown, and when it does not wait for a device.
	Expected *time.Time `json:"expected"`
	// What it waits for and of which no end is known, such as "train.py of bob"; "" none.
	Endless string `json:"endless"`
	// What keeps it from starting although it could, such as "3 of its array run"; "" nothing.
	HeldBack string `json:"held_back"`
	// It was cancelled and has not ended yet.
	Cancelling bool `json:"cancelling"`
	// What would start it sooner; "" unknown.
	Remedy string `json:"remedy"`
	// why it waits (the first in the list that does), why it was not started, or what was wrong; "" nothing.
	Why string `json:"why"`
	// Why it waits without command lines, for people who may not read them.
	Discreet string `json:"-"`
	// File with its output.
	Log string `json:"log"`
	// That has it, such as "slurm"; "" this machine.
	Engine string `json:"engine"`
	// What the engine calls it; "" unknown, and on this machine.
	ID string `json:"engine_job"`
	// Cluster of the engine.
	Place string `json:"engine_place"`
	// The node of the engine on which it runs or ran; "" none.
	Node string `json:"node"`
}

// Line is the queue of a user, and what else waits, for who shows both.
type Line struct {
	Jobs   []Entry          // that run or wait
	Others []status.Waiting // other requests
	// Jobs that wait besides.
	More   int
	Paused bool
	// Why its processes ended; "" none.
	Problem string
}

// List lists those jobs that which reports true for, in the order of their numbers.
func (q *Queue) List(which func(State) bool) (list []Entry, err error) {
	list, _, err = q.listJobs(which, math.MaxInt)
	return list, err
}

// Jobs lists those with these numbers, in this order.
func (q *Queue) Jobs(numbers []int) (list []Entry, err error) {
	state, err := q.Read()
	if err != nil {
		return nil, err
	}

	for _, n := range numbers {
		if n < 1 || n > len(state.Runs) {
			return nil, exit.Usagef("cannot find job %d: the last one is job %d; see: gpuard queue", n, len(state.Runs))
		}
		j, known := q.asked[n-1]
		if !known {
			j = q.jobOf(state, n-1)
			if q.asked == nil {
				q.asked = map[int]Job{}
			}
			q.asked[n-1] = j
		}
		list = append(list, q.makeEntry(state, n-1, stateOf(state, n-1), j))
	}

	return list, nil
}

// NextJobs lists the jobs that run and the first that wait, and says how many more wait, because nobody reads a list of
// 100,000 jobs.
func (q *Queue) NextJobs(most int) (list []Entry, more int, err error) {
	list, _, err = q.listJobs(func(s State) bool { return s == Running }, math.MaxInt)
	if err != nil {
		return nil, 0, err
	}

	rest, more, err := q.listJobs(func(s State) bool { return s != Running && !s.Over() }, most)
	list = append(list, rest...)
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(a.Number, b.Number) })

	return list, more, err
}

func (q *Queue) listJobs(which func(State) bool, most int) (list []Entry, more int, err error) {
	state, err := q.Read()
	if err != nil {
		return nil, 0, err
	}

	for run := range state.Runs {
		where := stateOf(state, run)
		switch {
		case !which(where):
			continue
		case len(list) == most:
			more++
			continue
		}
		list = append(list, q.makeEntry(state, run, where, q.jobOf(state, run)))
	}

	return list, more, nil
}

// FindJob is the number of the job of this user that a lease is of; 0 none. A job that is just being started has its
// lease in the journal a moment later than its command has it.
func FindJob(host *machine.Host, l job.Lease) (number int, err error) {
	q, err := Open(host, false)
	if err != nil {
		// Where the queue cannot be used, a run that is none of its jobs can be ended all the same.
		_, marked := host.AwaitEnviron(l.PID).Lookup(jobFolderVar)
		if !marked {
			return 0, nil
		}
		return 0, err
	}

	if q == nil {
		return 0, nil
	}

	defer q.Close()

	for end := time.Now().Add(mostStart); ; time.Sleep(10 * time.Millisecond) {
		state, err := q.Read()
		if err != nil {
			return 0, err
		}

		starting := false
		for _, run := range state.RunsIn(batchlog.Begun, batchlog.Running) {
			if state.Runs[run].BirthEvent().Lease == l.ID {
				return run + 1, nil
			}
			starting = starting || state.Runs[run].Phase == batchlog.Begun
		}

		if !starting || time.Now().After(end) {
			return 0, nil
		}
	}
}

// FindNamed are the numbers of this user's jobs with that name which have not ended.
func FindNamed(host *machine.Host, name string) (numbers []int) {
	q, err := Open(host, false)
	if err != nil || q == nil {
		return nil
	}

	defer q.Close()
	state, err := q.Read()
	if err != nil {
		return nil
	}

	for _, run := range state.RunsIn(batchlog.Waiting, batchlog.Begun, batchlog.Running, batchlog.Elsewhere) {
		if state.Runs[run].Name == name {
			numbers = append(numbers, run+1)
		}
	}

	return numbers
}

// mostStart is how long the start of a job may take to be in the journal.
const mostStart = 2 * time.Second

// jobOf is a job of a list, which shows the others also where one cannot be read.
func (q *Queue) jobOf(state *batchlog.State, run int) Job {
	unread := Job{Command: []string{}}
	if state.Runs[run].Unread {
		return unread
	}

	j, err := q.ReadJob(run)
	if err != nil {
		return unread
	}

	return j
}

func stateOf(state *batchlog.State, run int) State {
	r := &state.Runs[run]
	if r.Away != nil {
		return map[batchlog.EngineState]State{batchlog.Queued: Waiting, batchlog.Stopped: Held, batchlog.Active: Running, batchlog.Finished: Done, batchlog.Broken: Failed,
			batchlog.Ended: Cancelled, batchlog.Unknown: Unknown, batchlog.Refused: Refused}[r.Away.State]
	}

	switch r.Phase {
	case batchlog.Begun, batchlog.Running:
		return Running
	case batchlog.OK:
		return Done
	case batchlog.Cancelled:
		return Cancelled
	case batchlog.Failed:
		if r.LastEvent().Kind == batchlog.Gone {
			return Lost
		}
		return Failed
	case batchlog.Waiting, batchlog.Elsewhere:
	}

	switch {
	case r.Held:
		return Held
	case len(state.OpenDependencies(run)) > 0:
		return After
	}

	return Waiting
}

func (q *Queue) makeEntry(state *batchlog.State, run int, where State, j Job) Entry {
	r := &state.Runs[run]
	last := r.LastEvent()
	e := Entry{Number: run + 1, Name: r.Name, State: where, Command: j.Command, Folder: j.Folder, Note: j.Note, Spec: j.Spec, Machine: j.Machine, Nice: r.Nice,
		Submitted: r.Submitted, Starts: r.Starts, Awaits: []int{}, Devices: append([]batchlog.Device{}, last.Devices...), Log: q.logPath(run, j), Time: r.Time.Seconds(), Estimate: state.Estimate(run).Seconds()}

	for _, other := range state.OpenDependencies(run) {
		e.Awaits = append(e.Awaits, other+1)
	}

	if r.Away != nil {
		return e.withAway(r, last)
	}

	born := r.BirthEvent()
	e.Waited = time.Since(r.Submitted).Seconds()
	if !born.At.IsZero() {
		e.Started = &born.At
		e.Waited = born.At.Sub(r.Submitted).Seconds()
	}

	e.Granted, e.Used, e.Idle = r.Spent.Granted, r.Spent.Used, r.Spent.Idle
	if r.Spent.Peak > 0 {
		e.Peak = &r.Spent.Peak
	}

	switch {
	case where == Running:
		e.PID, e.Cancelling = cmp.Or(born.Command, born.PID), state.IsCancelled(run)
	case where == Waiting:
		e.HeldBack = heldBackReason(state, run)
	case where == Lost:
		e.Why = "its end was not seen: the machine, or both processes of the queue, went down while it ran"
	case last.Kind == batchlog.End:
		e.Signal = last.Signal
		if e.Signal == "" {
			e.Exit = &last.Exit
		}
		e.Load, e.TimedOut = last.Load, last.Late
		e.Seconds, e.Why = last.Seconds, last.Problem+last.Fault
	}

	if where.Over() {
		e.Ended = &last.At
	}

	return e
}

// heldBackReason says what keeps a run that waits from starting, besides what it waits for.
func heldBackReason(state *batchlog.State, run int) string {
	if state.Paused {
		return "the queue is paused"
	}
	if n, full := state.ArrayRunning(run); full {
		return fmt.Sprintf("%d of its array run", n)
	}
	return ""
}

// withAway adds what another scheduler has said.
func (e Entry) withAway(r *batchlog.Run, last batchlog.Event) Entry {
	a := r.Away
	e.Engine, e.ID, e.Place, e.Node, e.Why, e.Started = a.Engine, a.ID, a.Place, a.Node, a.Why, a.Began
	e.Waited, e.Seconds = time.Since(r.Submitted).Seconds(), last.Seconds
	if a.Began != nil {
		e.Starts, e.Waited = 1, max(0, a.Began.Sub(r.Submitted).Seconds())
	}

	if !e.State.Over() {
		return e
	}

	e.Ended, e.Signal = &last.At, last.Signal
	if a.State == batchlog.Finished || a.State == batchlog.Broken && last.Signal == "" {
		e.Exit = &last.Exit
	}

	return e
}

// Code is the exit code of gpuard wait for a job that has ended.
func (e *Entry) Code(number func(signal string) int) int {
	switch {
	case e.State == Done:
		return 0
	case e.State != Failed || e.Starts == 0:
		return 1
	case e.TimedOut:
		return exit.TimedOut
	case e.Signal != "":
		return 128 + number(e.Signal)
	case e.Exit != nil && *e.Exit > 0:
		return *e.Exit
	}
	return 1
}
