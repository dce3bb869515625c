package cli

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/status"
)

// standing shows the place of a waiting request in the line. On a terminal it redraws one line; elsewhere it writes one
// line once. It draws nothing while another job has the terminal.
type standing struct {
	p       *Program
	mu      sync.Mutex
	told    bool
	shown   bool
	drawn   time.Time
	began   time.Time
	pending *time.Timer
	latest  *status.Standing
}

const (
	redraw = time.Second            // the shortest time between two redraws
	brief  = 300 * time.Millisecond // a shorter wait is not shown, such as for the memory of the job before
)

// showStanding shows the place of a waiting request, unless quiet is set for -q or --json.
func (p *Program) showStanding(quiet bool) {
	if quiet {
		return
	}
	s := &standing{p: p}
	p.Host.Stand, p.Host.Live = s.update, p.term(p.Err).TTY
}

// update is called at each change; nil means that the wait is over.
func (s *standing) update(now *status.Standing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest = now; now == nil {
		if s.pending != nil {
			s.pending.Stop()
		}
		s.pending, s.began, s.told = nil, time.Time{}, s.told && !s.p.Host.Live
		s.wipe()
		return
	}
	if s.began.IsZero() {
		s.began = time.Now()
	}
	if s.pending != nil {
		return
	}
	if left := max(redraw-time.Since(s.drawn), brief-time.Since(s.began)); left > 0 {
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

func (s *standing) draw() {
	switch {
	case s.latest == nil:
	case s.p.Host.Live && onScreen(s.p):
		s.drawn, s.shown, s.told = time.Now(), true, true
		width := max(s.p.term(s.p.Err).Width-len("gpuard: ")-1, 1) // in the last column some terminals begin a new line
		fmt.Fprint(s.p.Err, "\r\x1b[Kgpuard: "+Standing(*s.latest, time.Now(), width))
	case !s.told && (!s.p.Host.Live || !stopsBackground(s.p)):
		s.told = true
		fmt.Fprintln(s.p.Err, "gpuard: "+Standing(*s.latest, time.Now(), 0))
	}
}

func (s *standing) wipe() {
	if s.shown && onScreen(s.p) {
		fmt.Fprint(s.p.Err, "\r\x1b[K")
	}
	s.shown = false
}

// onScreen reports whether standard error is a terminal on which our process group is in the foreground.
func onScreen(p *Program) bool {
	file, ok := p.Err.(*os.File)
	return ok && inForeground(file)
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

// inForeground reports whether our process group is in the foreground of the terminal.
func inForeground(file *os.File) bool {
	group, err := unix.IoctlGetInt(int(file.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// Standing is the line: place, next job, and the holders with their devices and times. If width is not 0 it leaves out
// details until the first holder fits in width cells, and cuts the rest.
func Standing(s status.Standing, now time.Time, width int) string {
	text := ""
	for brevity := range 4 {
		head, rest := place(s, brevity), []string{}
		if s.Ahead != "" {
			head += "; " + s.Ahead + " is next"
		}
		if s.Stuck {
			head += "; a user has to act"
		}
		for _, h := range s.Holders {
			rest = append(rest, "; "+holder(h, now, brevity))
		}
		text = head + strings.Join(rest, "")
		if width <= 0 || cells(head+strings.Join(rest[:min(1, len(rest))], "")) <= width {
			break
		}
	}
	if width > 0 {
		text = cut(text, width, "...")
	}
	return text
}

// place is the beginning of the line.
func place(s status.Standing, brevity int) string {
	if s.Place == 0 {
		return "waiting for " + s.Want
	}
	at := fmt.Sprintf("%s of %d", ordinal(s.Place), s.Of)
	if brevity > 2 {
		return at
	}
	return "waiting for " + s.Want + ", " + at
}

// holder is "GPU 2: python of alice (PID 4242) since 14:02". With more brevity it leaves out the PID, then the time.
func holder(h status.Holder, now time.Time, brevity int) string {
	text := h.Device + ": "
	switch {
	case h.Device == "":
		return h.Text
	case h.Text != "":
		return text + h.Text
	case h.User == "":
		text += h.Command
	case h.Command == "":
		text += h.User
	default:
		text += h.Command + " of " + h.User
	}
	if h.PID > 0 && brevity < 1 {
		text += fmt.Sprintf(" (PID %d)", h.PID)
	}
	switch {
	case !h.Awaited.IsZero():
		text += " has ended, kept for its next start until " + h.Awaited.In(now.Location()).Format(time.TimeOnly)
	case h.Keeper != "":
		text += " has ended, still held by " + h.Keeper
	case !h.Since.IsZero() && brevity < 2:
		text += " since " + clock(h.Since, now)
	}
	return text
}

// clock is the time of day, with the date if it is not today.
func clock(t, now time.Time) string {
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04")
	}
	return t.Format("2006-01-02 15:04")
}

// ordinal is "1st", "2nd", "3rd", "11th".
func ordinal(n int) string {
	end := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			end = "st"
		case 2:
			end = "nd"
		case 3:
			end = "rd"
		}
	}
	return fmt.Sprint(n) + end
}
