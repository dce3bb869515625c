// Package unit reads systemd units and podman's quadlets: which programs they start, with which variables and devices.
// It writes the words of their command lines, and starts nothing.
package unit

import (
	"bytes"
	"fmt"
	"strings"

	"gpuard/internal/core/lint"
)

// ReadSteps returns what a unit does (systemd.syntax(7), systemd.exec(5), systemd.service(5), podman-systemd.unit(5)). The
// variables of Environment= are Set steps and come before the programs of Exec…= lines, which are Commands, because
// they apply to all of them wherever they are. A word of Environment= that is no assignment, and every other key that
// matters to devices, is a Setting with the key as its name. Each step belongs to its section.
func ReadSteps(path string, src []byte) (lint.File, error) {
	f := lint.File{Path: path, Kind: lint.Unit}
	if bytes.IndexByte(src, 0) >= 0 {
		return f, fmt.Errorf("cannot read the unit: it is no text")
	}

	var r reader
	r.lines = strings.Split(string(src), "\n")

	for n := 0; n < len(r.lines); {
		n = r.readEntry(n)
	}

	f.Steps = append(r.variables, r.programs...)

	return f, nil
}

type reader struct {
	lines               []string
	section             string
	variables, programs []lint.Step
}

// placedText is the value of a key, its lines joined by a blank, with the place of each byte.
type placedText struct {
	bytes string
	spots []lint.Place // one byte each
	whole lint.Place   // from the key on
}

// readEntry reads one line with those that continue it, and returns the number of the next.
func (r *reader) readEntry(n int) int {
	line := strings.TrimPrefix(strings.TrimRight(r.lines[n], "\r"), "\ufeff")
	start := strings.TrimLeft(line, " \t")
	switch {
	case start == "" || start[0] == '#' || start[0] == ';':
		return n + 1
	case start[0] == '[':
		if end := strings.IndexByte(start, ']'); end > 0 {
			r.section = start[1:end]
		}
		return n + 1
	}

	mark := len(r.lines[n]) - len(strings.TrimPrefix(r.lines[n], "\ufeff"))
	equals := strings.IndexByte(line, '=')
	if equals < 0 {
		_, next := r.readValue(n, len(line))
		return next
	}

	key := strings.TrimSpace(line[:equals])
	v, next := r.readValue(n, mark+equals+1)
	v.whole.Column = mark + len(line) - len(start) + 1
	r.readKey(key, v)

	return next
}

// readValue joins the lines of a value: a backslash at the end of a line becomes a blank, the next line continues it, and
// comments between them are skipped (systemd.syntax(7)).
func (r *reader) readValue(n, from int) (placedText, int) {
	var t placedText
	var b strings.Builder
	t.whole = lint.Place{Line: n + 1, Column: from + 1}

	for more := true; more && n < len(r.lines); n++ {
		line := strings.TrimRight(r.lines[n], "\r")
		if b.Len() > 0 {
			if kept := strings.TrimLeft(line, " \t"); kept != "" && (kept[0] == '#' || kept[0] == ';') {
				continue
			}
		}

		more = isContinued(line)
		part := line[min(from, len(line)):]
		if more && part != "" {
			part = part[:len(part)-1] + " "
		}

		for i := range len(part) {
			t.spots = append(t.spots, lint.Place{Line: n + 1, Column: from + i + 1})
		}

		b.WriteString(part)
		t.whole.EndLine, t.whole.EndColumn = n+1, from+len(strings.TrimRight(part, " \t"))+1
		from = 0
	}

	t.bytes = b.String()

	return t, n
}

// placeOf is the place of the bytes from one to before another.
func (p placedText) placeOf(from, to int) lint.Place {
	if from >= to || to > len(p.spots) {
		return lint.Place{Line: p.whole.EndLine, Column: p.whole.EndColumn, EndLine: p.whole.EndLine, EndColumn: p.whole.EndColumn}
	}
	begin, end := p.spots[from], p.spots[to-1]
	return lint.Place{Line: begin.Line, Column: begin.Column, EndLine: end.Line, EndColumn: end.Column + 1}
}

func (r *reader) readKey(key string, v placedText) {
	switch {
	case key == "Environment" || key == "DefaultEnvironment" || key == "ManagerEnvironment":
		r.readEnvironment(key, v)
	case strings.HasPrefix(key, "Exec") && !strings.HasPrefix(key, "ExecSearchPath"):
		r.readCommands(key, v)
	case strings.HasPrefix(key, "Device"), key == "PrivateDevices", key == "AddDevice", key == "PodmanArgs", key == "GlobalArgs", key == "Image", key == "EnvironmentFile",
		key == "PassEnvironment", key == "UnsetEnvironment", key == "EnvironmentHost":
		r.addSetting(key, v)
	}
}

func (r *reader) addSetting(key string, v placedText) {
	for _, w := range r.assignmentWords(v) {
		r.variables = append(r.variables, lint.Step{At: v.whole, Do: lint.Setting, Name: key, Value: w, In: r.section})
	}
}

// readEnvironment reads assignments. An empty value takes all earlier ones of the section back; $ means nothing, and % is a
// specifier of systemd.
func (r *reader) readEnvironment(key string, v placedText) {
	words := r.assignmentWords(v)
	if len(words) == 0 {
		kept := r.variables[:0]
		for _, s := range r.variables {
			if s.Do != lint.Set || s.In != r.section || s.How != key+"=" {
				kept = append(kept, s)
			}
		}
		r.variables = kept
	}

	for _, w := range words {
		name, value, assigns := strings.Cut(w.Text, "=")
		if !assigns || !isName(name) {
			r.variables = append(r.variables, lint.Step{At: v.whole, Do: lint.Setting, Name: key, Value: w, In: r.section})
			continue
		}

		s := lint.Step{At: w.At, Do: lint.Set, Name: name, In: r.section, How: key + "=", Exported: true}
		s.Value = lint.Value{Text: value, Known: w.Known, At: w.At, Raw: w.Raw}
		if i := strings.Index(w.Raw, name+"="); i >= 0 && w.At.Line == w.At.EndLine {
			s.Value.Raw = w.Raw[i+len(name)+1:]
			s.Value.At.Column += i + len(name) + 1
			if i > 0 {
				// The quote around the whole assignment.
				s.Value.Raw = strings.TrimSuffix(s.Value.Raw, w.Raw[:1])
				s.Value.At.EndColumn = s.Value.At.Column + len(s.Value.Raw)
			}
		}

		r.variables = append(r.variables, s)
	}
}

// isName reports whether systemd takes it as the name of a variable (systemd: src/basic/env-util.c, env_name_is_valid).
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < '0' || c > '9' || i == 0) && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return s != ""
}
