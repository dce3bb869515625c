package job

import (
	"time"

	"gpuard/internal/core/gpu"
)

// Care is the settings of a run that gpuard supervises to its end. Without them gpuard execs the command. The limits of
// its time are Spec.Timeout and Spec.Grace.
type Care struct {
	// --retry: how often it may be started again after a failure.
	Retries int
	// --retry N:any: after every failure, not only after those of the machine.
	Any     bool
	Restart Restart // of a service
	// Restarts of a service in a row; 0: no limit.
	Limit int
	// Restarts of a service in a row before this run.
	Streak int
	// --log: file that gets its output too; "" none.
	Log string
	// Size at which Log becomes Log.1.
	LogLimit gpu.Bytes
	// --drift: kinds of trouble that move it: hot, slow, sick; empty: it stays.
	Drift []string
	// --stop-signal: how it is asked to end, such as "SIGTERM".
	Stop string
	// --notify: who is told of its end; "" nobody.
	Notify string
}

// Restart says after which ends a run is started again; the pause before it grows.
type Restart string

// Values of Restart.
const (
	NoRestart Restart = "" // Retries decides
	// After every end except exit code 0 and a requested end.
	OnFailure Restart = "on-failure"
	// After every end that was not requested.
	Always Restart = "always"
)

// Result is the end of a supervised run.
type Result struct {
	// The lease of the last start; "" without a device.
	Lease   string
	Devices []Given // of the last start
	// How often the command was started.
	Starts int
	// All starts together, without the pauses between them.
	Ran time.Duration
	// Exit code; -1 when a signal ended it.
	Code int
	// That ended it: "SIGKILL"; "" none.
	Signal string
	// It was ended by the limit of its time.
	TimedOut bool
	// Its end was requested.
	Asked bool
	// Ends in a row after which a start was due or is one too many.
	Streak int
	// Why the run was not started again; "" when no start was due.
	Why string
	// Processes that still hold the lease.
	HeldBy []Blocker
	// Most host memory of one of its processes (getrusage(2), ru_maxrss); nil unknown.
	Peak *gpu.Bytes
}
