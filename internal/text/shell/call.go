package shell

import (
	"bytes"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"gpuard/internal/core/lint"
)

// readCall reads a simple command: assignments to the shell, or a program with its words and the scripts that it hands on.
func (r *reader) readCall(s *scope, c *syntax.CallExpr, redirects []*syntax.Redirect) {
	for _, a := range c.Assigns {
		r.readInner(s, a)
	}

	if len(c.Args) == 0 {
		for _, a := range c.Assigns {
			step := r.assignmentStep(a, "assignment")
			step.Several = len(c.Assigns) > 1
			r.addSet(s, step)
		}
		return
	}

	step := lint.Step{At: r.placeOf(c), Do: lint.Command, In: s.in, Process: s.process, Maybe: s.maybe, Beside: s.beside, Asked: s.asked}
	for _, a := range c.Assigns {
		w := r.assignmentStep(a, "prefix")
		w.Do, w.In, w.Process, w.Exported = lint.Set, s.in, s.process, true
		step.With = append(step.With, w)
	}

	for _, w := range c.Args {
		r.readInner(s, w)
		step.Words = append(step.Words, r.wordValue(w))
	}

	r.addRest(&step.Words[len(step.Words)-1], c)
	step.Join, r.join = r.join, ""
	r.steps = append(r.steps, step)
	r.addScripts(step, redirects)
	r.readBuiltin(s, step)
}

// addRest adds to a last word that is a blank behind a backslash what follows it in the line: more blanks, or a comment.
// That line was meant to go on.
func (r *reader) addRest(last *lint.Word, c *syntax.CallExpr) {
	end := int(c.End().Offset()) + r.shift
	if last.Raw != `\ ` && last.Raw != "\\\t" || end < 0 || end > len(r.src) {
		return
	}

	rest, _, _ := bytes.Cut(r.src[end:], []byte("\n"))
	rest = bytes.TrimRight(rest, "\r")
	last.Raw += string(rest)
	last.At.EndColumn += len(rest)
}

// readBuiltin follows the commands that change the shell's variables.
func (r *reader) readBuiltin(s *scope, step lint.Step) {
	words := step.Words
	switch words[0].Text {
	case "set":
		for i, w := range words[1:] {
			switch on := strings.HasPrefix(w.Text, "-"); {
			case isFlag(w.Text, 'a'):
				s.exportAll = on
			case w.Text == "allexport" && isFlag(words[i].Text, 'o'):
				s.exportAll = words[i].Text[0] == '-'
			}
		}
	case "shopt":
		if slices.ContainsFunc(words, func(w lint.Word) bool { return w.Text == "lastpipe" }) {
			r.lastInPlace = isFlag(words[1].Text, 's')
		}
	case "unset":
		r.readUnset(s, step)
	case "read", "mapfile", "readarray":
		last := words[len(words)-1]
		if len(words) > 1 && last.Known && syntax.ValidName(last.Text) {
			r.addSet(s, lint.Step{At: last.At, Name: last.Text, How: words[0].Text, Value: lint.Value{Text: last.Text, At: last.At, Raw: last.Raw}})
		}
	}
}

// isFlag reports whether a word is a bundle of one-letter options with this one.
func isFlag(word string, letter rune) bool {
	return len(word) > 1 && (word[0] == '-' || word[0] == '+') && word[1] != '-' && strings.ContainsRune(word[1:], letter)
}

func (r *reader) readUnset(s *scope, step lint.Step) {
	for _, w := range step.Words[1:] {
		if isFlag(w.Text, 'f') {
			// Functions.
			return
		}
		if !w.Known || !syntax.ValidName(w.Text) {
			continue
		}

		delete(s.exported, w.Text)
		delete(s.plain, w.Text)
		r.steps = append(r.steps, lint.Step{At: w.At, Do: lint.Unset, Name: w.Text, How: "unset", In: s.in, Process: s.process, Maybe: s.maybe})
	}
}

