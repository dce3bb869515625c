package lint

import (
	"path"
	"slices"
	"strings"
	"sync"

	"gpuard/internal/core/check"
	"gpuard/internal/core/launchers"
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

// readers says of the steps of one file who reads what they set. What is asked of the whole file is found once.
type readers struct {
	file File
	// Assignments of Python that come too late.
	late func() map[Place]check.Severity
	// Exports behind which nothing runs.
	lost func() map[Place]bool
	// ENV steps that a container from the image gets.
	kept func() map[Place]bool
	// Variables whose value is handed to the container runtime, which has words of its own for devices.
	handed func() map[string]bool
	// Commands by the places of the variables that each alone gets.
	commands func() map[Place]Step
	// A program of the file takes more than one GPU, or may.
	mayTakeSeveral func() bool
}

func newReaders(f File) readers {
	places := func(found []Finding) map[Place]bool {
		all := map[Place]bool{}
		for _, one := range found {
			all[one.At] = true
		}
		return all
	}

	return readers{
		file: f,
		late: sync.OnceValue(func() map[Place]check.Severity {
			all := map[Place]check.Severity{}
			for _, l := range findLateAssignments(f) {
				all[l.set.At] = l.severity
			}
			return all
		}),
		lost: sync.OnceValue(func() map[Place]bool { return places(lookExportLost(f)) }),
		kept: sync.OnceValue(func() map[Place]bool {
			all := map[Place]bool{}
			for _, s := range imageVariables(f) {
				all[s.At] = true
			}
			return all
		}),
		handed: sync.OnceValue(func() map[string]bool { return handedToContainers(f) }),
		commands: sync.OnceValue(func() map[Place]Step {
			all := map[Place]Step{}
			for _, s := range f.Steps {
				for _, w := range commandVariables(s) {
					all[w.At] = s
				}
			}
			return all
		}),
		mayTakeSeveral: sync.OnceValue(f.mayTakeSeveral),
	}
}

// findReader says who reads the value that a step writes: what is exported, stands before a command or is handed to a
// container reaches a program; a variable of the shell alone does where the script hands it on under its own name.
func (r readers) findReader(s Step) readerKind {
	f := r.file
	if s.Shell == 0 && (f.Kind == Python || f.Kind == Notebook) {
		severity, isLate := r.late()[s.At]
		switch {
		case isLate && severity == check.Error:
			// Nothing reads it, and that is said.
			return readElsewhere
		case isLate:
			return readPerhaps
		}
	}

	switch {
	case r.lost()[s.At]:
		// No program runs behind it, and that is said.
		return readElsewhere
	case f.Kind == Dockerfile && s.How == "ENV" && !r.kept()[s.At] && !f.computesIn(s.In):
		// A stage that only builds.
		return readPerhaps
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

// mayBeDealtOut reports whether a list before a command may be for that command itself, which deals it out among processes of its
// own: a script of a shell, or a program of which nothing is known.
func (r readers) mayBeDealtOut(s Step) bool {
	command, found := r.commands()[s.At]
	if !found || command.Do != Command {
		return false
	}

	texts := wordTexts(command.Words)
	at := launchers.FindProgram(texts).At
	if at >= len(texts) {
		return false
	}

	start := strings.Trim(command.Words[at].Raw, `"'`)
	name := path.Base(start)
	switch {
	case hasWord("bash sh zsh dash ksh source .", name), strings.HasSuffix(name, ".sh"):
		return true
	case strings.HasPrefix(name, "python"), strings.Contains(start, "/"), hasWord("ipython jupyter jupyter-lab jupyter-notebook", name), slices.ContainsFunc(texts, func(w string) bool { return strings.HasSuffix(w, ".py") }):
		return false
	}

	return launchers.ReadCommand(texts, nil).Program == ""
}

// computesIn reports whether a stage of an image starts a program that uses GPUs.
func (f File) computesIn(stage string) bool {
	return slices.ContainsFunc(f.Steps, func(s Step) bool { return s.In == stage && s.Do == Command && programOf(s).usesGPUs() })
}

// handedToContainers are the list variables that a command gives to a container runtime under another name.
func handedToContainers(f File) map[string]bool {
	all := map[string]bool{}
	for _, s := range f.Steps {
		r, contained := readContainerRun(s)
		if !contained {
			continue
		}
		for _, name := range maskVariables() {
			own := slices.ContainsFunc(r.env, func(v Step) bool { return v.Name == name })
			all[name] = all[name] || !own && takesVariable(s, name)
		}
	}
	return all
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
