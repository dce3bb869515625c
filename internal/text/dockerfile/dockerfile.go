// Package dockerfile reads Dockerfiles: which variables an image keeps, and what its build and its containers run. It
// builds nothing.
package dockerfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/launchers"
	"gpuard/internal/core/lint"
)

// ReadSteps returns what a Dockerfile does (https://docs.docker.com/reference/dockerfile/). Each step belongs to its build
// stage: the name after AS, else its number from 0. FROM is a Setting whose value is the image or stage; ENV and ARG
// are Set steps, and a word of ENV that assigns nothing is
// a Setting; the shell form of RUN, CMD, ENTRYPOINT and HEALTHCHECK is a Script, the exec form a Command.
func ReadSteps(file string, src []byte) (lint.File, error) {
	f := lint.File{Path: file, Kind: lint.Dockerfile}
	r := reader{lines: strings.Split(string(src), "\n"), escape: '\\', stages: -1, shell: true}
	if err := r.eachInstruction(r.readInstruction); err != nil && !slices.ContainsFunc(r.steps, func(s lint.Step) bool { return s.Name != "FROM" }) {
		return f, fmt.Errorf("cannot read the Dockerfile: %w", err)
	}

	f.Steps, f.Unread = r.steps, r.unread

	return f, nil
}

type reader struct {
	lines  []string
	escape byte
	stages int
	stage  string
	// RUN and its like are for a POSIX shell.
	shell bool
	// The stage's ENTRYPOINT in its exec form.
	entry  []lint.Word
	steps  []lint.Step
	unread int // lines
}

func (r *reader) readInstruction(i instruction) {
	name := i.enterArguments()
	switch name {
	case "FROM":
		r.readFrom(i)
	case "ENV", "ARG":
		r.readVariables(i, name)
	case "RUN":
		r.readProgram(i)
	case "CMD":
		if words, exec := i.execWords(); exec && len(words) > 0 && len(r.entry) > 0 && (strings.HasPrefix(words[0].Text, "-") || strings.Contains(words[0].Text, "=")) {
			r.addCommand(i, append(slices.Clone(r.entry), words...))
			return
		}
		r.readProgram(i)
	case "ENTRYPOINT":
		r.entry, _ = i.execWords()
		r.readProgram(i)
	case "HEALTHCHECK":
		if end := i.wordEnd(i.args); strings.EqualFold(i.text[i.args:end], "CMD") {
			i.args = i.skipBlank(end)
			r.readProgram(i)
		}
	case "SHELL":
		if words, exec := i.execWords(); exec && len(words) > 0 {
			r.shell = launchers.IsShell(words[0].Text)
		}
	case "ONBUILD":
		inner := i
		inner.dropBefore(i.args)
		inner.maybe = true
		r.readInstruction(inner)
	}
}

func (r *reader) readFrom(i instruction) {
	end := i.wordEnd(i.args)
	r.stages++
	r.stage, r.shell, r.entry = strconv.Itoa(r.stages), true, nil
	as := i.skipBlank(end)
	if asEnd := i.wordEnd(as); strings.EqualFold(i.text[as:asEnd], "AS") {
		name := i.skipBlank(asEnd)
		r.stage = strings.ToLower(i.text[name:i.wordEnd(name)])
	}

	image := i.text[i.args:end]
	r.steps = append(r.steps, lint.Step{At: i.wholePlace(), Do: lint.Setting, Name: "FROM", In: r.stage,
		Value: lint.Value{Text: image, Known: !strings.Contains(image, "$"), At: i.placeOf(i.args, end), Raw: image}})
}

