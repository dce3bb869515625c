package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

// lookNoBreakSpace finds blanks that are none for the shell: it separates words at blanks, tabs and line ends alone.
func lookNoBreakSpace(a indexedFile, _ int, s Step) []Finding {
	isAssignment := s.Do == Set && (isGPUVariable(s.Name) || s.Name == "MASTER_PORT")
	if !isFromShell(a.File, s) || !isAssignment && (s.Do != Command || len(s.Words) == 0 || !meansGPUs(s)) {
		return nil
	}

	values := written(s)
	i := slices.IndexFunc(values, hasNoBreakSpace)
	if i < 0 || isForWindows(s) {
		return nil
	}

	v := values[i]
	why := "the shell takes it for a letter, so the words around it are one word"
	right := strings.TrimSpace(strings.ReplaceAll(v.Raw, noBreakSpace, " "))
	switch right {
	case `\`:
		why = "the shell takes it for a letter, so the backslash does not join the next line to this one"
		right = "the backslash as the last byte of the line"
	case "":
		why = "the shell takes it for a letter, so the command gets a word more, which nobody sees"
		right = textAround(values, i)
	}

	return []Finding{{Finding: check.Finding{Seen: "this command has a no-break space (U+00A0) in it, which looks like a blank",
		Why: why, Do: "type plain blanks: " + right}, At: v.At}}
}

// textAround are the words that can be seen before and after one, with a blank between.
func textAround(values []Value, i int) string {
	isSeen := func(v Value) bool { return strings.Trim(v.Raw, noBreakSpace) != "" }
	first := len(values[:i])
	for first > 0 && !isSeen(values[first]) {
		first--
	}

	after := slices.IndexFunc(values[i:], isSeen)
	if after < 0 {
		return values[first].Raw
	}

	return values[first].Raw + " " + values[i+after].Raw
}

// isForWindows reports whether a command is written for PowerShell or the Windows prompt, by the paths in it: PowerShell takes a
// no-break space for a blank.
func isForWindows(s Step) bool {
	return slices.ContainsFunc(s.Words, func(w Word) bool { return windowsPath().MatchString(w.Raw) })
}

var windowsPath = lazyRegexp(`(?i)^(\.{1,2}\\[a-z]|[a-z]:\\|.*\.(exe|ps1|bat|cmd)$)`)

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
