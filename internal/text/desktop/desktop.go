// Package desktop reads desktop entries: which programs they start, and how; and writes them again with other values.
// It starts nothing.
package desktop

import (
	"bytes"
	"errors"
	"strings"

	"gpuard/internal/core/lint"
)

// ReadSteps returns the command of each Exec key as a Command of its group, and the script that it hands to a shell as a
// Script (https://specifications.freedesktop.org/desktop-entry-spec/latest/exec-variables.html).
func ReadSteps(path string, src []byte) (lint.File, error) {
	f := lint.File{Path: path, Kind: lint.Desktop}
	if bytes.IndexByte(src, 0) >= 0 {
		return f, errors.New("cannot read the desktop entry: it is no text")
	}

	group := ""
	for n, line := range strings.Split(string(src), "\n") {
		body := strings.TrimPrefix(strings.TrimRight(line, "\r"), "\ufeff")
		mark := strings.Index(line, body)
		start := strings.TrimLeft(body, " \t")
		switch {
		case start == "" || start[0] == '#':
		case start[0] == '[':
			if end := strings.IndexByte(start, ']'); end > 0 {
				group = start[1:end]
			}
		default:
			key, value, found := strings.Cut(body, "=")
			if !found || strings.TrimSpace(key) != "Exec" {
				continue
			}

			words := splitExec(unescapeValue(value, n+1, mark+len(key)+2))
			if len(words) == 0 {
				continue
			}

			s := lint.Step{Do: lint.Command, Name: "Exec", Words: words, In: group}
			s.At = lint.Place{Line: n + 1, Column: mark + len(body) - len(start) + 1, EndLine: n + 1, EndColumn: mark + len(strings.TrimRight(body, " \t")) + 1}
			f.Steps = append(f.Steps, s)
			if inner, ok := lint.ShellText(s); ok {
				f.Steps = append(f.Steps, inner)
			}
		}
	}

	return f, nil
}

// char is one character of a value, with the bytes of the file that it is written with.
type char struct {
	byte     byte
	raw      string
	line     int
	from, to int // columns
}

// unescapeValue takes the escapes away that every value of type string has: \s, \n, \t, \r and \\
// (https://specifications.freedesktop.org/desktop-entry-spec/latest/value-types.html). Others stay for the quoting of
// Exec.
func unescapeValue(value string, line, column int) []char {
	var all []char
	for i := 0; i < len(value); i++ {
		c := char{value[i], value[i : i+1], line, column + i, column + i + 1}
		if value[i] == '\\' && i+1 < len(value) {
			if at := strings.IndexByte(`sntr\`, value[i+1]); at >= 0 {
				c = char{" \n\t\r\\"[at], value[i : i+2], line, column + i, column + i + 2}
				i++
			}
		}
		all = append(all, c)
	}
	return all
}

// splitExec cuts the command into words. An argument is quoted whole, in double quotes, and a backslash protects ", `, $ and
// itself there. Single quotes, which the specification reserves, are read as GLib does, which most desktops use: as in a
// shell (https://docs.gtk.org/glib/func.shell_parse_argv.html).
func splitExec(all []char) []lint.Word {
	var words []lint.Word
	for at := 0; ; {
		for at < len(all) && isBlank(all[at].byte) {
			at++
		}

		if at >= len(all) {
			return words
		}

		begin, quote := at, byte(0)
		var out, raw strings.Builder
		known := true
		for ; at < len(all) && (quote != 0 || !isBlank(all[at].byte)); at++ {
			c := all[at]
			raw.WriteString(c.raw)

			switch {
			case c.byte == '\\' && quote != '\'' && at+1 < len(all) && (quote == 0 || strings.IndexByte("\"`$\\", all[at+1].byte) >= 0):
				at++
				raw.WriteString(all[at].raw)
				out.WriteByte(all[at].byte)
			case c.byte == quote:
				quote = 0
			case quote == 0 && (c.byte == '"' || c.byte == '\''):
				quote = c.byte
			case c.byte == '%' && at+1 < len(all) && all[at+1].byte == '%':
				at++
				raw.WriteString(all[at].raw)
				out.WriteByte('%')
			default:
				// A field code.
				known = known && c.byte != '%'
				out.WriteByte(c.byte)
			}
		}

		last := all[at-1]
		words = append(words, lint.Word{Text: out.String(), Known: known, Raw: raw.String(),
			At: lint.Place{Line: last.line, Column: all[begin].from, EndLine: last.line, EndColumn: last.to}})
	}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
