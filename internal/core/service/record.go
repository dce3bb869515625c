package service

import (
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// State is the state of an instance.
type State string

// States of an instance.
const (
	Starting   State = "starting" // its keeper runs and has not leased yet
	Waiting    State = "waiting"  // queued for a device
	Running    State = "running"
	Restarting State = "restarting" // ended, and about to be restarted
	Ending     State = "ending"     // asked to end
	Done       State = "done"       // ended with 0, or by gpuard
	Failed     State = "failed"     // ended otherwise, and not restarted
	Refused    State = "refused"    // cannot be placed, or its command cannot be started; see Why
)

// Record is written by the keeper of an instance, the gpuard that supervises it, and remains after both have ended.
type Record struct {
	State     State         `json:"state"`
	Ready     bool          `json:"ready"`             // it can be used; without a readiness check, as soon as it runs
	Healthy   *bool         `json:"healthy,omitempty"` // by its health check; nil: not known
	Why       string        `json:"why,omitempty"`     // one sentence: what it waits for, how it ended, why it was refused or is unhealthy
	Hash      string        `json:"hash"`              // of the Instance that it was started as
	Service   string        `json:"service"`           // of that Instance, like After: instances that are gone from the file still end in order
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
	Streak    int           `json:"streak,omitempty"`
	Exit      *int          `json:"exit"` // of the last end; nil: none yet, by a signal, or unknown
	Signal    string        `json:"signal,omitempty"`
	Last      []gpu.UUID    `json:"last"`   // devices of its last start, preferred for the next
	Output    Place         `json:"output"` // end of its log before this start
	Stop      string        `json:"stop"`   // the signal that asks it to end, and the time it has then
	Grace     time.Duration `json:"grace"`
}

// Place is a position in a file, which may have been renamed since.
type Place struct {
	Inode  uint64 `json:"inode"` // 0: there was no file
	Offset int64  `json:"offset"`
}

// Wanted is the wanted state of a project.
type Wanted struct {
	File      string     `json:"file"`
	Name      string     `json:"name"`
	Machine   string     `json:"machine,omitempty"` // --machine: "" for the hardware
	Count     int        `json:"count"`             // the last Round of any instance
	Instances []Instance `json:"instances"`         // in the order of the file
}

// Process is one process of one boot.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // ticks since boot, to recognise a reused PID
}

// Seen is the state of an instance as found.
type Seen struct {
	Record
	Kept     bool // its keeper lives (its lock is held)
	Orphaned bool // its keeper has ended, but some of its processes live
}
