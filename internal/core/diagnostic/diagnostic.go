// Package diagnostic is what is wrong in a file that people write, and where. It opens no file.
package diagnostic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// One is something in a file that cannot be meant.
type One struct {
	Line, Column int    // from 1; Column counts bytes
	Text         string // what, and what to write instead: `unknown key "replcias" of service node; did you mean replicas?`
}

// Many is the error of a file with mistakes in it, all of them.
type Many struct {
	File string // as the user knows it
	List []One
	Do   string // who can mend it; may be empty
}

// most is how many mistakes are told of one file: who has more looks for one reason of all.
const most = 50

// Error has a line for each mistake, in the order of the file: "cannot read gpuard.yaml:7:5: unknown key …", and in the last
// what to do.
func (m *Many) Error() string {
	list := slices.Clone(m.List)
	slices.SortStableFunc(list, func(a, b One) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	lines := []string{}
	for _, one := range list[:min(len(list), most)] {
		lines = append(lines, gpu.Clean(fmt.Sprintf("cannot read %s:%d:%d: %s", m.File, one.Line, one.Column, one.Text)))
	}
	if more := len(list) - most; more > 0 {
		lines = append(lines, gpu.Clean(fmt.Sprintf("cannot read %s: %d more mistakes stand behind these", m.File, more)))
	}
	text := strings.Join(lines, "\n")
	if m.Do != "" {
		text += "; " + m.Do
	}
	return text
}
