package service

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Do is what has to be done about an instance.
type Do string

// What can be done.
const (
	Start Do = "start" // a keeper is missing: one that finds processes of the instance adopts them
	End   Do = "end"
)

// Action is one step towards what is wanted.
type Action struct {
	Do       Do
	Instance string
}

// Next returns what can be done now so that what is wanted comes about, at most one Start. It is asked again after every change
// of what is seen; a keeper that was just started and has not written anything counts as seen with Kept and no State. An End is
// named until its keeper has written that it ends.
//
// Ends go in the reverse order of dependencies. Starts go one by one, so that GPUs are claimed in an order that does not change:
// instances with a GPU of their own first, then those that have had one, then the rest, each in the order of wanted. What shall
// be started anew holds back what comes behind it until it is gone, or its GPU would be taken.
func Next(wanted []Instance, seen map[string]Seen) []Action {
	l := look{wanted: wanted, seen: seen}
	actions := l.ends()
	if name := l.start(); name != "" {
		actions = append(actions, Action{Start, name})
	}
	return actions
}

// Held says why instances that are wanted are not started: "waits for db-0 to be ready". Others have no entry.
func Held(wanted []Instance, seen map[string]Seen) map[string]string {
	l := look{wanted: wanted, seen: seen}
	why := map[string]string{}
	for _, i := range wanted {
		switch {
		case i.Refused != "" && !l.alive(i.Name):
			why[i.Name] = i.Refused
		case l.missing(i) && !seen[i.Name].Orphaned:
			if text := l.lacks(i); text != "" {
				why[i.Name] = text
			}
		}
	}
	return why
}

// look is one look at a project.
type look struct {
	wanted []Instance
	seen   map[string]Seen
}

// alive reports whether anything of an instance is there.
func (l *look) alive(name string) bool { return l.seen[name].Kept || l.seen[name].Orphaned }

// over reports whether an instance has come to its end and is not started again by itself.
func (s State) over() bool { return s == Done || s == Failed || s == Refused }

// stale reports whether an instance lives as something that is not wanted, or not wanted any more.
func (l *look) stale(name string) bool {
	if !l.alive(name) || l.fresh(name) {
		return false
	}
	i := l.find(name)
	return i < 0 || l.seen[name].Hash != l.wanted[i].Hash
}

// fresh reports whether a keeper has not written yet as what it was started. It was started as what was wanted then; what
// became of that it writes soon.
func (l *look) fresh(name string) bool { return l.seen[name].Kept && l.seen[name].State == "" }

func (l *look) find(name string) int {
	return slices.IndexFunc(l.wanted, func(i Instance) bool { return i.Name == name })
}

// ends are the instances that can be asked to end now: nothing that depends on them, as they were started, has still to go.
func (l *look) ends() []Action {
	var stale []string
	for name := range l.seen {
		if l.stale(name) {
			stale = append(stale, name)
		}
	}
	slices.SortFunc(stale, func(a, b string) int { return cmp.Or(cmp.Compare(l.find(b), l.find(a)), cmp.Compare(b, a)) })
	needed := func(name string) bool {
		return slices.ContainsFunc(stale, func(other string) bool {
			return other != name && slices.ContainsFunc(l.seen[other].After, func(d Dependency) bool { return d.Service == l.seen[name].Service })
		})
	}
	var actions []Action
	for _, name := range stale {
		if !l.ending(name) && !needed(name) {
			actions = append(actions, Action{End, name})
		}
	}
	if len(actions) == 0 && !slices.ContainsFunc(stale, l.ending) { // instances of different files may depend on each other in a ring
		for _, name := range stale {
			actions = append(actions, Action{End, name})
		}
	}
	return actions
}

// ending reports whether a keeper ends its instance. One that was killed meanwhile does not any more.
func (l *look) ending(name string) bool { return l.seen[name].Kept && l.seen[name].State == Ending }

// start is the instance to start now; "" when there is none.
func (l *look) start() string {
	for _, i := range l.wanted {
		if l.seen[i.Name].Orphaned && l.missing(i) {
			return i.Name // it runs; it only lacks somebody who looks after it
		}
	}
	for name, s := range l.seen {
		if s.Kept && (s.State == Starting || l.fresh(name)) {
			return "" // its turn to claim
		}
	}
	for _, i := range l.line() {
		if l.stale(i.Name) {
			return ""
		}
		if l.missing(i) && i.Refused == "" && l.lacks(i) == "" {
			return i.Name
		}
	}
	return ""
}

// line is the order of claims.
func (l *look) line() []Instance {
	rank := func(i Instance) int {
		pinned := slices.ContainsFunc(i.Flags, func(f string) bool { return strings.HasPrefix(f, "--device=") })
		switch {
		case pinned:
			return 0
		case len(l.seen[i.Name].Last) > 0:
			return 1
		}
		return 2
	}
	out := slices.Clone(l.wanted)
	slices.SortStableFunc(out, func(a, b Instance) int { return rank(a) - rank(b) })
	return out
}

// missing reports whether a wanted instance has nobody who looks after it, and is not over either.
func (l *look) missing(i Instance) bool {
	s := l.seen[i.Name]
	return !s.Kept && !l.stale(i.Name) && (s.Hash != i.Hash || !s.State.over())
}

// lacks says what an instance depends on and is not so; "" when it can be started.
func (l *look) lacks(i Instance) string {
	for _, d := range i.After {
		for _, of := range l.wanted {
			if of.Service == d.Service {
				if text := l.unmet(of, d.Until); text != "" {
					return text
				}
			}
		}
	}
	return ""
}

// unmet says how a condition of an instance is not met.
func (l *look) unmet(of Instance, until Condition) string {
	s := l.seen[of.Name]
	current := s.Hash == of.Hash
	switch {
	case current && s.State == Done && (until == UntilDone || s.Ready):
		return ""
	case current && s.State == Running && s.Ready && until == UntilReady && l.alive(of.Name):
		return ""
	case of.Refused != "" && !s.Kept, current && s.State == Refused:
		return fmt.Sprintf("waits for %s, which was refused", of.Name)
	case current && s.State == Failed:
		return fmt.Sprintf("waits for %s, which failed", of.Name)
	case current && s.State == Done:
		return fmt.Sprintf("waits for %s, which ended before it was ready", of.Name)
	case until == UntilDone:
		return fmt.Sprintf("waits for %s to end", of.Name)
	}
	return fmt.Sprintf("waits for %s to be ready", of.Name)
}
