package run

import (
	"os"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/host/logfile"
)

// keeping connects a run to the supervisor of a service.
type keeping struct {
	ended func(r job.Result, next string) // nil: it is no service
	freed func()
	unfit <-chan Unfit
	hurry <-chan struct{}
	along *os.File
}

// Keep makes Supervise run a service. The service is ended when the ctx of Supervise ends; without time for that when
// hurry is closed; and when unfit has a reason, which counts as a failure. ended is called before each new start, with
// the result and the reason and time of that start, and freed when the devices are given back until then. The command
// also gets the open file along. Processes that it leaves behind are ended with it, and its output goes only to the log.
func (l *Launch) Keep(ended func(r job.Result, next string), freed func(), unfit <-chan Unfit, hurry <-chan struct{}, along *os.File) {
	l.keeping = keeping{ended, freed, unfit, hurry, along}
}

// Unfit is why a command that runs has to be ended.
type Unfit struct {
	Why  string
	Well time.Duration // from its start to when it last was as it should be
}

// Note writes a line of gpuard's own into a log.
func Note(host *machine.Host, path, text string) error { return logfile.Note(path, LogLine(text)) }
