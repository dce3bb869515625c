// Package lineshell reads scripts of csh and fish by their lines: what they set for the programs that they start. It
// knows the statements for that and no more, and it runs nothing.
package lineshell

import (
	"bytes"
	"errors"
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/lint"
)

// ReadCsh returns what a script of csh or tcsh does: setenv is a Set step, unsetenv an Unset step, and everything else
// that is no part of the language a Command. What stands in a branch or loop may not happen.
func ReadCsh(file string, src []byte) (lint.File, error) { return readScript(file, src, lint.Csh) }

// ReadFish returns the same of a script of fish, where set -x exports and a function is a section.
func ReadFish(file string, src []byte) (lint.File, error) { return readScript(file, src, lint.Fish) }

func readScript(file string, src []byte, kind lint.Kind) (lint.File, error) {
	f := lint.File{Path: file, Kind: kind}
	if bytes.IndexByte(src, 0) >= 0 {
		return f, errors.New("cannot read the script: it is no text")
	}

	r := reader{kind: kind, text: scanner{src: string(src), line: 1, multiline: kind == lint.Fish}}
	for !r.text.atEnd() {
		words, end := r.text.readStatement()
		if kind == lint.Fish {
			r.readFishStatement(words)
		} else {
			r.readCshStatement(words)
		}
		r.join = end
	}

	f.Steps, f.Unread = r.steps, r.text.unread

	return f, nil
}

type reader struct {
	kind  lint.Kind
	text  scanner
	steps []lint.Step
	// Those that are open, by their first word; a function by its name.
	blocks []string
	// How the statement is tied to the one before.
	join string
}

func (r *reader) addStep(s lint.Step) {
	if r.kind == lint.Fish {
		for _, b := range r.blocks {
			if name, is := strings.CutPrefix(b, "function "); is {
				s.In = name
			}
		}
	}
	branches := slices.ContainsFunc(r.blocks, func(b string) bool { return b != "begin" && !strings.HasPrefix(b, "function ") })
	s.Maybe = s.Maybe || branches || r.join == "&&" || r.join == "||"
	r.steps = append(r.steps, s)
}

// addCommand adds a program that is started. NAME=value before it is for it alone, which fish knows and csh does not.
func (r *reader) addCommand(words []lint.Word, maybe bool) {
	s := lint.Step{Do: lint.Command, At: spanOfWords(words), Maybe: maybe, Join: r.join}
	for len(words) > 1 && r.kind == lint.Fish {
		a, is := parseAssignment(words[0], "prefix")
		if !is {
			break
		}
		s.With, words = append(s.With, a), words[1:]
	}

	s.Words = words
	r.addStep(s)
	if inner, ok := lint.ShellText(s); ok {
		r.addStep(inner)
	}
}

func (r *reader) closeBlock() {
	if n := len(r.blocks); n > 0 {
		r.blocks = r.blocks[:n-1]
	}
}

func (r *reader) readCshStatement(words []lint.Word) {
	if len(words) == 0 {
		return
	}
	maybe := false
	switch first, _, _ := strings.Cut(words[0].Text, "("); first {
	case "if", "else":
		rest := wordsAfterCondition(words)
		block := len(rest) == 1 && rest[0].Text == "then"
		if block && first == "if" {
			r.blocks = append(r.blocks, first)
		}

		if block || len(rest) == 0 {
			return
		}

		words, maybe = rest, true
	case "foreach", "while", "switch":
		r.blocks = append(r.blocks, first)
		return
	case "end", "endif", "endsw":
		r.closeBlock()
		return
	case "set", "@", "case", "default:", "breaksw", "break", "continue", "exit", "goto", "onintr", "alias", "limit", "unset", "then":
		return
	}
	switch name := words[0].Text; {
	case name == "setenv" && len(words) > 1:
		s := lint.Step{At: spanOfWords(words), Do: lint.Set, Name: words[1].Text, How: "setenv", Exported: true, Maybe: maybe}
		s.Value = emptyValue(s.At)
		if len(words) > 2 {
			s.Value = words[2]
		}
		r.addStep(s)
	case name == "unsetenv" && len(words) > 1:
		r.addStep(lint.Step{At: spanOfWords(words), Do: lint.Unset, Name: words[1].Text, How: name, Maybe: maybe})
	default:
		r.addCommand(words, maybe)
	}
}

