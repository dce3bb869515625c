package web

import (
	"net/http"
	"slices"
	"time"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

// publicReport is a report without what only its reader may know: whole command lines.
func publicReport(s status.Report) status.Report {
	s.Devices = slices.Clone(s.Devices)
	for i := range s.Devices {
		d := &s.Devices[i]
		d.MIG = slices.Clone(d.MIG)
		hideCommands(d)

		for j := range d.MIG {
			hideCommands(&d.MIG[j])
		}
	}

	s.Waiting = slices.Clone(s.Waiting)

	for i := range s.Waiting {
		s.Waiting[i].Why = s.Waiting[i].Discreet
	}

	return s
}

func hideCommands(d *status.Device) {
	d.Reason = d.Discreet
	d.Leases, d.Processes = slices.Clone(d.Leases), slices.Clone(d.Processes)

	for i := range d.Leases {
		l := &d.Leases[i]
		l.Line, l.Unhealthy, l.HeldBy = "", "", slices.Clone(l.HeldBy)

		for j := range l.HeldBy {
			l.HeldBy[j].Command = prose.ProgramName(l.HeldBy[j].Command)
		}
	}
	for i := range d.Processes {
		d.Processes[i].Command = prose.ProgramName(d.Processes[i].Command)
	}
}

func (s *Site) serveStatus(w http.ResponseWriter, r *http.Request) {
	seen := s.lastSeen()
	switch {
	case seen.At.IsZero():
		refuseRequest(w, http.StatusServiceUnavailable, seen.Trouble)
	case s.hasToken(r):
		replyJSON(w, seen.Report)
	default:
		s.replyCached(w, "status", seen.At, func() any { return publicReport(seen.Report) })
	}
}

// serveSource answers with what a source said last, which all who ask share.
func (s *Site) serveSource(w http.ResponseWriter, r *http.Request, source observe.Source) {
	answer, at, err := s.live.answerOf(r.Context(), source, maxJSONWait)
	switch {
	case err != nil:
		refuseRequest(w, http.StatusServiceUnavailable, err.Error())
	case source.Public == nil:
		s.replyCached(w, source.Name, at, func() any { return answer })
	case s.hasToken(r):
		replyJSON(w, answer)
	default:
		s.replyCached(w, source.Name, at, func() any { return source.Public(answer) })
	}
}

// Day is the JSON answer about the last day.
type Day struct {
	Schema string `json:"schema"` // "gpuard.day/1"
	// How long a minute is.
	Seconds float64 `json:"minute_seconds"`
	// Oldest first; a minute in which nothing was read is missing.
	Minutes []trend.Minute `json:"minutes"`
}

func (s *Site) serveDay(w http.ResponseWriter, _ *http.Request) {
	seen := s.lastSeen()
	s.replyCached(w, "day", lastMinuteEnd(seen.Minutes), func() any {
		return Day{"gpuard.day/1", seen.Width.Seconds(), append([]trend.Minute{}, seen.Minutes...)}
	})
}

// Index is the JSON answer about what can be asked for.
type Index struct {
	Schema string   `json:"schema"` // "gpuard.api/1"
	Paths  []string `json:"paths"`  // to be read
	// The actions to be asked for by POST with the token; empty without --token-file.
	Actions []string `json:"actions"`
}

func (s *Site) serveIndex(w http.ResponseWriter, _ *http.Request) {
	a := Index{"gpuard.api/1", []string{"/api/status", "/api/day"}, []string{}}
	for _, source := range s.Sources {
		a.Paths = append(a.Paths, "/api/"+source.Name)
	}
	for _, action := range s.Actions {
		if s.Token != "" {
			a.Actions = append(a.Actions, "/api/"+action.Name)
		}
	}
	replyJSON(w, a)
}

// lastMinuteEnd is the minute that was over last.
func lastMinuteEnd(minutes []trend.Minute) time.Time {
	if len(minutes) == 0 {
		return time.Time{}
	}
	return minutes[len(minutes)-1].At
}
