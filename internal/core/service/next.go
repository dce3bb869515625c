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
func (v *view) isAlive(name string) bool { return v.seen[name].Kept || v.seen[name].Orphaned }

// isOver reports whether an instance has ended and is not restarted automatically.
func (s State) isOver() bool { return s == Done || s == Failed || s == Refused }

// isStale reports whether an instance lives but is not wanted in that form any more.
func (v *view) isStale(name string) bool {
	if !v.isAlive(name) || v.isFresh(name) {
		return false
	}
	i := v.findWanted(name)
	return i < 0 || v.seen[name].Hash != v.wanted[i].Hash
}

// isFresh reports whether a keeper has not written its record yet. It was started for the instance that was wanted
// then; its record will say more.
func (v *view) isFresh(name string) bool { return v.seen[name].Kept && v.seen[name].State == "" }

func (v *view) findWanted(name string) int {
	return slices.IndexFunc(v.wanted, func(i Instance) bool { return i.Name == name })
}

// endActions lists the instances that can be asked to end now: those without living dependents, by the dependencies
// recorded at their start.
func (v *view) endActions() []Action {
	var stale []string
	for name := range v.seen {
		if v.isStale(name) {
			stale = append(stale, name)
		}
	}

	slices.SortFunc(stale, func(a, b string) int { return cmp.Or(cmp.Compare(v.findWanted(b), v.findWanted(a)), cmp.Compare(b, a)) })
	needed := func(name string) bool {
		return slices.ContainsFunc(stale, func(other string) bool {
			return other != name && slices.ContainsFunc(v.seen[other].After, func(d Dependency) bool { return d.Service == v.seen[name].Service })
		})
	}

	var actions []Action
	for _, name := range stale {
		if !v.isEnding(name) && !needed(name) {
			actions = append(actions, Action{End, name})
		}
	}

	if len(actions) == 0 && !slices.ContainsFunc(stale, v.isEnding) {
		// Instances of different versions of the file may depend on each other in a cycle.
		for _, name := range stale {
			actions = append(actions, Action{End, name})
		}
	}

	return actions
}

// isEnding reports whether a living keeper ends its instance.
func (v *view) isEnding(name string) bool { return v.seen[name].Kept && v.seen[name].State == Ending }

// nextStart is the instance to start now; "" when there is none.
func (v *view) nextStart() string {
	for _, i := range v.wanted {
		if v.seen[i.Name].Orphaned && v.isMissing(i) {
			// Its processes run, only the keeper is missing.
			return i.Name
		}
	}
	for name, s := range v.seen {
		if s.Kept && (s.State == Starting || v.isFresh(name)) {
			// It is its turn to claim.
			return ""
		}
	}
	for _, i := range v.claimOrder() {
		if v.isStale(i.Name) {
			return ""
		}
		if v.isMissing(i) && i.Refused == "" && v.unmetDependency(i) == "" {
			return i.Name
		}
	}

	return ""
}

// claimOrder is the order of claims.
func (v *view) claimOrder() []Instance {
	device := option.Expand("{device}=")
	rank := func(i Instance) int {
		pinned := slices.ContainsFunc(i.Flags, func(f string) bool { return strings.HasPrefix(f, device) })
		switch {
		case pinned:
			return 0
		case len(v.seen[i.Name].Last) > 0:
			return 1
		}
		return 2
	}
	out := slices.Clone(v.wanted)
	slices.SortStableFunc(out, func(a, b Instance) int { return rank(a) - rank(b) })

	return out
}

// isMissing reports whether a wanted instance has no keeper and is not over.
func (v *view) isMissing(i Instance) bool {
	s := v.seen[i.Name]
	return !s.Kept && !v.isStale(i.Name) && (s.Hash != i.Hash || !s.State.isOver())
}

// unmetDependency says which dependency of an instance is not met; "" when it can be started.
func (v *view) unmetDependency(i Instance) string {
	for _, d := range i.After {
		for _, of := range v.wanted {
			if of.Service == d.Service {
				if text := v.unmetCondition(of, d.Until); text != "" {
					return text
				}
			}
		}
	}
	return ""
}

// unmetCondition says how a condition is not met by an instance.
func (v *view) unmetCondition(of Instance, until Condition) string {
	s := v.seen[of.Name]
	current := s.Hash == of.Hash
	switch {
	case current && s.State == Done && (until == UntilDone || s.Ready):
		return ""
	case current && s.State == Running && s.IsUsable() && until == UntilReady && v.isAlive(of.Name):
		return ""
	case of.Refused != "" && !s.Kept, current && s.State == Refused:
		return fmt.Sprintf("waits for %s, which was refused", of.Name)
	case current && s.State == Failed:
		return fmt.Sprintf("waits for %s, which failed", of.Name)
	case current && s.State == Done:
		return fmt.Sprintf("waits for %s, which ended before it was ready", of.Name)
	case until == UntilDone:
		return fmt.Sprintf("waits for %s to end", of.Name)
	case current && s.State == Running && s.Ready && v.isAlive(of.Name):
		return fmt.Sprintf("waits for %s, which is unhealthy", of.Name)
	}

	return fmt.Sprintf("waits for %s to be ready", of.Name)
}
