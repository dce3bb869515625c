package seecmd

import (
	"fmt"
	"strings"

	"gpuard/internal/core/status"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/planview"
)

// shownWaiting is the number of waiting requests that are listed. The others are counted.
const shownWaiting = 12

// writeWaiting lists the waiting requests in the order of the line.
func (v *statusPage) writeWaiting() {
	if len(v.s.Waiting) == 0 {
		return
	}
	v.Line()
	v.Line(console.Bold.Span(v.Term.Translate(fmt.Sprintf("%d waiting", len(v.s.Waiting)))))

	for i := range v.s.Waiting {
		if i == shownWaiting {
			v.Line(console.Dim.Span("  " + v.Term.Translate(fmt.Sprintf("and %d more", len(v.s.Waiting)-i))))
			return
		}

		w := &v.s.Waiting[i]
		o := occupant{style: console.Cyan, user: v.Text(w.User), command: v.Text(w.Command), facts: append([]string{v.Term.Translate(planview.WantedText(w))}, v.sinceText(w.Since)...)}
		o.handle = []string{fmt.Sprintf("pid %d", w.PID)}
		if w.Apart {
			o.handle[0] = v.Term.Translate(o.handle[0] + " in its container")
		}

		state := v.Term.Translate(standstillText(w))
		if state != "" {
			o.handle = append(o.handle, state)
		}

		v.writeOccupant(fmt.Sprintf("  %s ", console.Pad(fmt.Sprintf("%d.", w.Place), 3, true, "")), o)
		if state != "" && v.Term.Width < console.TableWidth {
			v.Line(console.Normal.Span(strings.Repeat(" ", min(6, max(v.Term.Width, 0)))), console.Dim.Span(console.Cut(state, max(v.Term.Width-6, 0), "")))
		}
	}
}

// standstillText is the reason why a request does not move up in the line; "" if it does.
func standstillText(w *status.Waiting) string {
	switch {
	case w.Passed && w.Stopped:
		return "stopped, passed over"
	case w.Passed:
		return "passed over"
	case w.Stopped:
		return "stopped"
	case w.Most > 0:
		return fmt.Sprintf("a rule allows %d at a time", w.Most)
	}
	return ""
}
