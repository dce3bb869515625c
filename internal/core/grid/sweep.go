// Package grid computes the runs of a sweep over parameters: the values and the command line of each run, its record,
// and the runs that remain:
//
//	grid, err := sweep.Product([]string{"lr=0.1,0.01", "seed=1..5"})
//	cmd, err := sweep.ParseCommand(words, &grid)
//	args, err := cmd.Words(3) // of run 3
//
// It must not start processes or open files.
package grid

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gpuard/internal/core/option"
)

// MaxRuns is the limit of runs in a sweep: more is a mistake in a range.
const MaxRuns = 1_000_000

// Grid is the runs of a sweep: every combination of the Axes, or one run per row, or one per command. Runs count from
// 0.
type Grid struct {
	// The names of the parameters, in their order.
	Names []string `json:"names"`
	// The values of each; those of the last change fastest.
	Axes [][]string `json:"axes,omitempty"`
	// The values of each run.
	Rows [][]string `json:"rows,omitempty"`
	// The words of each run, which then has no parameters.
	Commands [][]string `json:"commands,omitempty"`
	// The lines of the file that Commands are from, as long as it is being read.
	Lines []int `json:"-"`
}

// Len is how many runs there are.
func (g *Grid) Len() int {
	switch {
	case g.Commands != nil:
		return len(g.Commands)
	case g.Rows != nil:
		return len(g.Rows)
	case len(g.Axes) == 0:
		return 0
	}
	n := 1
	for _, axis := range g.Axes {
		n *= len(axis)
	}

	return n
}

// ValuesOf are those of run i, in the order of Names.
func (g *Grid) ValuesOf(i int) []string {
	if g.Rows != nil {
		return g.Rows[i]
	}
	out := make([]string, len(g.Axes))
	for a := len(g.Axes) - 1; a >= 0; a-- {
		out[a] = g.Axes[a][i%len(g.Axes[a])]
		i /= len(g.Axes[a])
	}

	return out
}

// ordinalName is the additional name of a run's number in templates.
const ordinalName = "Ordinal"

// checkName checks a parameter's name, which must be valid in a template.
func checkName(name string, before []string) error {
	switch {
	case name == "":
		return fmt.Errorf("a parameter has no name")
	case name == ordinalName:
		return fmt.Errorf("a parameter cannot be called %s: that is the number of the run", ordinalName)
	case !regexp.MustCompile(`^[\pL_][\pL\pN_]*$`).MatchString(name):
		return fmt.Errorf("a parameter cannot be called %q: write letters, digits and _, so that {{.name}} can ask for it", name)
	case slices.Contains(before, name):
		return fmt.Errorf("the parameter %s is named twice", name)
	}
	return nil
}

// Product reads the values of --over, such as "lr=0.1,0.01" and "seed=1..5", into every combination of them.
func Product(over []string) (Grid, error) {
	var g Grid
	n := 1
	for _, text := range over {
		name, list, found := strings.Cut(text, "=")
		if !found {
			return g, option.Errorf("cannot read {over=%q}: write a name and its values, such as {over=lr=0.1,0.01} or {over=seed=1..5}", text)
		}
		if err := checkName(name, g.Names); err != nil {
			return g, option.Errorf("cannot read {over=%q}: %w", text, err)
		}

		values, err := parseAxis(list)
		if err != nil {
			return g, option.Errorf("cannot read {over=%q}: %w", text, err)
		}

		g.Names, g.Axes = append(g.Names, name), append(g.Axes, values)
		n *= len(values)
		if n > MaxRuns {
			return g, tooManyRuns(over)
		}
	}

	return g, nil
}

// tooManyRuns completes the count for the error, which shows the range that is wrong.
func tooManyRuns(over []string) error {
	n := 1.0
	for _, text := range over {
		_, list, _ := strings.Cut(text, "=")
		values, err := parseAxis(list)
		if err != nil {
			continue
		}

		n *= float64(len(values))
	}
	return fmt.Errorf("cannot start %.0f runs: a sweep has at most %d; write fewer values, or larger steps (0..1:0.1)", n, MaxRuns)
}
