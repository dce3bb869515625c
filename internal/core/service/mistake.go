package service

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// Mistake is something in a project file that cannot be meant.
type Mistake struct {
	Line, Column int    // from 1; Column counts bytes
	Text         string // what, and what to write instead: `unknown key "replcias" of service node; did you mean replicas?`
}

// Mistakes is the error of a file with mistakes in it, all of them.
type Mistakes struct {
	File string // as the user knows it
	List []Mistake
}

// Error has a line for each mistake, in the order of the file: "cannot read gpuard.yaml:7:5: unknown key …".
func (m *Mistakes) Error() string {
	list := slices.Clone(m.List)
	slices.SortStableFunc(list, func(a, b Mistake) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	lines := []string{}
	for _, one := range list {
		lines = append(lines, gpu.Clean(fmt.Sprintf("cannot read %s:%d:%d: %s", m.File, one.Line, one.Column, one.Text)))
	}
	return strings.Join(lines, "\n")
}
