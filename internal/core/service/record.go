package service

import (
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// State is what an instance does.
type State string

// States of an instance.
const (
	Starting   State = "starting" // its keeper has begun and has not leased yet
	Waiting    State = "waiting"  // in line for a device
	Running    State = "running"
	Restarting State = "restarting" // ended, and about to be started again
	Ending     State = "ending"     // asked to end
	Done       State = "done"       // ended with 0, or ended by us
	Failed     State = "failed"     // ended otherwise and is not started again
	Refused    State = "refused"    // cannot be placed, or its command cannot be started: Why says it
)

// Record is what the keeper of an instance, the gpuard beside it, writes down. It stays when both are gone.
type Record struct {
	State     State         `json:"state"`
	Ready     bool          `json:"ready"`         // it could be used; true as soon as it runs where nothing else is asked for
	Why       string        `json:"why,omitempty"` // one sentence: what it waits for, how it ended, why it was refused
	Hash      string        `json:"hash"`          // of the Instance that it was started as
	Service   string        `json:"service"`       // of that Instance, as is After: what is gone from the file still ends in order
	After     []Dependency  `json:"after"`
	Keeper    Process       `json:"keeper"`
	Main      Process       `json:"main"`          // the command; zero when it does not run
	Boot      string        `json:"boot"`          // boot id: processes of another boot are gone
	Namespace uint64        `json:"pid_namespace"` // inode of the PID namespace in which processes count
	Lease     string        `json:"lease,omitempty"`
	Devices   []job.Given   `json:"devices"`
	Share     gpu.Bytes     `json:"share,omitempty"`
	Since     time.Time     `json:"since"` // of State
	Restarts  int           `json:"restarts"`
	Exit      *int          `json:"exit"` // of the last end; nil: none yet, by a signal, or nobody saw it
	Signal    string        `json:"signal,omitempty"`
	Last      []gpu.UUID    `json:"last"`   // devices of its last start: the same again where they are free
	Output    Place         `json:"output"` // where its log ended before this start
	Stop      string        `json:"stop"`   // how it is asked to end, and how long it may take then
	Grace     time.Duration `json:"grace"`
}

// Place is a point in a file, which may have another name by now.
type Place struct {
	Inode  uint64 `json:"inode"` // 0: there was no file
	Offset int64  `json:"offset"`
}

// Wanted is what a project shall be, until somebody says otherwise.
type Wanted struct {
	File      string     `json:"file"`
	Name      string     `json:"name"`
	Machine   string     `json:"machine,omitempty"` // --machine: "" for the hardware
	Count     int        `json:"count"`             // the last Round that was given to an instance
	Instances []Instance `json:"instances"`         // in the order of the file
}

// Process is one process of one boot.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // ticks since boot, to recognise a reused PID
}

// Seen is an instance as it is found.
type Seen struct {
	Record
	Kept     bool // its keeper lives (its lock is held)
	Orphaned bool // its keeper is gone, but processes of it live
}
