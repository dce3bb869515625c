package run

import (
	"os"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/host/logfile"
)

// serviceHooks connects a run to the supervisor of a service. Without beforeRestart the run is none of a service.
type serviceHooks struct {
	// Called before each new start, with the result and the reason and time of that start.
	beforeRestart func(r job.Result, next string)
	// Called when the devices are given back for the pause before a start.
	devicesFreed func()
	// A reason on it ends the service as failed.
	mustEnd <-chan EndReason
	// When it is closed the service ends without time to tidy up.
	endNow <-chan struct{}
	// A file that the command gets too.
	extraFile *os.File
}

// SetService makes Supervise run a service. The service ends
//   - when the ctx of Supervise ends,
//   - without time to tidy up when endNow is closed,
//   - as failed when mustEnd gives a reason.
//
// beforeRestart is called before each new start, with the result and the reason and time of that start; devicesFreed
// when the devices are given back for the pause before it. The command also gets extraFile. Processes that it leaves
// behind are ended with it, and its output goes only to the log.
func (l *Launch) SetService(beforeRestart func(r job.Result, next string), devicesFreed func(), mustEnd <-chan EndReason, endNow <-chan struct{}, extraFile *os.File) {
	l.service = serviceHooks{beforeRestart, devicesFreed, mustEnd, endNow, extraFile}
}

// EndReason is why a command that runs has to be ended.
type EndReason struct {
	Why string
	// The time for which it was healthy after its start.
	HealthyFor time.Duration
}

// WriteNote writes a line of gpuard's own into a log.
func WriteNote(host *machine.Host, path, text string) error {
	return logfile.WriteNote(path, LogLine(text))
}
