package compare

import (
	"fmt"
	"math"
	"strings"
)

// sentences say what an arm is against the first one: how long the commands take, then what they print.
func (a *Answer) sentences(e *Experiment, arm *Summary) (list []string) {
	first := &a.Arms[0]
	if arm.Counted < 2 || first.Counted < 2 {
		few := arm
		if first.Counted < arm.Counted {
			few = first
		}
		return []string{fmt.Sprintf("nothing can be said about %s against %s: %s of %d runs counted in %s, and two are needed", arm.Arm, first.Arm, countWord(few.Counted), e.Planned, few.Arm)}
	}
	var clauses []string
	for c := range e.Commands {
		clauses = append(clauses, timeClause(a.find(arm.Arm, Letter(c), timeName), first.Arm, len(clauses) == 0))
	}
	list = append(list, strings.Join(clauses, "; "))
	if q := a.find(arm.Arm, Everything, timeName); q != nil && q.Ratio != nil && e.Commands > 1 {
		list = append(list, allClause(q, first.Arm))
	}
	if q := a.find(arm.Arm, Everything, energyName); q != nil && q.Ratio != nil && q.Ratio.Shown() {
		list = append(list, fmt.Sprintf("%s takes %s the energy of %s", arm.Arm, q.Ratio.Words(), first.Arm))
	}
	for m := range e.Metrics {
		for c := range e.Commands {
			q := a.find(arm.Arm, Letter(c), e.Metrics[m].Name)
			if q != nil && q.Ratio != nil {
				list = append(list, metricSentence(q, first.Arm))
			}
		}
	}
	return list
}

// timeClause is "apart is 1.80 times (1.71 to 1.90) faster than alone for A".
func timeClause(q *Quantity, first Arm, begins bool) string {
	arm, against := "", ""
	if begins {
		arm, against = string(q.Arm)+" is ", " than "+string(first)
	}
	switch r := q.Ratio; {
	case r == nil:
		return "for " + q.Command + " nothing can be said"
	case r.High < 1:
		return fmt.Sprintf("%s%s faster%s for %s", arm, r.inverse().Words(), against, q.Command)
	case r.Low > 1:
		return fmt.Sprintf("%s%s slower%s for %s", arm, r.Words(), against, q.Command)
	case begins:
		return fmt.Sprintf("between %s and %s no difference could be shown for %s (%s)", q.Arm, first, q.Command, r.span())
	default:
		return fmt.Sprintf("for %s no difference could be shown (%s)", q.Command, r.span())
	}
}

// allClause is about the time until all commands have ended.
func allClause(q *Quantity, first Arm) string {
	against := string(first)
	if first == Alone {
		against += ", which is one after the other"
	}
	switch r := q.Ratio; {
	case r.High < 1:
		return fmt.Sprintf("%s has all of them done %s sooner than %s", q.Arm, r.inverse().Words(), against)
	case r.Low > 1:
		return fmt.Sprintf("%s has all of them done %s later than %s", q.Arm, r.Words(), against)
	default:
		return fmt.Sprintf("between %s and %s no difference could be shown until all of them are done (%s)", q.Arm, first, r.span())
	}
}

func metricSentence(q *Quantity, first Arm) string {
	if !q.Ratio.Shown() {
		return fmt.Sprintf("for %s of %s no difference could be shown between %s and %s (%s)", q.Name, q.Command, q.Arm, first, q.Ratio.span())
	}
	return fmt.Sprintf("%s of %s in %s is %s that in %s", q.Name, q.Command, q.Arm, q.Ratio.Words(), first)
}

// Words is "1.80 times (1.71 to 1.90)".
func (r Ratio) Words() string { return decimal(r.Ratio) + " times (" + r.span() + ")" }

// Short is "1.80 (1.71 to 1.90)".
func (r Ratio) Short() string { return decimal(r.Ratio) + " (" + r.span() + ")" }

func (r Ratio) span() string { return decimal(r.Low) + " to " + decimal(r.High) }

// decimal has three digits or, below 1, two places.
func decimal(v float64) string {
	places := 2
	if v >= 1 {
		places = max(0, 2-int(math.Log10(v)))
	}
	return fmt.Sprintf("%.*f", places, v)
}

func countWord(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}
