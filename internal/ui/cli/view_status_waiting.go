package cli

import (
	"fmt"
	"strings"

	"gpuard/internal/core/status"
)

// shownWaiting is the number of waiting requests that are listed. The others are counted.
const shownWaiting = 12

// waiting lists the waiting requests in the order of the line.
func (v *statusPage) waiting() {
	if len(v.s.Waiting) == 0 {
		return
	}
	v.line()
	v.line(span{bold, fmt.Sprintf("%d waiting", len(v.s.Waiting))})
	for i := range v.s.Waiting {
		if i == shownWaiting {
			v.line(span{dim, fmt.Sprintf("  and %d more", len(v.s.Waiting)-i)})
			return
		}
		w := &v.s.Waiting[i]
		o := occupant{style: cyan, user: v.text(w.User), command: v.text(w.Command), facts: append([]string{wanted(w)}, v.since(w.Since)...)}
		o.handle = []string{fmt.Sprintf("pid %d", w.PID)}
		if w.Apart {
			o.handle[0] += " in its container"
		}
		state := standstill(w)
		if state != "" {
			o.handle = append(o.handle, state)
		}
		v.occupant(fmt.Sprintf("  %s ", pad(fmt.Sprintf("%d.", w.Place), 3, true, "")), o)
		if state != "" && v.term.Width < tableWidth {
			v.line(span{normal, strings.Repeat(" ", min(6, max(v.term.Width, 0)))}, span{dim, cut(state, max(v.term.Width-6, 0), "")})
		}
	}
}

// standstill is the reason why a request does not move up in the line; "" if it does.
func standstill(w *status.Waiting) string {
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

// wanted is what a request waits for, in a few words.
func wanted(w *status.Waiting) string {
	text := fmt.Sprintf("%d GPUs", w.Count)
	if w.Count == 1 {
		text = "1 GPU"
	}
	switch {
	case w.Share > 0:
		text += fmt.Sprintf(", share %s", w.Share)
	case w.Memory > 0:
		text += fmt.Sprintf(", %s", w.Memory)
	}
	return text
}
