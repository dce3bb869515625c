package cli

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/status"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/planview"
)

// queuePlaceLine shows the place of a waiting request in the line. On a terminal it redraws one line; elsewhere it
// writes one line once. It draws nothing while another job has the terminal.
type queuePlaceLine struct {
	p       *Program
	mu      sync.Mutex
	line    LiveLine
	told    bool
	last    time.Time // when it was drawn
	began   time.Time
	pending *time.Timer
	latest  *status.Standing
}

const (
	// The shortest time between two redraws.
	redrawInterval = time.Second
	// A shorter wait is not shown, such as for the memory of the job before.
	minShownWait = 300 * time.Millisecond
)

// ShowStanding shows the place of a waiting request, unless quiet is set for -q or --json.
func (p *Program) ShowStanding(quiet bool) {
	if quiet {
		return
	}
	s := &queuePlaceLine{p: p, line: LiveLine{P: p}}
	p.Host.Stand, p.Host.Live = s.update, p.Term(p.Err).TTY
}

// update is called at each change; nil means that the wait is over.
func (s *queuePlaceLine) update(now *status.Standing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = now
	if now == nil {
		if s.pending != nil {
			s.pending.Stop()
		}
		s.pending, s.began, s.told = nil, time.Time{}, s.told && !s.p.Host.Live
		s.line.Wipe()

		return
	}

	if s.began.IsZero() {
		s.began = time.Now()
	}

	if s.pending != nil {
		return
	}

	if left := max(redrawInterval-time.Since(s.last), minShownWait-time.Since(s.began)); left > 0 {
		s.pending = time.AfterFunc(left, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.pending = nil
			s.draw()
		})
		return
	}

	s.draw()
}

func (s *queuePlaceLine) draw() {
	switch {
	case s.latest == nil:
	case s.p.Host.Live && OnScreen(s.p):
		s.last, s.told = time.Now(), true
		s.line.Draw(func(width int) string { return planview.StandingLine(*s.latest, time.Now(), s.p.language, width) })
	case !s.told && (!s.p.Host.Live || !stopsBackground(s.p)):
		s.told = true
		fmt.Fprintln(s.p.Err, "gpuard: "+planview.StandingLine(*s.latest, time.Now(), s.p.Term(s.p.Err).Language, 0))
	}
}

// OnScreen reports whether standard error is a terminal on which our process group is in the foreground.
func OnScreen(p *Program) bool {
	file, ok := p.Err.(*os.File)
	return ok && console.InForeground(file)
}

// stopsBackground reports whether the terminal stops a background job that writes to it (stty tostop). A stopped gpuard
// would hold up the line.
func stopsBackground(p *Program) bool {
	file, ok := p.Err.(*os.File)
	if !ok {
		return false
	}
	modes, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)

	return err == nil && modes.Lflag&unix.TOSTOP != 0
}
