package run

import (
	"os"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/host/logfile"
)

// keeping is what the one who keeps a service hears of a run, and what may be asked of that.
type keeping struct {
	ended func(r job.Result, next string) // nil: it is no service
	unfit <-chan string
	hurry <-chan struct{}
	along *os.File
}

// Keep makes Supervise keep a service: it is ended when ctx of Supervise ends, or hurry is closed, which leaves it no time for
// that, or unfit says why, which counts as a failure. ended hears of every end after which it is started again, and when and why.
// The command gets the open file along too. What it leaves behind ends with it, and its output goes into the log alone.
func (l *Launch) Keep(ended func(r job.Result, next string), unfit <-chan string, hurry <-chan struct{}, along *os.File) {
	l.keeping = keeping{ended, unfit, hurry, along}
}

// Note writes a line of gpuard's own into a log.
func Note(host *machine.Host, path, text string) error { return logfile.Note(path, logLine(text)) }