// readVariables reads NAME=value NAME=value, and the older ENV NAME value with one value to the end of the line.
func (r *reader) readVariables(i instruction, how string) {
	set := func(name string, from, begin, end int) {
		v := i.unquoteValue(begin, end, r.escape)
		r.steps = append(r.steps, lint.Step{At: i.placeOf(from, end), Do: lint.Set, Name: name, Value: v, In: r.stage, How: how, Exported: true, Maybe: i.maybe || how == "ARG"})
	}
	for at := i.skipBlank(i.args); at < len(i.text); {
		end := i.quotedWordEnd(at, r.escape)
		equals := strings.IndexByte(i.text[at:end], '=')
		switch {
		case equals >= 0:
			set(i.text[at:at+equals], at, at+equals+1, end)
		case how == "ENV" && at == i.args:
			value := i.skipBlank(end)
			set(i.text[at:end], at, value, max(value, len(strings.TrimRight(i.text, " \t\r"))))
			return
		case how == "ENV":
			r.steps = append(r.steps, lint.Step{At: i.wholePlace(), Do: lint.Setting, Name: how, Value: i.unquoteValue(at, end, r.escape), In: r.stage})
		}
		at = i.skipBlank(end)
	}
}

// readProgram reads what an instruction starts, in either form.
func (r *reader) readProgram(i instruction) {
	if words, exec := i.execWords(); exec {
		r.addCommand(i, words)
		return
	}

	if !r.shell || i.args >= len(i.text) {
		return
	}

	text, at, ok := r.scriptText(i)
	if !ok {
		return
	}

	r.steps = append(r.steps, lint.Step{At: at, Do: lint.Script, Value: lint.Value{Text: text, Known: true, At: at, Raw: text}, In: r.stage, Maybe: i.maybe})
}

func (r *reader) addCommand(i instruction, words []lint.Word) {
	if len(words) == 0 {
		return
	}
	s := lint.Step{At: i.placeOf(i.args, len(i.text)), Do: lint.Command, Words: words, In: r.stage, Maybe: i.maybe}
	r.steps = append(r.steps, s)
	if inner, ok := lint.ShellText(s); ok {
		r.steps = append(r.steps, inner)
	}
}

// scriptText is the shell form as a script with the lines of the file: comments and empty lines between continued lines,
// which Docker removes, become continuations. A lone here-document is the script itself; if another program reads it,
// its text begins with #!.
func (r *reader) scriptText(i instruction) (string, lint.Place, bool) {
	at := i.placeOf(i.args, len(i.text))
	first := at.Line
	var lines []string
	if i.docs == 1 && isHeredoc(i.text[i.args:]) && !i.maybe {
		content := r.lines[i.head:max(i.head, i.last-1)]
		if len(content) == 0 || strings.HasPrefix(content[0], "#!") && !strings.Contains(content[0], "sh") {
			return "", at, false
		}
		end := len(content) - 1

		return strings.Join(content, "\n") + "\n", lint.Place{Line: i.head + 1, Column: 1, EndLine: i.last - 1, EndColumn: len(content[end]) + 1}, true
	}

	for n := first; n <= i.head && n <= len(r.lines); n++ {
		lines = append(lines, r.shellLine(r.lines[n-1], n > first, n < i.head))
	}

	if i.docs > 0 {
		lines = append(lines, r.lines[i.head:i.last]...)
	}

	if len(lines) == 0 || at.Column > len(lines[0])+1 {
		return "", at, false
	}

	lines[0] = lines[0][at.Column-1:]

	return strings.Join(lines, "\n"), at, true
}

// shellLine writes a line of an instruction as a shell reads it.
func (r *reader) shellLine(line string, inside, more bool) string {
	line = strings.TrimRight(line, "\r")
	kept := strings.TrimLeft(line, " \t")
	if inside && (kept == "" || kept[0] == '#') {
		return strings.Repeat(" ", max(len(line)-1, 0)) + `\`
	}

	if more {
		bare := strings.TrimRight(line, " \t")
		if n := len(bare) - 1; n >= 0 && bare[n] == r.escape {
			return bare[:n] + strings.Repeat(" ", len(line)-len(bare)) + `\`
		}
	}

	return line
}
