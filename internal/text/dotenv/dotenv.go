// Package dotenv reads files of variables, as Docker Compose's env_file takes them
// (https://docs.docker.com/compose/how-tos/environment-variables/variable-interpolation/#env-file-syntax), but fills
// nothing in.
package dotenv

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"gpuard/internal/core/service"
)

// ReadVariables returns the variables in the order of the file. Lines are NAME=VALUE; empty lines and those that begin with #
// are skipped, and so is the rest of a value without quotes after a blank and a #. Within ' ' nothing is special;
// within " " \n, \r, \t, \\, \" and \$ are escapes, and a value may continue over several lines. The error names the
// file as given, the line, and what to write.
func ReadVariables(data []byte, file string) ([]service.Pair, error) {
	r := reader{file: file,
		name:    regexp.MustCompile(`^(export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*(=)?`),
		comment: regexp.MustCompile(`[ \t]+#`),
		filled:  regexp.MustCompile(`\$(\{[^}]*\}?|[A-Za-z_][A-Za-z0-9_]*)`)}

	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, fmt.Errorf("cannot read %s: it is not a text file", file)
	}

	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	for r.rest = strings.ReplaceAll(string(data), "\r\n", "\n"); r.rest != ""; {
		r.line++
		text := strings.TrimLeft(r.takeLine(), " \t")
		if strings.TrimSpace(text) == "" || text[0] == '#' {
			continue
		}
		if err := r.readVariable(text); err != nil {
			return nil, err
		}
	}

	return r.out, nil
}

type reader struct {
	file string
	rest string
	line int
	out  []service.Pair

	name    *regexp.Regexp
	comment *regexp.Regexp // after a value
	// A variable that other readers of such files replace by its value.
	filled *regexp.Regexp
}

func (r *reader) takeLine() string {
	line, rest, _ := strings.Cut(r.rest, "\n")
	r.rest = rest
	return line
}

func (r *reader) errorAt(line int, format string, args ...any) error {
	return fmt.Errorf("cannot read %s:%d: %s", r.file, line, fmt.Sprintf(format, args...))
}

func (r *reader) readVariable(text string) error {
	m := r.name.FindStringSubmatch(text)
	switch {
	case m == nil:
		return r.errorAt(r.line, "this is not a variable; write NAME=VALUE")
	case m[3] == "":
		return r.errorAt(r.line, "%s has no value; write %s=VALUE, or leave it out for that of gpuard up", m[2], m[2])
	}

	value, err := r.readValue(strings.TrimLeft(text[len(m[0]):], " \t"))
	if err != nil {
		return err
	}

	r.out = append(r.out, service.Pair{Name: m[2], Value: value})

	return nil
}

func (r *reader) readValue(text string) (string, error) {
	if text == "" || text[0] != '\'' && text[0] != '"' {
		if i := strings.IndexByte(text, '#'); i == 0 {
			text = ""
		} else if i := r.comment.FindStringIndex(text); i != nil {
			text = text[:i[0]]
		}
		if at := r.filled.FindString(text); at != "" {
			return "", r.errorAt(r.line, "%s is not expanded here; write its value, or the value in ' ' for the characters themselves", at)
		}
		return strings.TrimSpace(text), nil
	}
	return r.readQuoted(text[0], text[1:])
}

// readQuoted reads a value up to its closing quote, which may be lines below.
func (r *reader) readQuoted(quote byte, text string) (string, error) {
	begin := r.line
	for out := (strings.Builder{}); ; {
		for i := 0; i < len(text); i++ {
			switch c := text[i]; {
			case c == quote:
				after := strings.TrimSpace(text[i+1:])
				if after != "" && after[0] != '#' {
					return "", r.errorAt(r.line, "there is something after the closing %c; put all of the value in quotes", quote)
				}
				return out.String(), nil
			case quote == '"' && c == '\\' && i+1 < len(text) && strings.IndexByte(`nrt\"$`, text[i+1]) >= 0:
				i++
				out.WriteString(strings.NewReplacer("n", "\n", "r", "\r", "t", "\t").Replace(text[i : i+1]))
			case quote == '"' && c == '$' && strings.HasPrefix(text[i:], cmp.Or(r.filled.FindString(text[i:]), "none")):
				return "", r.errorAt(r.line, "%s is not expanded here; write its value, or \\$ for the character", r.filled.FindString(text[i:]))
			default:
				out.WriteByte(c)
			}
		}

		if r.rest == "" {
			return "", r.errorAt(begin, "the %c is not closed by another one", quote)
		}

		out.WriteByte('\n')
		text = r.takeLine()
		r.line++
	}
}
