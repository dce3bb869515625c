package batchlog

import (
	"encoding/json"
	"time"

	"gpuard/internal/core/gpu"
)

// Kind is an event of a run.
type Kind string

// Kinds of events. The events of a run are Begin, Start, Moved and Ran, End; Gone if its end is unknown. Those of a
// queue also have Submit, which makes a run, and what its owner asked for since.
const (
	// Its process is about to be created.
	Begin Kind = "begin"
	Start Kind = "start" // its process exists
	// Its keeper has started its command, with this lease; or was killed, and its process is the command itself.
	Moved Kind = "moved"
	// Its keeper has seen its command end so.
	Ran Kind = "ran"
	// Its process has ended, or could not be created.
	End Kind = "end"
	// Its process does not exist, and its exit status is unknown: the run is repeated.
	Gone Kind = "gone"
	// It failed, and the user asked to repeat it.
	Again Kind = "again"

	// There is one run more.
	Submit Kind = "submit"
	// It is not to be started, or to be ended.
	Cancel Kind = "cancel"
	// It is not to be started for now.
	Hold Kind = "hold"
	// It may be started again.
	Unhold Kind = "unhold"
	// Nothing is to be started for now; of no run.
	Pause  Kind = "pause"
	Resume Kind = "resume" // likewise again

	// What another scheduler says of a run that it has.
	Tell Kind = "told"
)

// Event is one line of the journal.
type Event struct {
	Kind Kind      `json:"is"`
	Run  int       `json:"run"`
	At   time.Time `json:"at"`
	PID  int       `json:"pid,omitempty"`
	// The command of a keeper, which is PID; in Moved and Ran.
	Command int `json:"command,omitempty"`

	CommandTicks uint64 `json:"command_ticks,omitempty"` // its start time

	// The start time of the process, since boot (proc_pid_stat(5), field 22); in Start.
	Ticks uint64 `json:"ticks,omitempty"`
	Boot  string `json:"boot,omitempty"`
	// The process is a keeper, and the command another one; in Begin and Start.
	Kept bool `json:"kept,omitempty"`
	// Likewise: how long the keeper may take to end.
	Grace   time.Duration `json:"grace_ns,omitempty"`
	Lease   string        `json:"lease,omitempty"`
	Devices []Device      `json:"devices,omitempty"`
	// -1 when a signal ended it.
	Exit   int    `json:"exit,omitempty"`
	Signal string `json:"signal,omitempty"` // that ended it
	// The seconds from its start to its end.
	Seconds float64 `json:"seconds,omitempty"`
	// Most memory of one device that was measured; 0 nothing was measured.
	Peak gpu.Bytes `json:"peak,omitempty"`
	// Mean of the measured utilisation, 0..1; nil: nothing was measured.
	Load *float64 `json:"load,omitempty"`
	// It was ended because its time was over.
	Late bool `json:"late,omitempty"`
	// It was ended because the sweep was stopped: the run is not done.
	Stopped bool `json:"stopped,omitempty"`
	// The fault of the machine while it ran.
	Fault string `json:"fault,omitempty"`
	// Why it could not be started.
	Problem string `json:"problem,omitempty"`
	Job     *Job   `json:"job,omitempty"`  // of Submit
	Told    *Away  `json:"told,omitempty"` // of Tell
}

// ExitCode is that of the process of an End; nil where a signal ended it, or where it is not known.
func (e Event) ExitCode() *int {
	if e.Signal != "" || e.Exit < 0 {
		return nil
	}
	return &e.Exit
}

// Job is a run of a queue, as it was submitted.
type Job struct {
	Name string `json:"name"`
	// Runs with a lower one start first.
	Nice int  `json:"nice,omitempty"`
	Held bool `json:"held,omitempty"`
	CPU  bool `json:"cpu,omitempty"` // it needs no device
	// How long it takes by its owner's guess; 0 none.
	Time time.Duration `json:"time_ns,omitempty"`
	// The same for the same command.
	Kind uint32 `json:"kind,omitempty"`
	// Devices that it needs.
	GPUs  int     `json:"gpus,omitempty"`
	After []After `json:"after,omitempty"`
	Array *Array  `json:"array,omitempty"`
	Retry Retry   `json:"retry"`
	// Another scheduler has it.
	Away *Away `json:"away,omitempty"`
	// What the program that starts it wants to know; not in the state.
	Data json.RawMessage `json:"data,omitempty"`
}

// After is another run that has to end before.
type After struct {
	Run int `json:"run"`
	// However it ends; else only with 0.
	Any bool `json:"any,omitempty"`
}

// Device is a device of a run.
type Device struct {
	// The index of the device, as for status.
	Index int `json:"index"`
	// The UUID of the device, or of the MIG slice.
	UUID gpu.UUID `json:"uuid"`
}

// processAfterMove is what identifies the run's process after this event.
func (e Event) processAfterMove(begun Event) *Event {
	begun.Lease, begun.Devices, begun.Command, begun.CommandTicks = e.Lease, e.Devices, e.Command, e.CommandTicks
	if e.PID > 0 {
		begun.PID, begun.Ticks, begun.Kept = e.PID, e.Ticks, e.Kept
	}
	return &begun
}
