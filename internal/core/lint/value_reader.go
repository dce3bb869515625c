package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

// readerKind is who gets the value of a variable that lists devices.
type readerKind int

const (
	// A program that gets its environment.
	readByProgram readerKind = iota
	// Nobody that the file shows.
	readPerhaps
	// The script itself, which writes it into something else, with words of its own.
	readElsewhere
)

// findReader says who reads the value that a step writes: what is exported, stands before a command or is handed to a
// container reaches a program; a variable of the shell alone does where the script hands it on under its own name.
func (f File) findReader(s Step) readerKind {
	if f.Kind == Python || f.Kind == Notebook {
		late := slices.ContainsFunc(findLateAssignments(f), func(l lateAssignment) bool { return l.set.At == s.At && l.severity == check.Error })
		if s.Shell == 0 && late {
			// Nothing reads it, and that is said.
			return readElsewhere
		}
	}
	if !isFromShell(f, s) || s.Exported || !isOneOf(s.How, "assignment", "local", "declare", "typeset", "readonly", byDefault) {
		return readByProgram
	}

	found := readPerhaps
	for _, other := range f.Steps {
		if other.Shell != s.Shell {
			continue
		}
		for _, w := range commandVariables(other) {
			if w.Name == s.Name && w.Value.From == s.Name {
				return readByProgram
			}
		}
		if takesVariable(other, s.Name) {
			found = readElsewhere
		}
	}

	return found
}

// takesVariable reports whether a step writes the value of a variable into its words; what only looks at it or prints it does
// not.
func takesVariable(s Step, name string) bool {
	if len(s.Words) > 0 && hasWord("[ [[ test echo printf", s.Words[0].Text) {
		return false
	}
	expands := func(v Value) bool {
		return !v.Known && (v.From == name || strings.Contains(v.Raw, "${"+name) || strings.Contains(v.Raw+" ", "$"+name))
	}
	return slices.ContainsFunc(s.Words, expands) || s.Do == Set && s.Name != name && expands(s.Value)
}
