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

// public is a report without what only its reader may know: whole command lines.
func public(s status.Report) status.Report {
	s.Devices = slices.Clone(s.Devices)
	for i := range s.Devices {
		d := &s.Devices[i]
		d.MIG = slices.Clone(d.MIG)
		discreet(d)
		for j := range d.MIG {
			discreet(&d.MIG[j])
		}
	}
	s.Waiting = slices.Clone(s.Waiting)
	for i := range s.Waiting {
		s.Waiting[i].Why = s.Waiting[i].Discreet
	}
	return s
}

func discreet(d *status.Device) {
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

func (s *Site) status(w http.ResponseWriter, r *http.Request) {
	seen := s.seen()
	switch {
	case seen.At.IsZero():
		refuse(w, http.StatusServiceUnavailable, seen.Trouble)
	case s.permitted(r):
		reply(w, seen.Report)
	default:
		s.replyOnce(w, "status", seen.At, func() any { return public(seen.Report) })
	}
}

// source answers with what a source said last, which all who ask share.
func (s *Site) source(w http.ResponseWriter, r *http.Request, source observe.Source) {
	answer, at, err := s.live.answer(r.Context(), source, jsonWaits)
	switch {
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, err.Error())
	case source.Public == nil:
		s.replyOnce(w, source.Name, at, func() any { return answer })
	case s.permitted(r):
		reply(w, answer)
	default:
		s.replyOnce(w, source.Name, at, func() any { return source.Public(answer) })
	}
}

// Day is the JSON answer about the last day.
type Day struct {
	Schema  string         `json:"schema"`         // "gpuard.day/1"
	Seconds float64        `json:"minute_seconds"` // how long a minute is
	Minutes []trend.Minute `json:"minutes"`        // oldest first; a minute in which nothing was read is missing
}

func (s *Site) day(w http.ResponseWriter, _ *http.Request) {
	seen := s.seen()
	s.replyOnce(w, "day", ended(seen.Minutes), func() any {
		return Day{"gpuard.day/1", seen.Width.Seconds(), append([]trend.Minute{}, seen.Minutes...)}
	})
}

// Index is the JSON answer about what can be asked for.
type Index struct {
	Schema  string   `json:"schema"`  // "gpuard.api/1"
	Paths   []string `json:"paths"`   // to be read
	Actions []string `json:"actions"` // to be asked for by POST with the token; empty without --token-file
}

func (s *Site) index(w http.ResponseWriter, _ *http.Request) {
	a := Index{"gpuard.api/1", []string{"/api/status", "/api/day"}, []string{}}
	for _, source := range s.Sources {
		a.Paths = append(a.Paths, "/api/"+source.Name)
	}
	for _, action := range s.Actions {
		if s.Token != "" {
			a.Actions = append(a.Actions, "/api/"+action.Name)
		}
	}
	reply(w, a)
}

// ended is the minute that was over last.
func ended(minutes []trend.Minute) time.Time {
	if len(minutes) == 0 {
		return time.Time{}
	}
	return minutes[len(minutes)-1].At
}
