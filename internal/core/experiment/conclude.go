package experiment

import (
	"slices"
)

// Experiment is what was compared. The first arm is what the others are compared with.
type Experiment struct {
	Arms     []Arm
	Commands int // how many
	Metrics  []Metric
	// Runs of each arm, without the warm-up.
	Planned int
	// The models of the GPUs that the arms change.
	Models []string
}

// Names of quantities that are measured of everything.
const (
	timeName   = "seconds"
	energyName = "energy_joules"
)

// Everything is the command of a quantity that is of all commands.
const Everything = "all"

// Answer is what follows from the runs.
type Answer struct {
	Quantities []Quantity `json:"quantities"` // each in each arm
	// The arms in the order that was asked for; the first is what the others are compared with.
	Arms []Summary `json:"arms"`
	// The conclusion in words, of each other arm.
	Conclusion []string `json:"conclusion"`
	// What makes the result doubtful.
	Warnings []string `json:"warnings"`
}

// Summary is one arm.
type Summary struct {
	Arm Arm `json:"arm"`
	// Runs that are part of the result.
	Counted int `json:"counted"`
	// Runs that are not, because a command failed.
	Failed int `json:"failed"`
	// Medians of its runs.
	Use Use `json:"use"`
}

// Quantity is one quantity in one arm. What was not measured has no line.
type Quantity struct {
	// Its letter; all: of all commands.
	Command string `json:"command"`
	// Seconds, energy_joules, or a metric.
	Name   string `json:"quantity"`
	Metric bool   `json:"-"` // it was printed
	Arm    Arm    `json:"arm"`
	// The number of runs in which it was measured.
	Runs    int     `json:"runs"`
	Median  float64 `json:"median"`
	Lowest  float64 `json:"lowest"`
	Highest float64 `json:"highest"`
	// The ratio of this arm to the first one; null for the first, with fewer than two runs, or where a value is not
	// above 0.
	Ratio *Ratio `json:"ratio_to_first"`
}

// IsTime reports whether the quantity is how long the command took.
func (q *Quantity) IsTime() bool { return q.Name == timeName }

// Conclude is what follows from the runs.
func Conclude(e *Experiment, runs []Run) *Answer {
	a := &Answer{Quantities: []Quantity{}, Arms: []Summary{}, Conclusion: []string{}, Warnings: []string{}}
	for _, arm := range e.Arms {
		a.Arms = append(a.Arms, summarizeArm(arm, runs))
	}

	for _, s := range e.allSeries() {
		var base []float64
		for i, arm := range e.Arms {
			values := s.valuesIn(arm, runs)
			if i == 0 {
				base = values
			}

			if len(values) == 0 {
				continue
			}

			q := Quantity{Command: s.command, Name: s.name, Metric: s.printed, Arm: arm, Runs: len(values), Median: median(values), Lowest: slices.Min(values), Highest: slices.Max(values)}
			if i > 0 {
				q.Ratio = ratioOf(values, base)
			}

			a.Quantities = append(a.Quantities, q)
		}
	}

	for i := range a.Arms[1:] {
		a.Conclusion = append(a.Conclusion, a.armSentences(e, &a.Arms[i+1])...)
	}

	a.Warnings = append(a.Warnings, resultWarnings(e, a, runs)...)

	return a
}

// series is one quantity of one command, in all arms.
type series struct {
	command, name string
	printed       bool
	of            func(*Run) *float64
}

func (s series) valuesIn(arm Arm, runs []Run) (values []float64) {
	for i := range runs {
		if runs[i].Arm != arm || !runs[i].Counts() {
			continue
		}
		if v := s.of(&runs[i]); v != nil {
			values = append(values, *v)
		}
	}
	return values
}

// allSeries lists everything that is compared.
func (e *Experiment) allSeries() (list []series) {
	for c := range e.Commands {
		list = append(list, series{CommandLetter(c), timeName, false, func(r *Run) *float64 { return &r.Commands[c].Seconds }})
		for m := range e.Metrics {
			list = append(list, series{CommandLetter(c), e.Metrics[m].Name, true, func(r *Run) *float64 { return r.Commands[c].Value(e.Metrics[m].Name) }})
		}
	}
	return append(list, series{Everything, timeName, false, func(r *Run) *float64 { return &r.Seconds }},
		series{Everything, energyName, false, func(r *Run) *float64 { return r.Use.Energy }})
}

func summarizeArm(arm Arm, runs []Run) Summary {
	s := Summary{Arm: arm}
	var uses []Use
	for i := range runs {
		switch r := &runs[i]; {
		case r.Arm != arm || r.Round < 1:
		case r.Counts():
			uses = append(uses, r.Use)
		default:
			s.Failed++
		}
	}

	s.Counted = len(uses)
	middle := func(of func(*Use) *float64) *float64 {
		var values []float64
		for i := range uses {
			if v := of(&uses[i]); v != nil {
				values = append(values, *v)
			}
		}
		if len(values) == 0 {
			return nil
		}

		return new(median(values))
	}

	s.Use = Use{
		Load:      middle(func(u *Use) *float64 { return u.Load }),
		Power:     middle(func(u *Use) *float64 { return u.Power }),
		Energy:    middle(func(u *Use) *float64 { return u.Energy }),
		Clock:     middle(func(u *Use) *float64 { return u.Clock }),
		Throttled: middle(func(u *Use) *float64 { return u.Throttled }),
	}

	for i := range uses {
		// Of memory the most is what matters.
		if m := uses[i].Memory; m != nil && (s.Use.Memory == nil || *s.Use.Memory < *m) {
			s.Use.Memory = m
		}
	}

	return s
}

// findQuantity is the line of a quantity; nil: there is none.
func (a *Answer) findQuantity(arm Arm, command, name string) *Quantity {
	i := slices.IndexFunc(a.Quantities, func(q Quantity) bool { return q.Arm == arm && q.Command == command && q.Name == name })
	if i < 0 {
		return nil
	}
	return &a.Quantities[i]
}