// wordsAfterCondition are the words after if ( … ).
func wordsAfterCondition(words []lint.Word) []lint.Word {
	depth, seen := 0, false
	for i, w := range words {
		for j := range len(w.Text) {
			switch w.Text[j] {
			case '(':
				depth, seen = depth+1, true
			case ')':
				depth--
			}
		}
		if seen && depth <= 0 {
			return words[i+1:]
		}
	}
	return nil
}

func (r *reader) readFishStatement(words []lint.Word) {
	for len(words) > 0 && slices.Contains([]string{"and", "or", "not", "!"}, words[0].Text) {
		r.join, words = "&&", words[1:]
	}
	if len(words) == 0 {
		return
	}

	switch first := words[0].Text; first {
	case "if", "while":
		r.readFishStatement(words[1:])
		r.blocks = append(r.blocks, first)
	case "for", "switch", "begin":
		r.blocks = append(r.blocks, first)
	case "function":
		name := first + " "
		if len(words) > 1 {
			name += words[1].Text
		}
		r.blocks = append(r.blocks, name)
	case "end":
		r.closeBlock()
	case "else", "case", "return", "break", "continue":
	case "set":
		r.readFishSet(words[1:], spanOfWords(words))
	case "export":
		for _, w := range words[1:] {
			if a, is := parseAssignment(w, "export"); is {
				r.addStep(a)
			}
		}
	default:
		r.addCommand(words, false)
	}
}

// readFishSet reads set of fish. A list that is exported reaches programs with blanks between its entries.
func (r *reader) readFishSet(words []lint.Word, at lint.Place) {
	exports, erases := false, false
	for len(words) > 0 && strings.HasPrefix(words[0].Text, "-") {
		option := words[0].Text
		long := strings.HasPrefix(option, "--")
		exports = exports || option == "--export" || !long && strings.Contains(option, "x")
		erases = erases || option == "--erase" || !long && strings.Contains(option, "e")
		words = words[1:]
	}

	if len(words) == 0 {
		return
	}

	name := words[0].Text
	switch values := words[1:]; {
	case erases:
		r.addStep(lint.Step{At: at, Do: lint.Unset, Name: name, How: "set -e"})
	case exports:
		s := lint.Step{At: at, Do: lint.Set, Name: name, How: "set -x", Exported: true, Value: emptyValue(at)}
		if len(values) > 0 {
			s.Value = values[0]
		}

		for _, v := range values[min(len(values), 1):] {
			s.Value.Text, s.Value.Raw, s.Value.Known = s.Value.Text+" "+v.Text, "", s.Value.Known && v.Known
			s.Value.At.EndLine, s.Value.At.EndColumn = v.At.EndLine, v.At.EndColumn
		}
		r.addStep(s)
	}
}

func parseAssignment(w lint.Word, how string) (lint.Step, bool) {
	name, value, found := strings.Cut(w.Text, "=")
	if !found || name == "" || strings.ContainsAny(name, "-$./\"'") {
		return lint.Step{}, false
	}

	v := w
	v.Text = value
	if raw, same := strings.CutPrefix(w.Raw, name+"="); same && w.At.Line == w.At.EndLine {
		v.Raw = raw
		v.At.Column += len(name) + 1
	}

	return lint.Step{At: w.At, Do: lint.Set, Name: path.Base(name), Value: v, How: how, Exported: true}, true
}

func spanOfWords(words []lint.Word) lint.Place {
	at, last := words[0].At, words[len(words)-1].At
	at.EndLine, at.EndColumn = last.EndLine, last.EndColumn
	return at
}

// emptyValue is an empty value at the end of a statement.
func emptyValue(at lint.Place) lint.Value {
	at.Line, at.Column = at.EndLine, at.EndColumn
	return lint.Value{Known: true, At: at}
}
