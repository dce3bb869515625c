package unit

import (
	"strconv"
	"strings"

	"gpuard/internal/core/lint"
)

const blanks = " \t\n\r"

// readCommands reads an Exec…= line: ; separates commands, and the characters - @ : + ! | before a program change how it is
// started (systemd.service(5), "Command lines").
func (r *reader) readCommands(key string, v placedText) {
	var one []lint.Word
	for _, w := range v.splitWords() {
		if w.Raw == ";" {
			r.addCommand(key, v, one)
			one = nil
			continue
		}

		w.Text = strings.ReplaceAll(w.Text, "$$", "$")
		if w.Raw == `\;` {
			w.Text = ";"
		}

		if bare := strings.TrimLeft(w.Raw, "-@:+!|"); len(one) == 0 && r.section != "Container" {
			w.Text, w.At.Column, w.Raw = strings.TrimLeft(w.Text, "-@:+!|"), w.At.Column+len(w.Raw)-len(bare), bare
			if bare == "" {
				continue
			}
		}

		one = append(one, w)
	}
	r.addCommand(key, v, one)
}

func (r *reader) addCommand(key string, v placedText, words []lint.Word) {
	if len(words) == 0 {
		return
	}
	s := lint.Step{At: v.whole, Do: lint.Command, Name: key, Words: words, In: r.section}
	r.programs = append(r.programs, s)
	if inner, ok := lint.ShellText(s); ok {
		r.programs = append(r.programs, inner)
	}
}

// assignmentWords splits a value of assignments: here a $ is a character like any other.
func (r *reader) assignmentWords(v placedText) []lint.Word {
	words := v.splitWords()
	for i, w := range words {
		words[i].Known = !hasSpecifier(w.Text)
	}
	return words
}

// splitWords cuts a value into words.
func (p placedText) splitWords() []lint.Word {
	var words []lint.Word
	for at := 0; ; {
		w, _, next, ok := p.nextWord(at)
		if !ok {
			// systemd ignores a value with an open quote.
			return words
		}
		words = append(words, w)
		at = next
	}
}

// nextWord is the next word, with its begin and end. Quotes protect blanks and are removed wherever they are, and
// backslashes write characters as in C (systemd.syntax(7), "Quoting"; systemd: src/basic/extract-word.c). A word with a
// variable or a specifier is computed. ok is false at the end, and for a word with an open quote.
func (p placedText) nextWord(at int) (w lint.Word, begin, end int, ok bool) {
	for at < len(p.bytes) && strings.IndexByte(blanks, p.bytes[at]) >= 0 {
		at++
	}

	begin = at
	quote := byte(0)
	var out strings.Builder

	for ; at < len(p.bytes); at++ {
		c := p.bytes[at]
		if quote == 0 && strings.IndexByte(blanks, c) >= 0 {
			break
		}

		switch {
		case c == '\\' && at+1 < len(p.bytes):
			char, width := unescapeChar(p.bytes[at:])
			out.WriteString(char)
			at += width - 1
		case c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		default:
			out.WriteByte(c)
		}
	}

	if begin == at || quote != 0 {
		return w, begin, at, false
	}

	w = lint.Word{Text: out.String(), Known: true, At: p.placeOf(begin, at), Raw: p.bytes[begin:at]}
	w.Known = !hasSpecifier(w.Text) && !hasVariable(w.Text)

	return w, begin, at, true
}

// unescapeChar reads an escape of systemd.syntax(7); what is none stays as it is.
func unescapeChar(s string) (char string, width int) {
	if i := strings.IndexByte(`abfnrtvs\"'`, s[1]); i >= 0 {
		return string("\a\b\f\n\r\t\v \\\"'"[i]), 2
	}

	digits, base := 0, 16
	switch s[1] {
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	case '0', '1', '2', '3', '4', '5', '6', '7':
		digits, base = 3, 8
	}

	skip := 2
	if base == 8 {
		skip = 1
	}

	if digits > 0 && len(s) >= skip+digits {
		if n, err := strconv.ParseUint(s[skip:skip+digits], base, 32); err == nil && n > 0 {
			if s[1] == 'u' || s[1] == 'U' {
				return string(rune(n)), skip + digits
			}
			return string([]byte{byte(n)}), skip + digits
		}
	}

	return s[:2], 2
}

// hasSpecifier reports whether a text has a % specifier (systemd.unit(5), "Specifiers").
func hasSpecifier(s string) bool { return strings.Contains(strings.ReplaceAll(s, "%%", ""), "%") }

// hasVariable reports whether a word of a command line has a variable: $NAME as a word, ${NAME} anywhere.
func hasVariable(s string) bool {
	s = strings.ReplaceAll(s, "$$", "")
	i := strings.IndexByte(s, '$')
	return i == 0 && len(s) > 1 && isName(s[1:]) || strings.Contains(s, "${")
}
