// Package experiment plans an experiment with placements of the same commands, and says what follows from its runs:
// medians, ratios with their confidence intervals, sentences and warnings.
//
//	turns := compare.PlanTurns(arms, 2, 1, 5, draw)
//	answer := compare.Conclude(experiment, runs) // a Run of each turn
//
// The same runs always give the same answer. It must not start a command or read a device.
package experiment

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// Arm is one way to place the commands, as it is written: "alone", "mig:1g.10gb".
type Arm string

// The arms. MIG may be followed by a colon and the profile of its slices.
const (
	// One command after the other, each on a GPU without the others.
	Alone Arm = "alone"
	// All on one GPU, in one lease.
	Together Arm = "together"
	// All on one GPU, each with a share of its memory.
	Shares Arm = "together:shares"
	// The same, through NVIDIA's Multi-Process Service.
	MPS Arm = "together:mps"
	// Each on a GPU of its own, at the same time.
	Apart Arm = "apart"
	// Each on a MIG slice of one GPU.
	MIG Arm = "mig"
)

// Arms are all of them.
func Arms() []Arm { return []Arm{Alone, Together, Shares, MPS, Apart, MIG} }

// Profile is that of the slices of an arm "mig:PROFILE"; "" where any will do, and for the other arms.
func (a Arm) Profile() string {
	profile, _ := strings.CutPrefix(string(a), string(MIG)+":")
	if profile == string(a) {
		return ""
	}
	return profile
}

// Kind is the arm without its profile.
func (a Arm) Kind() Arm {
	if a.Profile() != "" {
		return MIG
	}
	return a
}

// ParseArms reads the names of at least two arms.
func ParseArms(names []string) ([]Arm, error) {
	var arms []Arm
	known := prose.Texts(Arms(), func(a Arm) string { return string(a) })

	for _, name := range names {
		a := Arm(name)
		switch {
		case !slices.Contains(Arms(), a.Kind()):
			return nil, fmt.Errorf("cannot compare %q: the arms are %s", name, strings.Join(known, ", "))
		case slices.Contains(arms, a):
			return nil, fmt.Errorf("cannot compare %s with itself: name each arm once", name)
		}
		arms = append(arms, a)
	}

	if len(arms) < 2 {
		return nil, option.Errorf("cannot compare %d arm: name two or more, such as {arms=alone,together,apart}", len(arms))
	}

	return arms, nil
}

// Turn is a run that is planned.
type Turn struct {
	Arm Arm
	// The round, from 1; less for the warm-up.
	Round int
	// The command that starts first, on the first device; then the second; and so on.
	Places []int
}

// PlanTurns plans the runs: in each round every arm once, in an order that is drawn, as are the places of the commands.
// So that what changes slowly, as heat does, strikes all arms alike. draw(n) is a number from 0 to n-1.
func PlanTurns(arms []Arm, commands, warmup, repeat int, draw func(n int) int) (turns []Turn) {
	for round := 1 - warmup; round <= repeat; round++ {
		for _, i := range drawOrder(len(arms), draw) {
			turns = append(turns, Turn{arms[i], round, drawOrder(commands, draw)})
		}
	}
	return turns
}

func drawOrder(n int, draw func(n int) int) []int {
	list := make([]int, n)
	for i := range list {
		// Fisher and Yates, from the inside out.
		k := draw(i + 1)
		list[i], list[k] = list[k], i
	}
	return list
}

// CommandLetter names a command in answers: A, B, …
func CommandLetter(command int) string { return string(rune('A' + command)) }

// Run is what was measured of one turn.
type Run struct {
	Arm Arm `json:"arm"`
	// The round, from 1; less for the warm-up, which does not count.
	Round int `json:"round"`
	// Why it does not count; "" where it does.
	Problem string `json:"problem"`
	// The seconds from the first start to the last end, without waiting for devices.
	Seconds  float64   `json:"seconds"`
	Devices  []string  `json:"devices"` // UUIDs
	Use      Use       `json:"use"`     // of all its devices
	Commands []Outcome `json:"commands"`
}

// Counts reports whether the run is part of the result.
func (r *Run) Counts() bool { return r.Round > 0 && r.Problem == "" }

// Outcome is what was measured of one command in one run.
type Outcome struct {
	Command string `json:"command"` // its letter
	// The seconds from its start to its end.
	Seconds float64 `json:"seconds"`
	// The part of that time in which all the others ran too; null alone.
	Company *float64 `json:"company_ratio"`
	// The most that its processes had on a device; null not known.
	Memory *gpu.Bytes `json:"memory_bytes"`
	// What it printed of them.
	Metrics []Value `json:"metrics"`
	// What stood in their place and is no number.
	Misread []Misread `json:"-"`
	Exit    *int      `json:"exit"`
	Signal  string    `json:"signal"` // that ended it
}

// Value is a number that a command printed.
type Value struct {
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
}

// Misread is a text in the place of a metric.
type Misread struct{ Metric, Text string }

// Value finds a metric; nil: it was not printed.
func (o *Outcome) Value(metric string) *float64 {
	for i := range o.Metrics {
		if o.Metrics[i].Metric == metric {
			return &o.Metrics[i].Value
		}
	}
	return nil
}

// SecondsLeft estimates the seconds that the turns after the first done runs take, from those of the same arm, else of
// all; nil before the first one has ended.
func SecondsLeft(turns []Turn, done []Run) *float64 {
	if len(done) == 0 {
		return nil
	}

	sum, left := 0.0, 0.0
	of, n := map[Arm]float64{}, map[Arm]float64{}
	for i := range done {
		sum += done[i].Seconds
		of[done[i].Arm] += done[i].Seconds
		n[done[i].Arm]++
	}

	for _, turn := range turns[len(done):] {
		if n[turn.Arm] > 0 {
			left += of[turn.Arm] / n[turn.Arm]
		} else {
			left += sum / float64(len(done))
		}
	}

	return &left
}
