package services

import (
	"context"

	"gpuard/internal/host/tail"
)

// Logs are the outputs of instances as they are written, through restarts and full files. One goroutine may read them.
type Logs struct {
	tail  *tail.Tail
	names []string // by number of file
}

// Line is one line that an instance wrote.
type Line struct {
	Instance string
	Text     []byte // until the next call only
	Over     bool   // a terminal shows the next line of the instance in its place
}

// AllLines of what was written, for Add.
const AllLines = tail.All

// NewLogs begins. Close it when done.
func NewLogs() *Logs { return &Logs{tail: tail.New()} }

// Add begins with the last lines of an instance; 0 is what it writes from now on.
func (l *Logs) Add(row Row, last int) {
	l.tail.Add(row.Log, last)
	l.names = append(l.names, row.Name)
}

// Now is a line that is there already.
func (l *Logs) Now() (Line, bool) {
	line, ok := l.tail.Now()
	if !ok {
		return Line{}, false
	}
	return l.of(line), true
}

// Unended is a last line without an end, when Now has no more.
func (l *Logs) Unended() (Line, bool) {
	line, ok := l.tail.Unended()
	if !ok {
		return Line{}, false
	}
	return l.of(line), true
}

func (l *Logs) of(line tail.Line) Line { return Line{l.names[line.File], line.Text, line.Over} }

// Wait returns when Now may have more, or after Look. The error is that of ctx.
func (l *Logs) Wait(ctx context.Context) error { return l.tail.Wait(ctx) }

// Look makes Now see all that was written before this call, and ends a Wait; any goroutine may call it.
func (l *Logs) Look() { l.tail.Look() }

// Close lets go of the files.
func (l *Logs) Close() { l.tail.Close() }
