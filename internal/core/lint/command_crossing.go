package lint

import (
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/launchers"
)

// lookNotHandedOn finds a list of devices for a program that hands no variables on to the one that computes.
func lookNotHandedOn(f File) []Finding {
	a := lookAround(f)
	var all []Finding
	for i, s := range f.Steps {
		if s.Do != Command || !inShell(f, s) {
			continue
		}
		k, at, drops := launchers.Dropper(spelled(s.Words))
		if !drops || slices.ContainsFunc(s.Words, func(w Word) bool { return mentions(w.Text, "SendEnv", "SetEnv") }) {
			continue
		}
		p := started(s)
		for _, name := range masks() {
			set, direct := prefixed(s, name)
			if !direct && clears(k) && p.usesGPUs() {
				set, _ = a.inherited(i, name)
			}
			if set.Do != Set || hides(set.Value) || p.sudo.drops(name) || slices.ContainsFunc(s.Words, func(w Word) bool { return strings.Contains(w.Text, name) }) {
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
	}
	return all
}

// clears reports whether a program starts another one on this machine, in an environment that it has emptied on
// request: an exported list is lost there too.
func clears(k launchers.Key) bool {
	return slices.Contains([]string{"env", "apptainer singularity"}, k.Programs)
}

var optionValue = pattern(`^[0-9][0-9.,:+a-zA-Z-]*$`)

// lookWrapped is the rule assignment-as-program for shells: the program after nohup and the like is no place for
// NAME=value.
func lookWrapped(f File) []Finding {
	var all []Finding
	for _, s := range f.Steps {
		if s.Do != Command || !inShell(f, s) {
			continue
		}
		texts := spelled(s.Words)
		for _, at := range launchers.Start(texts).By {
			name := path.Base(texts[at])
			i := programAfter(texts, at)
			if !launchers.TakesProgram(name) || i < 0 || i+1 >= len(texts) {
				continue
			}
			w := s.Words[i]
			set, ok := assignment(w, "env")
			if !ok || !forGPUs(set.Name) {
				continue
			}
			finding := Finding{Finding: check.Finding{Seen: name + " takes " + quote(w.Text) + " as the name of the program to start",
				Why: "only the shell and env take an assignment before a program", Do: "write: " + name + " env " + w.Raw + " ..., or write it before " + name}, At: w.At,
				Edits: replace(f, w, "env "+w.Raw), Write: rewritten(f, s, w, "env "+w.Raw)}
			all = append(all, finding)
		}
	}
	return all
}

// programAfter is the first word behind a program and its options; -1 where an option may take that word.
func programAfter(texts []string, at int) int {
	for i := at + 1; i < len(texts); i++ {
		before := texts[i-1]
		isOption := i-1 > at && strings.HasPrefix(before, "-") && !strings.Contains(before, "=")
		switch w := texts[i]; {
		case strings.HasPrefix(w, "-"):
		case isOption && !optionValue().MatchString(w) && strings.Contains(w, "="):
			return -1
		case optionValue().MatchString(w):
		default:
			return i
		}
	}
	return -1
}
