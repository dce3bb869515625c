package experiment

import (
	"fmt"
	"slices"
)

// missingMetrics says which metrics were printed in too few runs, could not be read, or have no ratio. A metric that a
// command never prints is one of the others.
func missingMetrics(e *Experiment, runs []Run) (list []string) {
	for m := range e.Metrics {
		name := e.Metrics[m].Name
		seen := len(runs) == 0
		for c := range e.Commands {
			if !slices.ContainsFunc(runs, func(r Run) bool { return r.Commands[c].Value(name) != nil || r.Commands[c].misreadText(name) != "" }) {
				continue
			}
			seen = true

			for i, arm := range e.Arms {
				list = append(list, missingInArm(runs, arm, c, name)...)
				list = append(list, withoutRatio(e, runs, i, c, name)...)
			}
		}
		if !seen {
			list = append(list, fmt.Sprintf("no command printed %s: try the pattern on the output of one run", name))
		}
	}
	return list
}

// missingInArm counts the runs of an arm in which a command printed no number.
func missingInArm(runs []Run, arm Arm, c int, name string) (list []string) {
	counted, read, unread, text := 0, 0, 0, ""
	for i := range runs {
		if runs[i].Arm != arm || !runs[i].Counts() {
			continue
		}
		counted++
		of := &runs[i].Commands[c]
		if of.Value(name) != nil {
			read++
		} else if what := of.misreadText(name); what != "" {
			unread, text = unread+1, what
		}
	}

	if unread > 0 {
		list = append(list, fmt.Sprintf("%s could not be read in %d of %d runs of %s, %s: %q is not a number", name, unread, counted, CommandLetter(c), arm, text))
	}

	if read+unread < counted {
		list = append(list, fmt.Sprintf("%s was printed in %d of %d runs of %s, %s", name, read+unread, counted, CommandLetter(c), arm))
	}

	return list
}

// withoutRatio says why values of an arm have no ratio although there are enough of them.
func withoutRatio(e *Experiment, runs []Run, arm, c int, name string) []string {
	s := series{of: func(r *Run) *float64 { return r.Commands[c].Value(name) }}
	values, base := s.valuesIn(e.Arms[arm], runs), s.valuesIn(e.Arms[0], runs)
	switch {
	case len(values) > 0 && slices.Min(values) <= 0:
		return []string{fmt.Sprintf("%s of %s is not always above 0 in %s, so it has no ratio", name, CommandLetter(c), e.Arms[arm])}
	case arm > 0 && len(values) > 1 && len(base) > 1 && slices.Min(base) > 0 && ratioOf(values, base) == nil:
		return []string{fmt.Sprintf("%s of %s varies too much in %s or %s to have a ratio", name, CommandLetter(c), e.Arms[arm], e.Arms[0])}
	}

	return nil
}

// misreadText is the text in the place of a metric; "": there was none.
func (o *Outcome) misreadText(metric string) string {
	for i := range o.Misread {
		if o.Misread[i].Metric == metric {
			return o.Misread[i].Text
		}
	}
	return ""
}
