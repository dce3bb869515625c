package run

import (
	"io"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/host/logfile"
)

// CheckLog reports whether a file for --log can be written, before a GPU is waited for. It is made when it is missing.
// The caller closes it when the run is over.
func CheckLog(host *machine.Host, path string) (io.Closer, error) { return logfile.OpenToCheck(path) }

// WriteLog writes what gpuard says of a run into the file of --log too, where there is one. What fails there is no
// fault of the run.
func (l *Launch) WriteLog(text string) {
	if l.log != nil {
		_ = l.log.WriteNote(LogLine(text))
	}
}

// LogLine is a line of gpuard's own among those of the command.
func LogLine(text string) string {
	return "# gpuard: " + time.Now().Format(time.RFC3339) + ": " + text
}

// commandLine is the whole command as a shell would read it, because only the owner reads this log. Control characters
// are replaced.
func commandLine(argv []string) string {
	return prose.Clean(shellquote.JoinQuoted(shellquote.Sh, argv...))
}

// writeLog writes what was said in another way.
func (s *supervision) writeLog(text string) {
	if s.log != nil {
		_ = s.log.WriteNote(LogLine(text))
	}
}
