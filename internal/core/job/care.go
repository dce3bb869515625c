package job

import (
	"time"

	"gpuard/internal/core/gpu"
)

// Care is the settings of a run that gpuard supervises to its end. Without them gpuard execs the command. The limits of
// its time are Spec.Timeout and Spec.Grace.
type Care struct {
	Retries  int       // --retry: how often it may be started again after a failure
	Any      bool      // --retry N:any: after every failure, not only after those of the machine
	Restart  Restart   // of a service
	Limit    int       // restarts of a service in a row; 0: no limit
	Streak   int       // restarts of a service in a row before this run
	Log      string    // --log: file that gets its output too; "" none
	LogLimit gpu.Bytes // size at which Log becomes Log.1
	Drift    []string  // --drift: kinds of trouble that move it: hot, slow, sick; empty: it stays
	Stop     string    // --stop-signal: how it is asked to end, such as "SIGTERM"
	Notify   string    // --notify: who is told of its end; "" nobody
}

// Restart says after which ends a run is started again; the pause before it grows.
type Restart string

// Values of Restart.
const (
	NoRestart Restart = ""           // Retries decides
	OnFailure Restart = "on-failure" // after every end except exit code 0 and a requested end
	Always    Restart = "always"     // after every end that was not requested
)

// Result is the end of a supervised run.
type Result struct {
	Lease    string        // of the last start; "" without a device
	Devices  []Given       // of the last start
	Starts   int           // how often the command was started
	Ran      time.Duration // all starts together, without the pauses between them
	Code     int           // exit code; -1 when a signal ended it
	Signal   string        // that ended it: "SIGKILL"; "" none
	TimedOut bool          // it was ended by the limit of its time
	Asked    bool          // its end was requested
	Streak   int           // ends in a row after which a start was due or is one too many
	Why      string        // why the run was not started again; "" when no start was due
	HeldBy   []Blocker     // processes that still hold the lease
	Peak     *gpu.Bytes    // most host memory of one of its processes (getrusage(2), ru_maxrss); nil unknown
}
