package notebook

import (
	"slices"
	"strings"

	"gpuard/internal/core/lint"
)

// splitMagic separates the magic lines of a cell from its Python, and writes "pass" instead of each, so that a block of
// only magic lines stays one (https://ipython.readthedocs.io/en/stable/interactive/magics.html).
func splitMagic(number int, text string) lint.Cell {
	c := lint.Cell{Number: number, Written: text}
	rows := strings.Split(text, "\n")
	if name, rest, ok := cellMagic(rows); ok {
		switch {
		case slices.Contains([]string{"bash", "sh"}, name), name == "script" && slices.Contains([]string{"bash", "sh"}, rest):
			c.Steps = []lint.Step{scriptStep(number, rows[1:])}
			rows = nil
		case slices.Contains([]string{"time", "timeit", "capture", "prun", "python", "python3"}, name):
			rows[0] = ""
		default:
			// Another language, or a file that is written.
			rows = nil
		}
	}

	var now lineState

	for i := 0; i < len(rows); i++ {
		if now.startsStatement() {
			if step, ok := magicStep(rows[i], lint.Place{Cell: number, Line: i + 1}); ok {
				if step.Do != "" {
					c.Steps = append(c.Steps, step)
				}

				indent := len(rows[i]) - len(strings.TrimLeft(rows[i], " \t"))
				long := strings.HasSuffix(strings.TrimRight(rows[i], " \r"), `\`)
				rows[i] = rows[i][:indent] + "pass"

				for ; long && i+1 < len(rows); i++ {
					long = strings.HasSuffix(strings.TrimRight(rows[i+1], " \r"), `\`)
					rows[i+1] = ""
				}

				continue
			}
		}
		now.readLine(rows[i])
	}

	c.Text = []byte(strings.Join(rows, "\n"))

	return c
}

// cellMagic is the magic of a whole cell: its first line that is not empty.
func cellMagic(rows []string) (name, rest string, ok bool) {
	if len(rows) == 0 {
		return "", "", false
	}
	line, ok := strings.CutPrefix(rows[0], "%%")
	name, rest, _ = strings.Cut(strings.TrimSpace(line), " ")

	return name, strings.TrimSpace(rest), ok
}

// scriptStep is a cell that a shell reads.
func scriptStep(number int, rows []string) lint.Step {
	text := strings.Join(rows, "\n")
	at := lint.Place{Cell: number, Line: 2, Column: 1, EndLine: 1 + max(1, len(rows)), EndColumn: 1}
	if len(rows) > 0 {
		at.EndColumn = len(rows[len(rows)-1]) + 1
	}

	return lint.Step{Do: lint.Script, At: at, How: "%%bash", Value: lint.Value{Text: text, Known: true, At: at, Raw: text}}
}

// magicStep is what one line does that is no Python; the step is empty where it is nothing of interest.
func magicStep(row string, at lint.Place) (lint.Step, bool) {
	trimmed := strings.TrimLeft(row, " \t")
	begin := len(row) - len(trimmed)
	trimmed = strings.TrimRight(trimmed, " \t\r")
	if name, rest, ok := strings.Cut(trimmed, "="); ok && strings.TrimSpace(name) != "" && !strings.ContainsAny(name, "()\"'#!%") {
		right := strings.TrimLeft(rest, " ")
		if strings.HasPrefix(right, "!") || strings.HasPrefix(right, "%") {
			begin += len(trimmed) - len(right)
			trimmed = right
		}
	}

	at.EndLine, at.Column, at.EndColumn = at.Line, begin+1, begin+len(trimmed)+1

	switch {
	case strings.HasPrefix(trimmed, "!"):
		return shellStep(trimmed, at), true
	case strings.HasPrefix(trimmed, "%"):
		return envStep(trimmed, at), true
	case strings.HasPrefix(trimmed, "?"), strings.HasSuffix(trimmed, "?") && !strings.ContainsAny(trimmed, "\"'# "):
		return lint.Step{}, true
	}

	return lint.Step{}, false
}

// shellStep is a line for a shell of its own. Python's values are put in for $name and {name} before: such a line is only
// known to start something.
func shellStep(line string, at lint.Place) lint.Step {
	text := strings.TrimPrefix(strings.TrimPrefix(line, "!"), "!")
	at.Column += len(line) - len(text)
	value := lint.Value{Text: text, Known: true, At: at, Raw: text}
	if strings.Contains(text, "{") || strings.HasSuffix(text, `\`) {
		value.Known = false
		return lint.Step{Do: lint.Command, At: at, How: "!", Words: []lint.Word{value}}
	}

	return lint.Step{Do: lint.Script, At: at, How: "!", Value: value}
}

// envStep is %env and %set_env with a value: what follows = or the first space, with its quotes, which are part of it
// (ipython/ipython: IPython/core/magics/osm.py).
func envStep(line string, at lint.Place) lint.Step {
	name, rest, _ := strings.Cut(line[1:], " ")
	if name != "env" && name != "set_env" {
		return lint.Step{}
	}

	rest = strings.TrimSpace(rest)
	variable, value, ok := strings.Cut(rest, "=")
	if !ok {
		variable, value, ok = strings.Cut(rest, " ")
	}

	variable, value = strings.TrimSpace(variable), strings.TrimSpace(value)
	if !ok || variable == "" || strings.Contains(variable, " ") {
		return lint.Step{}
	}

	place := at
	place.Column = at.EndColumn - len(value)
	known := !strings.ContainsAny(value, "${")

	return lint.Step{Do: lint.Set, Name: variable, At: at, How: "%" + name, Value: lint.Value{Text: value, Known: known, At: place, Raw: value}}
}

// lineState is the state at the beginning of a line: within a string of three quotes, within brackets, or after a backslash
// no statement begins.
type lineState struct {
	quote   string
	depth   int
	follows bool
}

func (l *lineState) startsStatement() bool { return l.quote == "" && l.depth == 0 && !l.follows }

// readLine reads one line of Python as far as its strings, comments and brackets go.
func (l *lineState) readLine(row string) {
	l.follows = false
	for i := 0; i < len(row); i++ {
		rest := row[i:]
		if l.quote != "" {
			switch {
			case rest[0] == '\\':
				i++
			case strings.HasPrefix(rest, l.quote):
				i += len(l.quote) - 1
				l.quote = ""
			}
			continue
		}

		switch rest[0] {
		case '#':
			return
		case '(', '[', '{':
			l.depth++
		case ')', ']', '}':
			l.depth = max(0, l.depth-1)
		case '\\':
			l.follows = strings.TrimSpace(rest[1:]) == ""
		case '"', '\'':
			l.quote = rest[:1]
			if triple := strings.Repeat(rest[:1], 3); strings.HasPrefix(rest, triple) {
				l.quote = triple
				i += 2
			}
		}
	}
	if len(l.quote) == 1 {
		// Ends with its line, unless that ends with a backslash.
		l.follows = strings.HasSuffix(row, `\`)
		l.quote = ""
	}
}
