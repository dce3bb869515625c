package lineshell

import (
	"strings"

	"gpuard/internal/core/lint"
)

// scanner cuts a script into statements and words.
type scanner struct {
	src   string
	at    int
	line  int
	start int // of the line
	// A quote may end on a later line.
	multiline bool
	// Lines with a quote that does not end.
	unread int
}

func (s *scanner) atEnd() bool { return s.at >= len(s.src) }

func (s *scanner) advance() {
	if s.src[s.at] == '\n' {
		s.line, s.start = s.line+1, s.at+1
	}
	s.at++
}

// skipBlanks passes over blanks, and over a backslash before the end of a line.
func (s *scanner) skipBlanks() {
	for !s.atEnd() {
		switch {
		case strings.IndexByte(" \t\r", s.src[s.at]) >= 0:
			s.advance()
		case strings.HasPrefix(s.src[s.at:], "\\\n"):
			s.advance()
			s.advance()
		default:
			return
		}
	}
}

// readStatement returns the words up to the next separator, and that separator: "" for ; and the end of a line.
func (s *scanner) readStatement() (words []lint.Word, join string) {
	for {
		s.skipBlanks()
		if s.atEnd() {
			return words, ""
		}
		rest := s.src[s.at:]
		switch c := rest[0]; {
		case c == '#':
			for !s.atEnd() && s.src[s.at] != '\n' {
				s.advance()
			}
		case c == '\n' || c == ';':
			s.advance()
			return words, ""
		case strings.HasPrefix(rest, "&&"), strings.HasPrefix(rest, "||"):
			s.advance()
			s.advance()
			return words, rest[:2]
		case c == '&' || c == '|':
			s.advance()
			return words, rest[:1]
		case c == '<' || c == '>':
			for !s.atEnd() && strings.IndexByte("<>&!", s.src[s.at]) >= 0 {
				s.advance()
			}
			s.skipBlanks()

			// The file.
			s.readWord()
		default:
			words = append(words, s.readWord())
		}
	}
}

// readWord reads one word. What stands in brackets belongs to it, blanks and all.
func (s *scanner) readWord() lint.Word {
	w := lint.Word{Known: true, At: lint.Place{Line: s.line, Column: s.at - s.start + 1}}
	begin, depth := s.at, 0
	var out strings.Builder

	for !s.atEnd() {
		c := s.src[s.at]
		if c == '\n' || depth == 0 && s.at > begin && strings.IndexByte(" \t\r;&|<>", c) >= 0 || depth == 0 && strings.IndexByte(" \t\r;&|", c) >= 0 {
			break
		}

		switch {
		case c == '\\' && s.at+1 < len(s.src) && s.src[s.at+1] != '\n':
			s.advance()
			out.WriteByte(s.src[s.at])
		case c == '\\':
			out.WriteByte(c)
		case c == '\'' || c == '"':
			s.readQuoted(c, &out, &w)
		default:
			switch c {
			case '(':
				depth++
			case ')':
				depth = max(depth-1, 0)
			case '$', '*', '`', '?', '~':
				w.Known = false
			}
			out.WriteByte(c)
		}
		if !s.atEnd() && s.src[s.at] != '\n' {
			s.advance()
		}
	}

	w.Raw, w.Text = s.src[begin:s.at], out.String()
	w.Known = w.Known && !strings.Contains(w.Raw, "(")
	if !w.Known {
		w.Text = w.Raw
	}

	w.At.EndLine, w.At.EndColumn = s.line, s.at-s.start+1

	return w
}

// readQuoted reads up to the byte before the end of a quote's last byte.
func (s *scanner) readQuoted(quote byte, out *strings.Builder, w *lint.Word) {
	for s.advance(); !s.atEnd(); s.advance() {
		switch c := s.src[s.at]; {
		case c == quote:
			return
		case c == '\n' && !s.multiline:
			w.Known = false
			s.unread++
			return
		case c == '\\' && s.multiline && s.at+1 < len(s.src) && (s.src[s.at+1] == quote || s.src[s.at+1] == '\\'):
			s.advance()
			out.WriteByte(s.src[s.at])
		default:
			w.Known = w.Known && (c != '$' && c != '`' || quote == '\'')
			out.WriteByte(c)
		}
	}
	w.Known = false
	s.unread++
}
