// Package supervisord reads the configuration of supervisord: which programs it starts, and with which variables. It
// starts nothing.
package supervisord

import (
	"bytes"
	"errors"
	"strings"

	"gpuard/internal/core/lint"
)

// ReadSteps returns what a configuration does (https://supervisord.org/configuration.html): the variables of environment= as
// Set steps of their section, those of [supervisord] for all, and command= as a Command. No shell reads it.
func ReadSteps(path string, src []byte) (lint.File, error) {
	f := lint.File{Path: path, Kind: lint.Supervisor}
	if bytes.IndexByte(src, 0) >= 0 {
		return f, errors.New("cannot read the configuration: it is no text")
	}

	lines := strings.Split(string(src), "\n")
	section := ""
	for n := 0; n < len(lines); n++ {
		line := strings.TrimRight(lines[n], "\r")
		if line == "" || strings.IndexByte(" \t#;", line[0]) >= 0 {
			continue
		}

		if line[0] == '[' {
			section, _, _ = strings.Cut(line[1:], "]")
			continue
		}

		key, _, found := strings.Cut(line, "=")
		if !found {
			continue
		}

		value := placedText{}
		value.addPart(line[len(key)+1:], n+1, len(key)+2)

		for n+1 < len(lines) && strings.TrimLeft(lines[n+1], " \t") != lines[n+1] && strings.TrimSpace(lines[n+1]) != "" {
			// Further lines are indented.
			n++
			value.addPart("\n"+strings.TrimRight(lines[n], "\r"), n+1, 0)
		}

		in := section
		if in == "supervisord" {
			in = ""
		}

		switch strings.TrimSpace(key) {
		case "environment":
			f.Steps = append(f.Steps, environmentSteps(value, in)...)
		case "command":
			f.Steps = append(f.Steps, commandSteps(value, in)...)
		}
	}

	return f, nil
}

// placedText is a value with the place of each byte.
type placedText struct {
	bytes string
	spots []spot
}

type spot struct{ line, column int }

func (p *placedText) addPart(part string, line, column int) {
	if i := strings.Index(part, " ;"); i >= 0 {
		// A comment.
		part = part[:i]
	}
	for i := range len(part) {
		p.spots = append(p.spots, spot{line, max(column+i, 1)})
	}
	p.bytes += part
}

func (p *placedText) placeOf(from, to int) lint.Place {
	begin, end := p.spots[from], p.spots[to-1]
	return lint.Place{Line: begin.line, Column: begin.column, EndLine: end.line, EndColumn: end.column + 1}
}

// wordEnd is the end of what stands at a byte, up to one of the bytes of stop that is not in quotes.
func (p *placedText) wordEnd(at int, stop string) (end int, plain string) {
	var out strings.Builder
	quote := byte(0)
	for ; at < len(p.bytes); at++ {
		switch c := p.bytes[at]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && strings.IndexByte(stop, c) >= 0:
			return at, out.String()
		default:
			out.WriteByte(c)
		}
	}

	return at, out.String()
}

func (p *placedText) skipBytes(at int, bytes string) int {
	for at < len(p.bytes) && strings.IndexByte(bytes, p.bytes[at]) >= 0 {
		at++
	}
	return at
}

// environmentSteps reads NAME="value",NAME="value". A value without quotes ends at a comma, and what follows must be a pair.
func environmentSteps(t placedText, in string) (all []lint.Step) {
	for at := t.skipBytes(0, " \t\n,"); at < len(t.bytes); at = t.skipBytes(at, " \t\n,") {
		end, plain := t.wordEnd(at, ",\n")
		for end > at+1 && strings.IndexByte(" \t", t.bytes[end-1]) >= 0 {
			end--
		}

		s := lint.Step{At: t.placeOf(at, end), Do: lint.Set, In: in, How: "environment", Exported: true}
		name, value, found := strings.Cut(strings.TrimRight(plain, " \t"), "=")
		s.Name = strings.TrimSpace(name)
		if from := at + strings.IndexByte(t.bytes[at:end], '=') + 1; found && from > at && from < end {
			raw := strings.TrimLeft(t.bytes[from:end], " \t")
			s.Value = lint.Value{Text: strings.TrimSpace(value), Known: !strings.Contains(value, "%("), At: t.placeOf(end-len(raw), end), Raw: raw}
		} else {
			s.Value = lint.Value{At: s.At}
		}

		if !found {
			s.How = "environment, cut"
		}

		all = append(all, s)
		at = max(end, at+1)
	}
	return all
}

func commandSteps(t placedText, in string) []lint.Step {
	var words []lint.Word
	for at := t.skipBytes(0, " \t\n"); at < len(t.bytes); at = t.skipBytes(at, " \t\n") {
		end, plain := t.wordEnd(at, " \t\n")
		words = append(words, lint.Word{Text: plain, Known: !strings.Contains(plain, "%("), At: t.placeOf(at, end), Raw: t.bytes[at:end]})
		at = end
	}

	if len(words) == 0 {
		return nil
	}

	s := lint.Step{Do: lint.Command, Name: "command", Words: words, In: in, At: words[0].At}
	last := words[len(words)-1].At
	s.At.EndLine, s.At.EndColumn = last.EndLine, last.EndColumn
	if inner, ok := lint.ShellText(s); ok {
		return []lint.Step{s, inner}
	}

	return []lint.Step{s}
}
