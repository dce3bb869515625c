package batchlog

import (
	"encoding/json"
	"time"

	"gpuard/internal/core/gpu"
)

// Kind is an event of a run.
type Kind string

// Kinds of events. The events of a run are Begin, Start, Moved and Ran, End; Gone if its end is unknown. Those of a queue also have
// Submit, which makes a run, and what its owner asked for since.
const (
	Begin Kind = "begin" // its process is about to be created
	Start Kind = "start" // its process exists
	Moved Kind = "moved" // its keeper has started its command, with this lease; or was killed, and its process is the command itself
	Ran   Kind = "ran"   // its keeper has seen its command end so
	End   Kind = "end"   // its process has ended, or could not be created
	Gone  Kind = "gone"  // its process does not exist, and its exit status is unknown: the run is repeated
	Again Kind = "again" // it failed, and the user asked to repeat it

	Submit Kind = "submit" // there is one run more
	Cancel Kind = "cancel" // it is not to be started, or to be ended
	Hold   Kind = "hold"   // it is not to be started for now
	Unhold Kind = "unhold" // it may be started again
	Pause  Kind = "pause"  // nothing is to be started for now; of no run
	Resume Kind = "resume" // likewise again

	Tell Kind = "told" // what another scheduler says of a run that it has
)

// Event is one line of the journal.
type Event struct {
	Kind    Kind      `json:"is"`
	Run     int       `json:"run"`
	At      time.Time `json:"at"`
	PID     int       `json:"pid,omitempty"`
	Command int       `json:"command,omitempty"` // of Moved and Ran: the command of a keeper, which is PID

	CommandTicks uint64 `json:"command_ticks,omitempty"` // its start time

	Ticks   uint64        `json:"ticks,omitempty"` // of Start: start time of the process, since boot (proc_pid_stat(5), field 22)
	Boot    string        `json:"boot,omitempty"`
	Kept    bool          `json:"kept,omitempty"`     // of Begin and Start: the process is a keeper, and the command another one
	Grace   time.Duration `json:"grace_ns,omitempty"` // likewise: how long the keeper may take to end
	Lease   string        `json:"lease,omitempty"`
	Devices []Device      `json:"devices,omitempty"`
	Exit    int           `json:"exit,omitempty"`    // -1 when a signal ended it
	Signal  string        `json:"signal,omitempty"`  // that ended it
	Seconds float64       `json:"seconds,omitempty"` // from its start to its end
	Peak    gpu.Bytes     `json:"peak,omitempty"`    // most memory of one device that was measured; 0 nothing was measured
	Load    *float64      `json:"load,omitempty"`    // mean of the measured utilisation, 0..1; nil: nothing was measured
	Late    bool          `json:"late,omitempty"`    // it was ended because its time was over
	Stopped bool          `json:"stopped,omitempty"` // it was ended because the sweep was stopped: the run is not done
	Fault   string        `json:"fault,omitempty"`   // of the machine while it ran
	Problem string        `json:"problem,omitempty"` // why it could not be started
	Job     *Job          `json:"job,omitempty"`     // of Submit
	Told    *Away         `json:"told,omitempty"`    // of Tell
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
	Name  string          `json:"name"`
	Nice  int             `json:"nice,omitempty"` // runs with a lower one start first
	Held  bool            `json:"held,omitempty"`
	CPU   bool            `json:"cpu,omitempty"`     // it needs no device
	Time  time.Duration   `json:"time_ns,omitempty"` // how long it takes by its owner's guess; 0 none
	Kind  uint32          `json:"kind,omitempty"`    // the same for the same command
	GPUs  int             `json:"gpus,omitempty"`    // devices that it needs
	After []After         `json:"after,omitempty"`
	Array *Array          `json:"array,omitempty"`
	Retry Retry           `json:"retry"`
	Away  *Away           `json:"away,omitempty"` // another scheduler has it
	Data  json.RawMessage `json:"data,omitempty"` // for who starts it; not in the state
}

// After is another run that has to end before.
type After struct {
	Run int  `json:"run"`
	Any bool `json:"any,omitempty"` // however it ends; else only with 0
}

// Device is a device of a run.
type Device struct {
	Index int      `json:"index"` // of the device, as for status
	UUID  gpu.UUID `json:"uuid"`  // of the device, or of the MIG slice
}

// processAfterMove is what identifies the run's process after this event.
func (e Event) processAfterMove(begun Event) *Event {
	begun.Lease, begun.Devices, begun.Command, begun.CommandTicks = e.Lease, e.Devices, e.Command, e.CommandTicks
	if e.PID > 0 {
		begun.PID, begun.Ticks, begun.Kept = e.PID, e.Ticks, e.Kept
	}
	return &begun
}
