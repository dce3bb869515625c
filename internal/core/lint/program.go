package lint

import (
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/launchers"
)

// program is the command that is really started, after env, sudo, nohup and the like.
type program struct {
	Step
	// The name of the program without its folder; "" when it is computed.
	name string
	args []Word // its own
	// Set and Unset steps: what this program alone gets, the last one of a name counts.
	set  []Step
	by   []string
	sudo *sudo // nil without
}

// sudo is what sudo lets through.
type sudo struct {
	all   bool
	names []string
	at    Word
}

// programOf skips programs that start another one, as the package launchers knows them.
func programOf(s Step) program {
	p := program{Step: s, set: slices.Clone(s.With)}
	texts := wordTexts(s.Words)
	l := launchers.FindProgram(texts)
	for _, at := range l.By {
		p.by = append(p.by, path.Base(texts[at]))
	}

	for _, c := range l.Changes {
		w := s.Words[c.Word]
		if strings.HasPrefix(c.By, "--") {
			w, _ = firstOptionValue(s.Words[c.Word:])
		}

		switch set, ok := parseAssignment(w, c.By); {
		case !c.Unset && ok:
			p.set = append(p.set, set)
		case c.Name == "*":
			p.set = []Step{{At: w.At, Do: Unset, Name: c.Name, How: c.By}}
		case c.Unset:
			p.set = append(p.set, Step{At: w.At, Do: Unset, Name: c.Name, How: c.By})
		}
	}

	if l.Sudo >= 0 {
		p.sudo = &sudo{all: slices.Contains(l.Kept, "*"), names: l.Kept, at: s.Words[l.Sudo]}
	}

	p.name = l.Name(texts)
	if p.name != "" {
		p.args = s.Words[l.At+1:]
	}

	return p
}

// wordTexts is the texts of words, with a computed name of a program marked by a "$" as launchers want it.
func wordTexts(words []Word) []string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.Text
		if !w.Known && !strings.Contains(w.Text, "$") && !strings.HasPrefix(w.Text, "-") {
			texts[i] = "$" + w.Text
		}
	}
	return texts
}

// parseAssignment reads a word NAME=value as a Set step.
func parseAssignment(w Word, how string) (Step, bool) {
	name, value, ok := strings.Cut(w.Text, "=")
	if !ok || !isName(name) {
		return Step{}, false
	}

	at := w.At
	v := Value{Text: value, Known: w.Known, At: at, Raw: w.Raw, From: w.From}
	if raw, found := strings.CutPrefix(w.Raw, name+"="); found && at.Line == at.EndLine {
		v.Raw = raw
		v.At.Column += len(name) + 1
	}

	return Step{At: at, Do: Set, Name: name, Value: v, How: how, Exported: true}, true
}

var nameForm = lazyRegexp(`^[A-Za-z_][A-Za-z0-9_]*$`)

func isName(s string) bool { return nameForm().MatchString(s) }

// dropsVariable reports whether sudo keeps the variable from the program. What sudoers lets through is not in the file.
func (s *sudo) dropsVariable(name string) bool {
	return s != nil && !s.all && !slices.Contains(s.names, name)
}

// ownVariable is what this program alone gets for a variable: its last Set or Unset step.
func (p program) ownVariable(name string) (Step, bool) {
	for i := len(p.set) - 1; i >= 0; i-- {
		if p.set[i].Name == name || p.set[i].Name == "*" {
			return p.set[i], true
		}
	}
	return Step{}, false
}

// isPython reports whether a program is a Python interpreter.
func isPython(name string) bool { return launchers.IsPython(name) }

// usesGPUs reports whether a program is known to compute, so that a wrong device is a mistake.
func (p program) usesGPUs() bool { return launchers.Computes(p.name, wordTexts(p.args)) }

func isOneOf(word string, list ...string) bool { return slices.Contains(list, word) }

func containsAny(text string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// findOption returns the value of an option of a program: "--nproc-per-node=4" and "--nproc_per_node 4" are the same, as
// the launchers take them.
func findOption(args []Word, names ...string) (Word, bool) {
	for i, w := range args {
		name, _, _ := strings.Cut(w.Text, "=")
		if strings.HasPrefix(name, "-") && slices.Contains(names, strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-")) {
			return firstOptionValue(args[i:])
		}
	}
	return Word{}, false
}

// firstOptionValue is the value of the option that words begin with: behind its "=", or the next word.
func firstOptionValue(words []Word) (Word, bool) {
	w := words[0]
	name, value, given := strings.Cut(w.Text, "=")
	if !given {
		if len(words) > 1 {
			return words[1], true
		}
		return Word{}, false
	}

	w.Text = value
	if raw, ok := strings.CutPrefix(w.Raw, name+"="); ok && w.At.Line == w.At.EndLine {
		w.Raw = raw
		w.At.Column += len(name) + 1
	}

	return w, true
}
