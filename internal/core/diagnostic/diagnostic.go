// Package diagnostic has the errors of a file that users write, with their positions. It must not open files:
//
//	return &diagnostic.Many{File: path, List: mistakes}
package diagnostic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/prose"
)

// One is one mistake in a file.
type One struct {
	// The place, from 1; Column counts bytes.
	Line, Column int
	// The mistake, and what to write instead: `unknown key "replcias" of service node; did you mean replicas?`.
	Text string
}

// Many is the error of a file with mistakes, with all of them.
type Many struct {
	// The file as the user names it.
	File string
	List []One
	// Who can fix it; may be empty.
	Do string
}

// maxListed is how many mistakes are listed for one file: more of them usually have one cause.
const maxListed = 50

// Error has a line for each mistake, in the order of the file: "cannot read gpuard.yaml:7:5: unknown key …", and Do in
// the last line.
func (m *Many) Error() string {
	list := slices.Clone(m.List)
	slices.SortStableFunc(list, func(a, b One) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	lines := prose.Texts(list[:min(len(list), maxListed)], func(one One) string {
		return prose.Clean(fmt.Sprintf("cannot read %s:%d:%d: %s", m.File, one.Line, one.Column, one.Text))
	})

	if more := len(list) - maxListed; more > 0 {
		lines = append(lines, prose.Clean(fmt.Sprintf("cannot read %s: %d more mistakes follow these", m.File, more)))
	}

	text := strings.Join(lines, "\n")
	if m.Do != "" {
		text += "; " + m.Do
	}

	return text
}
