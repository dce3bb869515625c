package shellquote

import (
	"errors"
	"fmt"
	"strings"
)

// UnclosedError is a quotation mark without its closing one.
type UnclosedError byte

func (u UnclosedError) Error() string { return fmt.Sprintf("the quote %c is never closed", byte(u)) }

// Split splits a text into words as a POSIX shell does (Shell Command Language, 2.2 Quoting and 2.3 Token Recognition),
// without expansions. It calls refuse with the text from each character that is not quoted; between double quotes only
// from $ and `. begins means that no word has begun before it. An error of refuse ends the splitting, and Split returns
// the words so far.
func Split(text string, refuse func(rest string, begins bool) error) (words []string, err error) {
	s := splitter{rest: text, refuse: refuse}
	for s.rest != "" && err == nil {
		err = s.readNext()
	}
	s.endWord()

	return s.words, err
}

type splitter struct {
	rest   string
	refuse func(rest string, begins bool) error
	words  []string
	word   strings.Builder
	// A word has begun, which may be empty: ''.
	in bool
}

func (s *splitter) endWord() {
	if s.in {
		s.words = append(s.words, s.word.String())
	}
	s.word.Reset()
	s.in = false
}

// readNext reads one character, or one quoted part.
func (s *splitter) readNext() error {
	first := s.rest[0]
	if strings.HasPrefix(s.rest, "\\\n") {
		// A continued line.
		s.rest = s.rest[2:]
		return nil
	}

	if err := s.refuse(s.rest, !s.in); err != nil {
		return err
	}

	s.rest = s.rest[1:]
	if first == ' ' || first == '\t' || first == '\n' {
		s.endWord()
		return nil
	}

	s.in = true

	switch {
	case first == '\'':
		inner, rest, closed := strings.Cut(s.rest, "'")
		if !closed {
			return UnclosedError(first)
		}
		s.word.WriteString(inner)
		s.rest = rest
	case first == '"':
		return s.readDoubleQuoted()
	case first == '\\' && s.rest != "":
		s.word.WriteByte(s.rest[0])
		s.rest = s.rest[1:]
	default:
		s.word.WriteByte(first)
	}

	return nil
}

// readDoubleQuoted reads to the closing ", where a backslash quotes only characters that are special there.
func (s *splitter) readDoubleQuoted() error {
	for ; s.rest != ""; s.rest = s.rest[1:] {
		switch c := s.rest[0]; {
		case c == '"':
			s.rest = s.rest[1:]
			return nil
		case strings.HasPrefix(s.rest, "\\\n"):
			s.rest = s.rest[1:]
			continue
		case c == '$' || c == '`':
			if err := s.refuse(s.rest, false); err != nil {
				return err
			}
		case c == '\\' && len(s.rest) > 1 && strings.IndexByte("$`\"\\", s.rest[1]) >= 0:
			s.rest = s.rest[1:]
		}
		s.word.WriteByte(s.rest[0])
	}
	return UnclosedError('"')
}

// SplitBeforeComment is Split for a line that may end with a comment, and in which nothing else means anything.
func SplitBeforeComment(line string) ([]string, error) {
	words, err := Split(line, func(rest string, begins bool) error {
		if rest[0] == '#' && begins {
			return errComment
		}
		return nil
	})
	if errors.Is(err, errComment) {
		err = nil
	}
	return words, err
}

// errComment ends the words of a line.
var errComment = errors.New("a comment")
