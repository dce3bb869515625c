package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

// lookNoBreakSpace finds blanks that are none for the shell: it separates words at blanks, tabs and line ends alone.
func lookNoBreakSpace(f File) []Finding {
	var all []Finding
	for _, s := range f.Steps {
		isAssignment := s.Do == Set && (isGPUVariable(s.Name) || s.Name == "MASTER_PORT")
		if !isFromShell(f, s) || !isAssignment && (s.Do != Command || len(s.Words) == 0 || !meansGPUs(s)) {
			continue
		}

		i := slices.IndexFunc(written(s), hasNoBreakSpace)
		if i < 0 {
			continue
		}

		v := written(s)[i]
		all = append(all, Finding{Finding: check.Finding{Seen: "a no-break space (U+00A0) stands in this command, which looks like a blank",
			Why: "the shell takes it for a letter, so the words around it are one word",
			Do:  "write a blank in its place: " + strings.TrimRight(strings.ReplaceAll(v.Raw, noBreakSpace, " "), " ")}, At: v.At})
	}
	return all
}

const noBreakSpace = "\u00a0"

// written are the words of a command and the values before it, or the value of an assignment.
func written(s Step) []Value {
	if s.Do == Set {
		return []Value{s.Value}
	}
	var all []Value

	for _, w := range s.With {
		all = append(all, w.Value)
	}

	return append(all, s.Words...)
}

// hasNoBreakSpace reports whether one stands in a value outside quotes.
func hasNoBreakSpace(v Value) bool {
	return strings.Contains(v.Raw, noBreakSpace) && !strings.ContainsAny(v.Raw, "\"'`")
}
