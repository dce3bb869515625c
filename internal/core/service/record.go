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
	// Its keeper runs and has not leased yet.
	Starting State = "starting"
	// Queued for a device.
	Waiting State = "waiting"
	Running State = "running"
	// Ended, and about to be restarted.
	Restarting State = "restarting"
	Ending     State = "ending" // asked to end
	// Ended with 0, or by gpuard.
	Done State = "done"
	// Ended otherwise, and not restarted.
	Failed State = "failed"
	// Cannot be placed, or its command cannot be started; see Why.
	Refused State = "refused"
)

// Record is written by the keeper of an instance, the gpuard that supervises it, and remains after both have ended.
type Record struct {
	State State `json:"state"`
	// It can be used; without a readiness check, as soon as it runs.
	Ready bool `json:"ready"`
	// The answer of its health check; nil: not known.
	Healthy *bool `json:"healthy,omitempty"`
	// One sentence: what it waits for, how it ended, why it was refused or is unhealthy.
	Why string `json:"why,omitempty"`
	// The hash of the Instance that it was started as.
	Hash string `json:"hash"`
	// The service of that Instance, like After: instances that are gone from the file still end in order.
	Service string       `json:"service"`
	After   []Dependency `json:"after"`
	Keeper  Process      `json:"keeper"`
	// The command; zero when it does not run.
	Main Process `json:"main"`
	// boot id: processes of another boot are gone.
	Boot string `json:"boot"`
	// Inode of the PID namespace in which processes count.
	Namespace uint64      `json:"pid_namespace"`
	Lease     string      `json:"lease,omitempty"`
	Devices   []job.Given `json:"devices"`
	Share     gpu.Bytes   `json:"share,omitempty"`
	Since     time.Time   `json:"since"` // of State
	Restarts  int         `json:"restarts"`
	Streak    int         `json:"streak,omitempty"`
	// The exit code of the last end; nil: none yet, by a signal, or unknown.
	Exit   *int   `json:"exit"`
	Signal string `json:"signal,omitempty"`
	// Devices of its last start, preferred for the next.
	Last []gpu.UUID `json:"last"`
	// End of its log before this start.
	Output Place `json:"output"`
	// The signal that asks it to end, and the time it has then.
	Stop  string        `json:"stop"`
	Grace time.Duration `json:"grace"`
}

// Place is a position in a file, which may have been renamed since.
type Place struct {
	// 0: there was no file.
	Inode  uint64 `json:"inode"`
	Offset int64  `json:"offset"`
}

// Wanted is the wanted state of a project.
type Wanted struct {
	File string `json:"file"`
	Name string `json:"name"`
	// --machine: "" for the hardware.
	Machine string `json:"machine,omitempty"`
	// The last Round of any instance.
	Count int `json:"count"`
	// The instances in the order of the file.
	Instances []Instance `json:"instances"`
}

// Process is one process of one boot.
type Process struct {
	PID int `json:"pid"`
	// Ticks since boot, to recognise a reused PID.
	Start uint64 `json:"start"`
}

// Seen is the state of an instance as found.
type Seen struct {
	Record
	// Its keeper lives (its lock is held).
	Kept bool
	// Its keeper has ended, but some of its processes live.
	Orphaned bool
}
