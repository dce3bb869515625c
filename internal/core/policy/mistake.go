package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// Mistake is something in a file that cannot be.
type Mistake struct {
	Line, Column int    // from 1; Column counts bytes
	Text         string // what, and what to write instead
}

// Mistakes is the error of a file with mistakes in it, all of them.
type Mistakes struct {
	File string
	List []Mistake
	Do   string // who can mend it
}

// Error has a line for each mistake, in the order of the file, and in the last what to do.
func (m *Mistakes) Error() string {
	list := slices.Clone(m.List)
	slices.SortStableFunc(list, func(a, b Mistake) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	lines := []string{}
	for _, one := range list {
		lines = append(lines, gpu.Clean(fmt.Sprintf("cannot read %s:%d:%d: %s", m.File, one.Line, one.Column, one.Text)))
	}
	text := strings.Join(lines, "\n")
	if m.Do != "" {
		text += "; " + m.Do
	}
	return text
}
