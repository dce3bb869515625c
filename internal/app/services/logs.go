package services

import (
	"context"
	"slices"

	"gpuard/internal/host/tail"
)

// Logs are the outputs of instances as they are written, through restarts and full files. One goroutine may read them.
type Logs struct {
	tail  *tail.Tail
	paths []string // by number of file
	// The same; "" for what nobody asked for.
	names []string
}

// LogLine is one line that an instance wrote.
type LogLine struct {
	Instance string
	// The line, valid until the next call only.
	Text []byte
	// A terminal shows the next line of the instance in its place.
	Over bool
}

// AllLines of what was written, for Add.
const AllLines = tail.AllLines

// NewLogs begins. Close it when done.
func NewLogs() *Logs { return &Logs{tail: tail.New()} }

// SkipExisting leaves out what was written before this call, also by instances that are not wanted now and will be.
func (l *Logs) SkipExisting(f *Folder, view *View) {
	for i := range view.Rows {
		l.addFile(view.Rows[i].Log, 0)
	}
	if folder, err := f.openFolder(); err == nil && folder != nil {
		for _, name := range folder.Instances() {
			l.addFile(folder.LogPath(name), 0)
		}
	}
}

// Add begins with the last lines of an instance; 0 is what it writes from now on.
func (l *Logs) Add(row Row, last int) { l.names[l.addFile(row.Log, last)] = row.Name }

// addFile numbers a file, the first time from where.
func (l *Logs) addFile(path string, last int) int {
	if i := slices.Index(l.paths, path); i >= 0 {
		return i
	}
	l.paths, l.names = append(l.paths, path), append(l.names, "")
	return l.tail.Add(path, last)
}

// Now is a line that is there already.
func (l *Logs) Now() (LogLine, bool) { return l.toLine(l.tail.Now) }

// UnendedLine is a last line without an end, when Now has no more.
func (l *Logs) UnendedLine() (LogLine, bool) { return l.toLine(l.tail.UnendedLine) }

func (l *Logs) toLine(next func() (tail.Line, bool)) (LogLine, bool) {
	for {
		line, ok := next()
		if !ok {
			return LogLine{}, false
		}
		if name := l.names[line.File]; name != "" {
			return LogLine{name, line.Text, line.Over}, true
		}
	}
}

// Wait returns when Now may have more, or after ReadView. The error is that of ctx.
func (l *Logs) Wait(ctx context.Context) error { return l.tail.Wait(ctx) }

// Refresh makes Now return everything that was written before this call, and ends a Wait; any goroutine may call it.
func (l *Logs) Refresh() { l.tail.RecheckFiles() }

// Close lets go of the files.
func (l *Logs) Close() { l.tail.Close() }