// readDeclaration reads export, declare, local, readonly and typeset.
func (r *reader) readDeclaration(s *scope, c *syntax.DeclClause) {
	how := c.Variant.Value
	export, take, names := how == "export", false, false
	for _, a := range c.Args {
		r.readInner(s, a)
		if a.Name == nil && a.Value != nil {
			flag := r.wordValue(a.Value)
			switch {
			case isFlag(flag.Text, 'f') || isFlag(flag.Text, 'F'):
				// Functions.
				return
			case isFlag(flag.Text, 'p'):
				// Only shows.
				names = true
			case how == "export" && isFlag(flag.Text, 'n'), how != "export" && flag.Text != "" && flag.Text[0] == '+' && isFlag(flag.Text, 'x'):
				export, take = false, true
			case isFlag(flag.Text, 'x'):
				export = true
			}
		}
	}

	if names {
		return
	}

	r.addIfRefused(s, c)

	for _, a := range c.Args {
		step, ok := r.declarationStep(a, how)
		switch {
		case !ok:
		case step.Do == lint.Set:
			if export {
				s.exported[step.Name] = true
			}
			r.addSet(s, step)
		case export:
			s.exported[step.Name] = true
			for _, i := range s.plain[step.Name] {
				r.steps[i].Exported = true
			}
		}
		if ok && take {
			delete(s.exported, step.Name)
		}
	}
}

// addIfRefused adds a declaration as a command when the shell refuses a word of it: export NAME= value.
func (r *reader) addIfRefused(s *scope, c *syntax.DeclClause) {
	bad := false
	step := lint.Step{At: r.placeOf(c), Do: lint.Command, In: s.in, Process: s.process, Maybe: s.maybe, Beside: s.beside,
		Words: []lint.Word{{Text: c.Variant.Value, Known: true, At: r.placeOf(c.Variant), Raw: c.Variant.Value}}}
	for _, a := range c.Args {
		raw := r.rawText(a)
		word := lint.Word{Text: raw, Known: true, At: r.placeOf(a), Raw: raw}
		if a.Name == nil && a.Value != nil {
			word = r.wordValue(a.Value)
			name, _, _ := strings.Cut(word.Text, "=")
			bad = bad || strings.HasPrefix(raw, "$") && strings.Contains(raw, "=") || word.Known && !strings.HasPrefix(word.Text, "-") && !strings.HasPrefix(word.Text, "+") && !syntax.ValidName(name)
		}
		step.Words = append(step.Words, word)
	}
	if bad {
		r.steps = append(r.steps, step)
	}
}

// declarationStep reads one argument of a declaration: NAME=value is a Set, NAME alone only has a name.
func (r *reader) declarationStep(a *syntax.Assign, how string) (lint.Step, bool) {
	switch {
	case a.Name != nil && a.Naked:
		return lint.Step{Name: a.Name.Value}, true
	case a.Name != nil:
		step := r.assignmentStep(a, how)
		step.Do = lint.Set
		return step, true
	case a.Value == nil:
		return lint.Step{}, false
	}

	// export "NAME=value"
	word := r.wordValue(a.Value)
	name, value, found := strings.Cut(word.Text, "=")
	if !word.Known || !syntax.ValidName(name) {
		return lint.Step{}, false
	}
	if !found {
		return lint.Step{Name: name}, true
	}

	at := word.At
	word.Text = value

	return lint.Step{At: at, Do: lint.Set, Name: name, How: how, Value: word}, true
}

// assignmentStep reads NAME=value. Arrays and += are not known.
func (r *reader) assignmentStep(a *syntax.Assign, how string) lint.Step {
	step := lint.Step{At: r.placeOf(a), How: how}
	if a.Name != nil {
		step.Name = a.Name.Value
	}

	switch {
	case a.Value != nil && !a.Append && a.Index == nil:
		step.Value = r.wordValue(a.Value)
	case a.Value == nil && a.Array == nil && !a.Append:
		end := step.At
		end.Line, end.Column = end.EndLine, end.EndColumn
		step.Value = lint.Value{Known: true, At: end}
	default:
		step.Value = r.unknownValue(a)
	}

	return step
}

// addSet adds a variable of the shell.
func (r *reader) addSet(s *scope, step lint.Step) {
	step.Do, step.In, step.Process, step.Maybe = lint.Set, s.in, s.process, s.maybe || step.Maybe
	step.Exported = s.exportAll || s.exported[step.Name]
	if slices.Contains(s.empty, step.Name) {
		step.How = "${:=}"
	}

	if !step.Exported {
		s.plain[step.Name] = append(s.plain[step.Name], len(r.steps))
	} else if s.exportAll {
		s.exported[step.Name] = true
	}
	r.steps = append(r.steps, step)
}
