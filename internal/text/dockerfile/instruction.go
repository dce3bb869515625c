package dockerfile

import (
	"encoding/json"
	"strings"

	"gpuard/internal/core/lint"
)

// instruction is one instruction as Docker joins it: its lines without comments, empty lines and continuation
// characters.
type instruction struct {
	text string
	// The spot of each byte of text, and of its end.
	spots []spot
	// Where the arguments begin, after the flags.
	args int
	// The last line of it, before here-documents.
	head int
	// The last line of it.
	last  int
	docs  int  // here-documents
	maybe bool // after ONBUILD
}

// spot is a byte's place in the file.
type spot struct{ line, column int }

// joinLines joins the lines of the instruction that begins on a line.
func (r *reader) joinLines(start int) instruction {
	var i instruction
	var text strings.Builder

	for n := start; n >= 1 && n <= len(r.lines); n++ {
		line := strings.TrimRight(r.lines[n-1], "\r")
		i.head = n
		kept := strings.TrimLeft(line, " \t\v\f\u0085\u00a0")
		if n > start && (kept == "" || kept[0] == '#') {
			continue
		}

		from := 0
		if n == start {
			line = strings.TrimPrefix(line, "\ufeff")
			from = len(r.lines[n-1]) - len(strings.TrimPrefix(r.lines[n-1], "\ufeff"))
		}

		body, more := r.cutContinuation(line)
		for c := range len(body) {
			i.spots = append(i.spots, spot{n, from + c + 1})
		}

		text.WriteString(body)
		if !more {
			i.spots = append(i.spots, spot{n, from + len(body) + 1})
			break
		}
	}

	i.text = text.String()

	for len(i.spots) <= len(i.text) {
		i.spots = append(i.spots, spot{i.head, 1})
	}

	return i
}

// cutContinuation removes the continuation character: the last character that is not a blank, unless the same one is before it
// (moby/buildkit: frontend/dockerfile/parser/parser.go, setEscapeToken).
func (r *reader) cutContinuation(line string) (body string, more bool) {
	bare := strings.TrimRight(line, " \t")
	n := len(bare) - 1
	if n < 0 || bare[n] != r.escape || n > 0 && bare[n-1] == r.escape {
		return line, false
	}

	return bare[:n], true
}

// dropBefore drops the bytes before from.
func (i *instruction) dropBefore(from int) {
	i.text, i.spots = i.text[from:], i.spots[from:]
	i.args = 0
}

// placeOf is the place of the bytes from one to before another.
func (i *instruction) placeOf(from, to int) lint.Place {
	begin, end := i.spots[from], i.spots[max(from, to)]
	if to > from {
		// After the last byte, not where the next one is.
		end = i.spots[to-1]
		end.column++
	}
	return lint.Place{Line: begin.line, Column: begin.column, EndLine: end.line, EndColumn: end.column}
}

func (i *instruction) wholePlace() lint.Place { return i.placeOf(i.skipBlank(0), len(i.text)) }

func (i *instruction) skipBlank(at int) int {
	for at < len(i.text) && strings.IndexByte(" \t\v\f\r", i.text[at]) >= 0 {
		at++
	}
	return at
}

// enterArguments finds where the arguments begin, and returns the instruction's name in capitals.
func (i *instruction) enterArguments() string {
	at := i.skipBlank(0)
	end := i.wordEnd(at)
	i.args = i.skipFlags(i.skipBlank(end))

	return strings.ToUpper(i.text[at:end])
}

// wordEnd is the end of the word at a byte.
func (i *instruction) wordEnd(at int) int {
	for at < len(i.text) && strings.IndexByte(" \t\v\f\r", i.text[at]) < 0 {
		at++
	}
	return at
}

// skipFlags passes over --name=value.
func (i *instruction) skipFlags(at int) int {
	for strings.HasPrefix(i.text[at:], "--") {
		at = i.skipBlank(i.quotedWordEnd(at, '\\'))
	}
	return at
}

// quotedWordEnd is the end of a word in which quotes and the escape character protect blanks.
func (i *instruction) quotedWordEnd(at int, escape byte) int {
	quote := byte(0)
	for ; at < len(i.text); at++ {
		c := i.text[at]
		switch {
		case c == escape && quote != '\'' && at+1 < len(i.text):
			at++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case strings.IndexByte(" \t\v\f\r", c) >= 0:
			return at
		}
	}
	return at
}

// unquoteValue reads a value: quotes and escapes go away, and a variable in it makes it one that only the build knows.
func (i *instruction) unquoteValue(from, to int, escape byte) lint.Value {
	v := lint.Value{Known: true, At: i.placeOf(from, to), Raw: i.text[from:to]}
	var out strings.Builder
	quote := byte(0)
	for at := from; at < to; at++ {
		c := i.text[at]
		switch {
		case c == escape && quote != '\'' && at+1 < to && (quote == 0 || strings.IndexByte("\"$", i.text[at+1]) >= 0 || i.text[at+1] == escape):
			at++
			out.WriteByte(i.text[at])
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		default:
			v.Known = v.Known && (c != '$' || quote == '\'')
			out.WriteByte(c)
		}
	}

	v.Text = out.String()
	if !v.Known {
		v.Text = v.Raw
	}

	return v
}

// execWords reads the exec form, a JSON list of words. What is no such list is the shell form.
func (i *instruction) execWords() ([]lint.Word, bool) {
	var list []string
	if i.args >= len(i.text) || i.text[i.args] != '[' || json.Unmarshal([]byte(i.text[i.args:]), &list) != nil {
		return nil, false
	}

	var words []lint.Word
	at := i.args
	for _, text := range list {
		begin := strings.IndexByte(i.text[at:], '"')
		if begin < 0 {
			// Null, which Docker refuses.
			return nil, false
		}

		begin += at
		for at = begin + 1; i.text[at] != '"'; at++ {
			if i.text[at] == '\\' {
				at++
			}
		}

		at++
		words = append(words, lint.Word{Text: text, Known: true, At: i.placeOf(begin, at), Raw: i.text[begin:at]})
	}

	return words, true
}

// isHeredoc reports whether the arguments are the name of one here-document and nothing else: it is the script.
func isHeredoc(args string) bool {
	args = strings.TrimSpace(args)
	return strings.HasPrefix(args, "<<") && !strings.ContainsAny(strings.TrimLeft(args[2:], "- \t"), " \t;|&>")
}
