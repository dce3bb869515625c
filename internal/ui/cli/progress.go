package cli

import (
	"fmt"
	"sync"
	"time"

	"gpuard/internal/ui/console"
)

// progressInterval is the time between two drawings of a line of progress.
const progressInterval = 200 * time.Millisecond

// LiveLine is a line at the bottom of a terminal that is drawn again and again, while the terminal is not another
// program's.
type LiveLine struct {
	P *Program
	// It is on the screen.
	drawn bool
}

// Draw replaces the line. of makes a text of at most so many columns: in the last one some terminals begin a new line.
func (l *LiveLine) Draw(of func(width int) string) {
	const lead = "gpuard: "
	if OnScreen(l.P) {
		fmt.Fprint(l.P.Err, "\r\x1b[K"+lead+of(max(l.P.Term(l.P.Err).Width-len(lead)-1, 1)))
		l.drawn = true
	}
}

// Wipe takes the line away. Call it before other output.
func (l *LiveLine) Wipe() {
	if l.drawn && OnScreen(l.P) {
		fmt.Fprint(l.P.Err, "\r\x1b[K")
	}
	l.drawn = false
}

// ProgressLine is a line of progress at the bottom of a terminal, drawn from the first second on. On anything else than
// a terminal, and while the terminal belongs to another program, it draws nothing.
type ProgressLine struct {
	p     *Program
	quiet bool

	mu       sync.Mutex
	drawFrom time.Time
	drawn    bool
}

// NewProgressLine makes a line of progress; quiet draws none, as for --json. What the program says meanwhile is written
// above it.
func NewProgressLine(p *Program, quiet bool) *ProgressLine {
	l := &ProgressLine{p: p, quiet: quiet || !p.Term(p.Err).TTY, drawFrom: time.Now().Add(time.Second)}
	if !l.quiet {
		say := p.Host.Say
		p.Host.Say = func(text string) {
			l.Wipe()
			say(text)
		}
	}
	return l
}

// Show replaces the line. text is asked only if it is time to draw.
func (l *ProgressLine) Show(text func() string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.quiet || now.Before(l.drawFrom) || !OnScreen(l.p) {
		return
	}

	// in the last column some terminals begin a new line
	fmt.Fprint(l.p.Err, "\r\x1b[K"+console.Cut(text(), max(l.p.Term(l.p.Err).Width-1, 1), ""))
	l.drawn, l.drawFrom = true, now.Add(progressInterval)
}

// Wipe takes the line away.
func (l *ProgressLine) Wipe() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drawn && OnScreen(l.p) {
		fmt.Fprint(l.p.Err, "\r\x1b[K")
		l.drawn = false
	}
}
