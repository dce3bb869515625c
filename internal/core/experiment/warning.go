package experiment

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/option"
)

// Limits beyond which a warning is given.
const (
	// Less than this part of a command's time with the others: the arm is diluted.
	minCompany = 0.9
	// More than this part of an arm's time with lowered clocks.
	maxThrottled = 0.05
	// A closed loop whose throughput times latency changes by more than this factor.
	maxLawFactor = 1.1
)

// resultWarnings say what makes the result doubtful.
func resultWarnings(e *Experiment, a *Answer, runs []Run) (list []string) {
	list = append(list, failureWarnings(e, a, runs)...)
	for _, arm := range e.Arms {
		for c := range e.Commands {
			s := series{of: func(r *Run) *float64 { return r.Commands[c].Company }}
			if values := s.valuesIn(arm, runs); len(values) > 0 && median(values) < minCompany {
				list = append(list, fmt.Sprintf("in %s, %s ran %.0f %% of its time without all the others, so what they do to it is larger than shown: give the commands equally long work", arm, CommandLetter(c), 100*(1-median(values))))
			}
		}
	}

	for i := range a.Arms {
		if t := a.Arms[i].Use.Throttled; t != nil && *t > maxThrottled {
			list = append(list, option.Sprintf("in %s the GPU's clocks were lowered for %.0f %% of the time, because of heat, power or the hardware: see {gpuard doctor}", a.Arms[i].Arm, 100**t))
		}
	}

	if kinds := slices.Compact(slices.Sorted(slices.Values(e.Models))); len(kinds) > 1 {
		list = append(list, option.Sprintf("the GPUs differ (%s), and the commands change places between runs: name GPUs of one model with {device}", strings.Join(kinds, ", ")))
	}

	list = append(list, contradictionWarnings(e, runs)...)

	return append(list, missingMetrics(e, runs)...)
}

// failureWarnings say how many runs of an arm do not count, and why the first of them does not; then the same of its
// warm-up.
func failureWarnings(e *Experiment, a *Answer, runs []Run) (list []string) {
	for i := range a.Arms {
		s := &a.Arms[i]
		why, cold, whyCold := "", 0, ""
		for k := range runs {
			switch r := &runs[k]; {
			case r.Arm != s.Arm || r.Problem == "":
			case r.Round > 0 && why == "":
				why = r.Problem
			case r.Round < 1:
				cold++
				if cold == 1 {
					whyCold = r.Problem
				}
			}
		}

		if s.Failed > 0 {
			list = append(list, fmt.Sprintf("%d of %d runs of %s do not count: %s", s.Failed, e.Planned, s.Arm, why))
		}

		if cold > 0 {
			list = append(list, fmt.Sprintf("the warm-up of %s failed: %s", s.Arm, whyCold))
		}
	}
	return list
}

// contradictionWarnings finds numbers of closed loops that cannot both be true. With a fixed number of requests under
// way, that number is throughput times latency (Little 1961), so their product must be the same in all arms. It is
// compared as a quantity of its own, so that noise which both share does not count.
func contradictionWarnings(e *Experiment, runs []Run) (list []string) {
	for c := range e.Commands {
		for x := range e.Metrics {
			for y := range e.Metrics {
				if !e.Metrics[x].isRate() || !e.Metrics[y].isLatency() {
					continue
				}
				product := series{of: func(r *Run) *float64 {
					rate, latency := r.Commands[c].Value(e.Metrics[x].Name), r.Commands[c].Value(e.Metrics[y].Name)
					if rate == nil || latency == nil {
						return nil
					}
					return new(*rate * *latency)
				}}
				for _, arm := range e.Arms[1:] {
					r := ratioOf(product.valuesIn(arm, runs), product.valuesIn(e.Arms[0], runs))
					if r == nil || r.Low <= maxLawFactor && r.High >= 1/maxLawFactor {
						continue
					}
					if text := contradictionText(e, runs, c, x, y, arm, r); text != "" {
						list = append(list, text)
					}
				}
			}
		}
	}
	return list
}

func contradictionText(e *Experiment, runs []Run, c, x, y int, arm Arm, product *Ratio) string {
	of := func(m int) *Ratio {
		s := series{of: func(r *Run) *float64 { return r.Commands[c].Value(e.Metrics[m].Name) }}
		return ratioOf(s.valuesIn(arm, runs), s.valuesIn(e.Arms[0], runs))
	}
	rate, latency := of(x), of(y)
	if rate == nil || latency == nil {
		// A run printed one of them without the other.
		return ""
	}

	return fmt.Sprintf("%s and %s of %s contradict each other: in %s %s is %s times and %s %s times that in %s, but with a fixed number of requests under way %s times the %s means %s times the %s (Little's law): either that number became %s that in %s, or one of the two was not measured alike",
		e.Metrics[x].Name, e.Metrics[y].Name, CommandLetter(c), arm, e.Metrics[x].Name, formatDecimal(rate.Ratio, 2), e.Metrics[y].Name, formatDecimal(latency.Ratio, 2), e.Arms[0],
		formatDecimal(rate.Ratio, 2), e.Metrics[x].Name, formatDecimal(1/rate.Ratio, 2), e.Metrics[y].Name, product.Words(), e.Arms[0])
}
