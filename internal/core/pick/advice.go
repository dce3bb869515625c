package pick

import (
	"cmp"
	"fmt"
	"strings"

	"gpuard/internal/core/display"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// isOfCaller reports whether a process is one of the user who asks.
func (q *query) isOfCaller(p gpu.Process) bool { return p.UID != nil && *p.UID == q.in.UID }

// mayEvict reports whether the caller may end another user's process. Not even root may where the owner is unknown, as
// in a machine read from a file: the process is not on this machine.
func (q *query) mayEvict(p gpu.Process) bool {
	return p.UID != nil && q.in.UID == 0 && p.Container == ""
}

// deviceScreen is what is known of the display of the device that a process is on.
func (q *query) deviceScreen(id gpu.UUID) display.Screen {
	d, _, found := q.m.FindDevice(id)
	if !found {
		return display.Screen{}
	}
	if s, known := q.screens[d.UUID]; known {
		return s
	}

	s := display.ScreenOf(*d, q.m.ProcessesOn(d.UUID))
	if q.screens == nil {
		q.screens = map[gpu.UUID]display.Screen{}
	}

	q.screens[d.UUID] = s

	return s
}

// servesDisplay reports whether a process serves a display.
func (q *query) servesDisplay(p gpu.Process) bool { return q.deviceScreen(p.GPU).Serves(p) }

// maySuggest decides whether a sentence may suggest to end a process. Never one that may serve a display, nor one of
// which nobody knows which process it is here.
func (q *query) maySuggest(p gpu.Process) bool {
	return p.PID != 0 && !isEnding(p) && !q.deviceScreen(p.GPU).MayServe(p)
}

// endText says how a process is ended.
func (q *query) endText(p gpu.Process) string {
	switch {
	case p.PID == 0:
		return "only outside of this PID namespace can it be ended"
	case !q.maySuggest(p):
		return "it may serve a display"
	case p.ServesMPS():
		return "other programs compute through it, and end with it"
	case q.isOfCaller(p):
		return fmt.Sprintf("end it: kill %d", p.PID)
	case q.mayEvict(p):
		return option.Sprintf("{gpuard evict} %d ends it", p.PID)
	}
	return fmt.Sprintf("%s can end it", cmp.Or(prose.Clean(p.User), "its owner"))
}

// endRemedy is the remedy for several processes: one command, or the users to ask. The command to end another user's
// processes is only for those who may.
func (q *query) endRemedy(ps []gpu.Process) string {
	var pids, owners, drawing, serving []string
	own, evict, outside := true, true, false
	for _, p := range ps {
		switch {
		case p.PID == 0:
			outside = true
		case isEnding(p):
		case !q.maySuggest(p):
			drawing = append(drawing, fmt.Sprint(p.PID))
		case p.ServesMPS():
			serving = append(serving, fmt.Sprint(p.PID))
		default:
			pids = append(pids, fmt.Sprint(p.PID))
			owners = append(owners, cmp.Or(prose.Clean(p.User), "the owner of PID "+fmt.Sprint(p.PID)))
			own, evict = own && q.isOfCaller(p), evict && q.mayEvict(p)
		}
	}

	var parts []string
	whose := prose.JoinWords(uniqueStrings(owners), "and")
	switch {
	case len(pids) == 0:
	case own && len(pids) == 1 && q.in.Apart && len(q.in.Own) == 0:
		parts = append(parts, option.Sprintf("lease it for what runs there ({gpuard reserve} {pid=%s})", pids[0]))
	case own:
		parts = append(parts, fmt.Sprintf("end what runs there (kill %s)", strings.Join(pids, " ")))
	case evict:
		parts = append(parts, option.Sprintf("end the processes of %s there ({gpuard evict} %s)", whose, strings.Join(pids, " ")))
	default:
		parts = append(parts, fmt.Sprintf("ask %s to end PID %s", whose, prose.JoinWords(pids, "and")))
	}

	if len(drawing) > 0 {
		parts = append(parts, fmt.Sprintf("close on its display what is not needed there (PID %s)", prose.JoinWords(drawing, "and")))
	}

	if len(serving) > 0 {
		parts = append(parts, fmt.Sprintf("wait for what computes through MPS (PID %s)", prose.JoinWords(serving, "and")))
	}

	if outside {
		parts = append(parts, "find outside of this PID namespace what uses it, and end it there")
	}

	return strings.Join(parts, "; ")
}

// displayText is the one line about everything that serves a display.
func (q *query) displayText(c processSet) string {
	whose := "a display"
	for _, p := range c.ps {
		if q.isOfCaller(p) {
			whose = "your display"
		}
	}

	size := c.known.String()
	if c.vague && c.known == 0 {
		size = "unknown size"
	}

	return fmt.Sprintf("also drives %s, %s", whose, size)
}

// displayObstacle is the obstacle of a device whose display uses more than is tolerated. It is never to be ended.
func (q *query) displayObstacle(c processSet) *obstacle {
	t := q.in.Tolerate
	o := &obstacle{code: "foreign-process", text: fmt.Sprintf("in use by its display (%s), more than the %s that %s tolerates", q.processesText(c.ps), t.Display, cmp.Or(t.DisplayBy, "gpuard")),
		remedy: "close on its display what is not needed there, or " + cmp.Or(t.DisplayRaise, "have root raise tolerate.display in /etc/gpuard/config.yaml")}
	if t.DisplayCut != "" {
		o.text += "; " + t.DisplayCut
	}

	return o
}
