package run

import (
	"os"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/host/logfile"
)

// serviceHooks connects a run to the supervisor of a service.
type serviceHooks struct {
	// nil: it is no service.
	ended func(r job.Result, next string)
	freed func()
	unfit <-chan EndReason
	hurry <-chan struct{}
	along *os.File
}

// SetService makes Supervise run a service. The service is ended when the ctx of Supervise ends; without time for that
// when hurry is closed; and when unfit has a reason, which counts as a failure. ended is called before each new start,
// with the result and the reason and time of that start, and freed when the devices are given back until then. The
// command also gets the open file along. Processes that it leaves behind are ended with it, and its output goes only to
// the log.
func (l *Launch) SetService(ended func(r job.Result, next string), freed func(), unfit <-chan EndReason, hurry <-chan struct{}, along *os.File) {
	l.keeping = serviceHooks{ended, freed, unfit, hurry, along}
}

// EndReason is why a command that runs has to be ended.
type EndReason struct {
	Why string
	// The time from its start to when it last was healthy.
	Well time.Duration
}

// WriteNote writes a line of gpuard's own into a log.
func WriteNote(host *machine.Host, path, text string) error {
	return logfile.WriteNote(path, LogLine(text))
}
