package lint

import (
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/launchers"
)

// lookNotHandedOn finds a list of devices for a program that hands no variables on to the one that computes.
func lookNotHandedOn(a indexedFile, i int, s Step) (all []Finding) {
	if !isFromShell(a.File, s) {
		return nil
	}

	k, at, drops := launchers.FindDropper(wordTexts(s.Words))
	if !drops || slices.ContainsFunc(s.Words, func(w Word) bool { return containsAny(w.Text, "SendEnv", "SetEnv") }) {
		return nil
	}

	p := programOf(s)
	for _, name := range maskVariables() {
		set, direct := prefixAssignment(s, name)
		if !direct && clearsEnvironment(k) && p.usesGPUs() {
			set, _ = a.outerSetting(i, name)
		}

		if set.Do != Set || hidesEveryDevice(set.Value) || p.sudo.dropsVariable(name) || slices.ContainsFunc(s.Words, func(w Word) bool { return strings.Contains(w.Text, name) }) {
			continue
		}

		program := path.Base(s.Words[at].Text)
		if k.Name != "" {
			program += " " + k.Name
		}

		do := strings.NewReplacer("NAME", name, "VALUE", set.Value.Raw).Replace(k.Instead)
		all = append(all, Finding{Finding: check.Finding{
			Seen: name + " is set for " + program + ", which does not hand it on",
			Why:  "the program that computes gets another environment, and sees every GPU there is", Do: do}, At: s.At})
	}

	return all
}

// clearsEnvironment reports whether a program starts another one on this machine, in an environment that it has emptied on
// request: an exported list is lost there too.
func clearsEnvironment(k launchers.Key) bool {
	return slices.Contains([]string{"env", "apptainer singularity"}, k.Programs)
}

// lookWrapperAssignment is the rule assignment-as-program for shells: the program after nohup and the like is no place for
// NAME=value.
func lookWrapperAssignment(a indexedFile, i int, s Step) (all []Finding) {
	if !isFromShell(a.File, s) {
		return nil
	}

	texts := wordTexts(s.Words)
	l := launchers.FindProgram(texts)
	for n, at := range l.By {
		name := path.Base(texts[at])
		first := append(l.By, l.At)[n+1]
		if launchers.IsSearched(name) {
			first = programAfter(texts, at)
		}

		sets := leadingAssignments(s.Words[max(0, min(first, len(texts))):])
		if !launchers.TakesProgram(name) || first < 0 || len(sets) == 0 || !slices.ContainsFunc(sets, func(a Step) bool { return isKnownGPUVariable(a.Name) }) {
			continue
		}

		w := s.Words[first]
		all = append(all, Finding{Finding: check.Finding{Seen: name + " takes " + quoteValue(w.Text) + " as the name of the program to start",
			Why: "only the shell and env take an assignment before a program", Do: "write: " + name + " env " + w.Raw + " ..., or write it before " + name}, At: w.At,
			Edits: fixWordEdits(a.File, w, "env "+w.Raw), Write: shownWordEdits(a.File, s, w, "env "+w.Raw)})
	}

	return all
}

// leadingAssignments is the words NAME=value that words begin with, where a program follows them.
func leadingAssignments(words []Word) (sets []Step) {
	for _, w := range words {
		set, ok := parseAssignment(w, "env")
		if !ok {
			return sets
		}
		sets = append(sets, set)
	}
	return nil
}

var optionValue = lazyRegexp(`^[0-9][0-9.,:+a-zA-Z-]*$`)

// programAfter is the first word behind a program, its options and their values, as far as these can be told apart; -1
// where an option may take that word.
func programAfter(texts []string, at int) int {
	for i := at + 1; i < len(texts); i++ {
		before := texts[i-1]
		mayTake := i-1 > at && strings.HasPrefix(before, "-") && !strings.Contains(before, "=")
		switch w := texts[i]; {
		case strings.HasPrefix(w, "-"), optionValue().MatchString(w):
		case mayTake:
			return -1
		default:
			return i
		}
	}
	return -1
}
