// Package makefile reads makefiles: what their recipes run, each line in a shell of its own, and what make gives all of
// them. It runs nothing and follows no include.
package makefile

import (
	"bytes"
	"errors"
	"strings"

	"gpuard/internal/core/lint"
)

// ReadSteps returns what a makefile does (https://www.gnu.org/software/make/manual/html_node/index.html). A variable that
// make exports is a Set step. A line of a recipe is a Script of its target, with the lines that continue it; with
// .ONESHELL all lines of a recipe are one.
func ReadSteps(path string, src []byte) (lint.File, error) {
	f := lint.File{Path: path, Kind: lint.Makefile}
	if bytes.IndexByte(src, 0) >= 0 {
		return f, errors.New("cannot read the makefile: it is no text")
	}

	r := reader{lines: strings.Split(string(src), "\n"), together: bytes.Contains(src, []byte(".ONESHELL"))}
	for n := 0; n < len(r.lines); {
		n = r.readLine(n)
	}

	f.Steps = r.steps

	return f, nil
}

type reader struct {
	lines    []string
	together bool   // .ONESHELL
	target   string // of the rule above
	depth    int    // of conditionals
	// Variables that are not exported so far.
	plain []lint.Step
	steps []lint.Step
}

// readLine reads one line with those that continue it, and returns the number of the next.
func (r *reader) readLine(n int) int {
	end := r.endOfContinuation(n)
	line := strings.TrimRight(r.lines[n], "\r")
	words := strings.Fields(line)
	switch {
	case len(words) == 0:
	case line[0] == '\t' && r.target != "":
		for r.together && end < len(r.lines) && strings.HasPrefix(r.lines[end], "\t") {
			end = r.endOfContinuation(end)
		}
		r.readRecipe(n, end)
	case words[0][0] == '#':
	case words[0] == "ifeq" || words[0] == "ifneq" || words[0] == "ifdef" || words[0] == "ifndef":
		r.depth++
	case words[0] == "endif":
		r.depth = max(r.depth-1, 0)
	case words[0] == "define":
		for end < len(r.lines) && strings.TrimSpace(r.lines[end]) != "endef" {
			end++
		}
	case words[0] == "export" && len(words) > 1:
		r.readExport(n, strings.Index(line, "export")+len("export"), "")
	default:
		r.readRule(n, line)
	}

	return end
}

func (r *reader) endOfContinuation(n int) int {
	for ; n < len(r.lines)-1; n++ {
		line := strings.TrimRight(r.lines[n], "\r")
		if (len(line)-len(strings.TrimRight(line, `\`)))%2 == 0 {
			break
		}
	}
	return n + 1
}

// readRule reads the line of a rule: its target, or a variable of a target that is exported to its recipe.
func (r *reader) readRule(n int, line string) {
	colon := strings.IndexByte(line, ':')
	equals := strings.IndexByte(line, '=')
	if colon < 0 || equals >= 0 && equals <= colon+2 {
		// An assignment: =, :=, ::=.
		r.target = ""
		if s, ok := r.readAssignment(n, 0, ""); ok {
			r.plain = append(r.plain, s)
		}
		return
	}

	target := strings.TrimSpace(line[:colon])
	rest := line[colon+1:]
	if trimmed := strings.TrimLeft(rest, " \t"); equals >= 0 && strings.HasPrefix(trimmed, "export ") {
		r.readExport(n, len(line)-len(trimmed)+len("export"), target)
		return
	}

	r.target = target
}

// readExport reads NAME = value, and names alone, whose values stand elsewhere.
func (r *reader) readExport(n, from int, target string) {
	if s, ok := r.readAssignment(n, from, target); ok {
		r.steps = append(r.steps, s)
		return
	}
	for name := range strings.FieldsSeq(r.lines[n][from:]) {
		for _, s := range r.plain {
			if s.Name == name {
				r.steps = append(r.steps, s)
			}
		}
	}
}

// readAssignment reads NAME = value from a byte of a line on.
func (r *reader) readAssignment(n, from int, target string) (lint.Step, bool) {
	line := strings.TrimRight(r.lines[n], "\r")
	equals := strings.IndexByte(line[from:], '=')
	if equals < 0 || strings.HasSuffix(line, `\`) {
		return lint.Step{}, false
	}

	equals += from
	name := strings.TrimRight(line[from:equals], ":?+! \t")
	start := from + len(name) - len(strings.TrimLeft(name, " \t"))
	name = strings.TrimSpace(name)
	value := line[equals+1:]
	if i := strings.IndexByte(value, '#'); i >= 0 {
		value = value[:i]
	}

	begin := equals + 1 + len(value) - len(strings.TrimLeft(value, " \t"))
	value = strings.TrimSpace(value)
	if value == "" {
		begin = equals + 1
	}

	place := func(from, to int) lint.Place {
		return lint.Place{Line: n + 1, Column: from + 1, EndLine: n + 1, EndColumn: to + 1}
	}

	return lint.Step{At: place(start, begin+len(value)), Do: lint.Set, Name: name, In: target, How: "make", Exported: true,
		Maybe: r.depth > 0 || strings.Contains(line[from:equals], "?"),
		Value: lint.Value{Text: value, Known: !strings.Contains(value, "$"), At: place(begin, begin+len(value)), Raw: value}}, name != "" && !strings.ContainsAny(name, " \t$")
}

// readRecipe reads the lines from one to before another as a script. The characters that tell make how to run a line are
// made blank.
func (r *reader) readRecipe(n, end int) {
	lines := append([]string(nil), r.lines[n:end]...)
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], "\r")
		if i == 0 || r.together {
			bare := strings.TrimLeft(lines[i], " \t@+-")
			lines[i] = strings.Repeat(" ", len(lines[i])-len(bare)) + bare
		}
	}

	text := strings.Join(lines, "\n")
	at := lint.Place{Line: n + 1, Column: 1, EndLine: end, EndColumn: len(lines[len(lines)-1]) + 1}
	s := lint.Step{At: at, Do: lint.Script, In: r.target, Maybe: r.depth > 0}
	if strings.Contains(text, "$$") {
		s.Indent = -1
	}

	s.Value = lint.Value{Text: shellText(text), Known: true, At: at, Raw: text}
	r.steps = append(r.steps, s)
}

// shellText writes what make fills in, $(NAME), $@ and the like, as variables of a shell of the same length, and $$ as $.
func shellText(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		switch {
		case rest[0] != '$' || len(rest) == 1:
			out.WriteByte(rest[0])
		case rest[1] == '$':
			out.WriteByte('$')
			i++
		case rest[1] == '(' || rest[1] == '{':
			length := closingLength(rest[1:])
			out.WriteString("${")

			for j := 2; j < length; j++ {
				out.WriteByte(nameLetter(rest[j], j == 2))
			}

			out.WriteByte('}')
			i += length
		default:
			// $@, $<, $x.
			out.WriteByte('$')
			if j := strings.IndexByte("@<^*?+%|", rest[1]); j >= 0 {
				out.WriteByte("abcdefgh"[j])
			} else {
				out.WriteByte(rest[1])
			}
			i++
		}
	}
	return out.String()
}

// closingLength is the number of bytes up to the bracket that closes the first one, or to the end of the line.
func closingLength(text string) int {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case text[0]:
			depth++
		case '\n':
			return i
		case ')', '}':
			if (text[i] == ')') == (text[0] == '(') {
				depth--
			}
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(text)
}

func nameLetter(c byte, first bool) byte {
	if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || !first && c >= '0' && c <= '9' {
		return c
	}
	return '_'
}
