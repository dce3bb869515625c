package service

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/option"
)

// Do is an action on an instance.
type Do string

// Values of Do.
const (
	// A keeper is missing: a new one adopts the instance's living processes.
	Start Do = "start"
	End   Do = "end"
)

// Action is one step towards the wanted state.
type Action struct {
	Do       Do
	Instance string
}

// NextActions returns the actions that can be done now to reach the wanted state, at most one Start. The caller calls
// it again after every change. A keeper that was just started and has written no record counts as seen with Kept and no
// State. An End is repeated until the keeper has recorded it.
//
// Ends are in the reverse order of dependencies. Starts are one by one, so that GPUs are claimed in a fixed order:
// instances with a GPU of their own first, then those that have had one, then the rest, each in the order of wanted. An
// instance that must be restarted delays the starts after it until it has ended, because they could take its GPU.
func NextActions(wanted []Instance, seen map[string]Seen) []Action {
	l := view{wanted: wanted, seen: seen}
	actions := l.endActions()
	if name := l.nextStart(); name != "" {
		actions = append(actions, Action{Start, name})
	}

	return actions
}

// HeldReasons says why wanted instances are not started: "waits for db-0 to be ready". Others have no entry.
func HeldReasons(wanted []Instance, seen map[string]Seen) map[string]string {
	l := view{wanted: wanted, seen: seen}
	why := map[string]string{}
	for _, i := range wanted {
		switch {
		case i.Refused != "" && !l.isAlive(i.Name):
			why[i.Name] = i.Refused
		case l.isMissing(i) && !seen[i.Name].Orphaned:
			if text := l.unmetDependency(i); text != "" {
				why[i.Name] = text
			}
		}
	}

	return why
}

// view is the state of a project at one moment.
type view struct {
	wanted []Instance
	seen   map[string]Seen
}

// isAlive reports whether the keeper or a process of an instance lives.
func (l *view) isAlive(name string) bool { return l.seen[name].Kept || l.seen[name].Orphaned }

// isOver reports whether an instance has ended and is not restarted automatically.
func (s State) isOver() bool { return s == Done || s == Failed || s == Refused }

// isStale reports whether an instance lives but is not wanted in that form any more.
func (l *view) isStale(name string) bool {
	if !l.isAlive(name) || l.isFresh(name) {
		return false
	}
	i := l.findWanted(name)
	return i < 0 || l.seen[name].Hash != l.wanted[i].Hash
}

// isFresh reports whether a keeper has not written its record yet. It was started for the instance that was wanted
// then; its record will say more.
func (l *view) isFresh(name string) bool { return l.seen[name].Kept && l.seen[name].State == "" }

func (l *view) findWanted(name string) int {
	return slices.IndexFunc(l.wanted, func(i Instance) bool { return i.Name == name })
}

// endActions lists the instances that can be asked to end now: those without living dependents, by the dependencies
// recorded at their start.
func (l *view) endActions() []Action {
	var stale []string
	for name := range l.seen {
		if l.isStale(name) {
			stale = append(stale, name)
		}
	}

	slices.SortFunc(stale, func(a, b string) int { return cmp.Or(cmp.Compare(l.findWanted(b), l.findWanted(a)), cmp.Compare(b, a)) })
	needed := func(name string) bool {
		return slices.ContainsFunc(stale, func(other string) bool {
			return other != name && slices.ContainsFunc(l.seen[other].After, func(d Dependency) bool { return d.Service == l.seen[name].Service })
		})
	}

	var actions []Action
	for _, name := range stale {
		if !l.isEnding(name) && !needed(name) {
			actions = append(actions, Action{End, name})
		}
	}

	if len(actions) == 0 && !slices.ContainsFunc(stale, l.isEnding) {
		// Instances of different versions of the file may depend on each other in a cycle.
		for _, name := range stale {
			actions = append(actions, Action{End, name})
		}
	}

	return actions
}

// isEnding reports whether a living keeper ends its instance.
func (l *view) isEnding(name string) bool { return l.seen[name].Kept && l.seen[name].State == Ending }

// nextStart is the instance to start now; "" when there is none.
func (l *view) nextStart() string {
	for _, i := range l.wanted {
		if l.seen[i.Name].Orphaned && l.isMissing(i) {
			// Its processes run, only the keeper is missing.
			return i.Name
		}
	}
	for name, s := range l.seen {
		if s.Kept && (s.State == Starting || l.isFresh(name)) {
			// It is its turn to claim.
			return ""
		}
	}
	for _, i := range l.claimOrder() {
		if l.isStale(i.Name) {
			return ""
		}
		if l.isMissing(i) && i.Refused == "" && l.unmetDependency(i) == "" {
			return i.Name
		}
	}

	return ""
}

// claimOrder is the order of claims.
func (l *view) claimOrder() []Instance {
	device := option.Expand("{device}=")
	rank := func(i Instance) int {
		pinned := slices.ContainsFunc(i.Flags, func(f string) bool { return strings.HasPrefix(f, device) })
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

// isMissing reports whether a wanted instance has no keeper and is not over.
func (l *view) isMissing(i Instance) bool {
	s := l.seen[i.Name]
	return !s.Kept && !l.isStale(i.Name) && (s.Hash != i.Hash || !s.State.isOver())
}

// unmetDependency says which dependency of an instance is not met; "" when it can be started.
func (l *view) unmetDependency(i Instance) string {
	for _, d := range i.After {
		for _, of := range l.wanted {
			if of.Service == d.Service {
				if text := l.unmetCondition(of, d.Until); text != "" {
					return text
				}
			}
		}
	}
	return ""
}

// unmetCondition says how a condition is not met by an instance.
func (l *view) unmetCondition(of Instance, until Condition) string {
	s := l.seen[of.Name]
	current := s.Hash == of.Hash
	switch {
	case current && s.State == Done && (until == UntilDone || s.Ready):
		return ""
	case current && s.State == Running && s.IsUsable() && until == UntilReady && l.isAlive(of.Name):
		return ""
	case of.Refused != "" && !s.Kept, current && s.State == Refused:
		return fmt.Sprintf("waits for %s, which was refused", of.Name)
	case current && s.State == Failed:
		return fmt.Sprintf("waits for %s, which failed", of.Name)
	case current && s.State == Done:
		return fmt.Sprintf("waits for %s, which ended before it was ready", of.Name)
	case until == UntilDone:
		return fmt.Sprintf("waits for %s to end", of.Name)
	case current && s.State == Running && s.Ready && l.isAlive(of.Name):
		return fmt.Sprintf("waits for %s, which is unhealthy", of.Name)
	}

	return fmt.Sprintf("waits for %s to be ready", of.Name)
}
