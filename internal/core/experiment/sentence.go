package experiment

import (
	"fmt"
	"math"
	"strings"

	"gpuard/internal/core/option"
)

// armSentences say what an arm is against the first one: how long the commands take, then what they print.
func (a *Answer) armSentences(e *Experiment, arm *Summary) (list []string) {
	first := &a.Arms[0]
	if arm.Counted < 2 || first.Counted < 2 {
		few := arm
		if first.Counted < arm.Counted {
			few = first
		}

		more := ""
		if e.Planned < 2 {
			more = option.Expand(": raise {repeat}")
		}

		return []string{fmt.Sprintf("nothing can be said about %s against %s: %s of %d runs counted in %s, and two are needed%s", arm.Arm, first.Arm, countWord(few.Counted), e.Planned, few.Arm, more)}
	}

	var clauses []string
	var before *Quantity
	for c := range e.Commands {
		q := a.findQuantity(arm.Arm, CommandLetter(c), timeName)
		clauses = append(clauses, timeClause(q, before, first.Arm))
		before = q
	}

	list = append(list, strings.Join(clauses, "; "))
	if q := a.findQuantity(arm.Arm, Everything, timeName); q != nil && q.Ratio != nil && e.Commands > 1 {
		list = append(list, allClause(q, first.Arm))
	}

	if q := a.findQuantity(arm.Arm, Everything, energyName); q != nil && q.Ratio != nil && q.Ratio.ShowsDifference() {
		list = append(list, fmt.Sprintf("%s takes %s the energy of %s", arm.Arm, q.Ratio.Words(), first.Arm))
	}

	for m := range e.Metrics {
		for c := range e.Commands {
			q := a.findQuantity(arm.Arm, CommandLetter(c), e.Metrics[m].Name)
			if q != nil && q.Ratio != nil {
				list = append(list, metricSentence(q, first.Arm))
			}
		}
	}

	return list
}

// timeClause is "apart is 1.80 times (1.71 to 1.90) faster than alone for A". What the clause before it names is left
// out.
func timeClause(q, before *Quantity, first Arm) string {
	arm, against := string(q.Arm)+" is ", " than "+string(first)
	if before != nil && before.Ratio != nil && before.Ratio.ShowsDifference() {
		arm, against = "", ""
	}

	switch r := q.Ratio; {
	case r == nil && before == nil:
		return fmt.Sprintf("nothing can be said about %s against %s for %s", q.Arm, first, q.Command)
	case r == nil:
		return "for " + q.Command + " nothing can be said"
	case r.isLess():
		return fmt.Sprintf("%s%s faster%s for %s", arm, r.inverse().Words(), against, q.Command)
	case r.isMore():
		return fmt.Sprintf("%s%s slower%s for %s", arm, r.Words(), against, q.Command)
	case before == nil:
		return fmt.Sprintf("between %s and %s no difference could be shown for %s (%s)", q.Arm, first, q.Command, r.intervalText())
	default:
		return fmt.Sprintf("for %s no difference could be shown (%s)", q.Command, r.intervalText())
	}
}

// allClause is about the time until all commands have ended.
func allClause(q *Quantity, first Arm) string {
	against := string(first)
	if first == Alone {
		against += ", which is one after the other"
	}

	switch r := q.Ratio; {
	case r.isLess():
		return fmt.Sprintf("%s finishes all of them %s faster than %s", q.Arm, r.inverse().Words(), against)
	case r.isMore():
		return fmt.Sprintf("%s finishes all of them %s slower than %s", q.Arm, r.Words(), against)
	default:
		return fmt.Sprintf("between %s and %s no difference could be shown until all of them are done (%s)", q.Arm, first, r.intervalText())
	}
}

func metricSentence(q *Quantity, first Arm) string {
	if !q.Ratio.ShowsDifference() {
		return fmt.Sprintf("for %s of %s no difference could be shown between %s and %s (%s)", q.Name, q.Command, q.Arm, first, q.Ratio.intervalText())
	}
	return fmt.Sprintf("%s of %s in %s is %s that in %s", q.Name, q.Command, q.Arm, q.Ratio.Words(), first)
}

// Words is "1.80 times (1.71 to 1.90)".
func (r Ratio) Words() string {
	return formatDecimal(r.Ratio, r.decimalPlaces()) + " times (" + r.intervalText() + ")"
}

// Short is "1.80 (1.71 to 1.90)".
func (r Ratio) Short() string {
	return formatDecimal(r.Ratio, r.decimalPlaces()) + " (" + r.intervalText() + ")"
}

func (r Ratio) intervalText() string {
	return formatDecimal(r.Low, r.decimalPlaces()) + " to " + formatDecimal(r.High, r.decimalPlaces())
}

// decimalPlaces are as many as an interval without 1 needs to look so: 1.004 to 1.006, and not 1.00 to 1.01.
func (r Ratio) decimalPlaces() int {
	edge := r.Low
	if r.High < 1 {
		edge = r.High
	}
	if r.Low > 1 || r.High < 1 {
		for places := 2; places < 4; places++ {
			if strings.Trim(fmt.Sprintf("%.*f", places, edge), "0") != "1." {
				return places
			}
		}
		return 4
	}

	return 2
}

// formatDecimal has three digits, two below 0.1, and more for a number around 1 that needs so many places.
func formatDecimal(v float64, near1 int) string {
	places := near1
	switch {
	case v >= 10:
		places = max(0, 2-int(math.Log10(v)))
	case v > 0 && v < 0.1:
		places = 1 - int(math.Floor(math.Log10(v)))
	}
	return fmt.Sprintf("%.*f", places, v)
}

func countWord(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}
