package job

import (
	"time"

	"gpuard/internal/core/gpu"
)

// Care is how a run is looked after to its end by gpuard, which otherwise becomes the command and is gone. The limits of its
// time are Spec.Timeout and Spec.Grace.
type Care struct {
	Retries  int       // --retry: how often it may be started again after a failure
	Any      bool      // --retry N:any: after every failure, not just after one of the machine
	Restart  Restart   // of a service
	Log      string    // --log: file that gets its output too; "" none
	LogLimit gpu.Bytes // size at which Log becomes Log.1
	Drift    []string  // --drift: kinds of trouble that move it: hot, slow, sick; empty: it stays
	Stop     string    // --stop-signal: how it is asked to end, such as "SIGTERM"
}

// Restart says after which ends a run is started again, without a limit; the pause before it grows.
type Restart string

// When a run is started again by itself.
const (
	NoRestart Restart = ""           // Retries decides
	OnFailure Restart = "on-failure" // after every end but one with 0, and but one that was asked for
	Always    Restart = "always"     // after every end that was not asked for
)

// Result is how a run that was looked after ended.
type Result struct {
	Lease    string        // of the last start; "" without a device
	Devices  []Given       // of the last start
	Starts   int           // how often the command was started
	Ran      time.Duration // all starts together, without the waiting between them
	Code     int           // exit code; -1 when a signal ended it
	Signal   string        // that ended it: "SIGKILL"; "" none
	TimedOut bool          // it was ended by the limit of its time
	Asked    bool          // it was ended because that was asked for
	Why      string        // what speaks against another start that was to come; "" none was
	HeldBy   []Blocker     // who still holds the lease
	Peak     *gpu.Bytes    // most host memory of one of its processes (getrusage(2), ru_maxrss); nil unknown
}
