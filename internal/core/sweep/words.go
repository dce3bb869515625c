package sweep

import (
	"errors"
	"fmt"
	"strings"
)

// Lines reads a file of commands into one run each: words as a POSIX shell splits them (XCU 2.2, 2.6.5), with both kinds of
// quotes and the backslash. Empty lines and comments are left out. No shell sees the lines, so what only a shell understands is
// an error and not a strange argument.
func Lines(data []byte) (Grid, error) {
	g := Grid{Names: []string{}, Commands: [][]string{}}
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(string(data), "\ufeff")) {
		n++
		words, err := split(strings.TrimRight(line, "\r\n"))
		if err != nil {
			return g, fmt.Errorf("line %d: %w", n, err)
		}
		if len(words) == 0 {
			continue
		}
		if words[0] == "" {
			return g, fmt.Errorf("line %d: its first word, which is the program, is empty", n)
		}
		if len(g.Commands) == Most {
			return g, fmt.Errorf("it has more than %d commands, which is the most that a sweep runs", Most)
		}
		g.Commands = append(g.Commands, words)
	}
	if len(g.Commands) == 0 {
		return g, errors.New("it has no command; write one per line")
	}
	return g, nil
}

// split splits one line into words.
func split(line string) (words []string, err error) {
	var word strings.Builder
	inside := false // of a word, which may be empty: ''
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == ' ' || c == '\t':
			if inside {
				words = append(words, word.String())
				word.Reset()
			}
			inside = false
			continue
		case c == '#' && !inside:
			return words, nil
		case c == 0:
			return nil, errors.New("it has a NUL character, which no argument can have")
		}
		inside = true
		switch c {
		case '\'', '"':
			length, text, err := quoted(line[i:])
			if err != nil {
				return nil, err
			}
			word.WriteString(text)
			i += length - 1
		case '\\':
			if i++; i == len(line) {
				return nil, errors.New(`it ends with \: a command has one line`)
			}
			word.WriteByte(line[i])
		case '$', '`', '|', '&', ';', '<', '>', '(', ')':
			return nil, shellWord(c)
		default:
			word.WriteByte(c)
		}
	}
	if inside {
		words = append(words, word.String())
	}
	return words, nil
}

// quoted reads what stands between quotes at the beginning of the text, and says how long it is with them.
func quoted(text string) (length int, value string, err error) {
	quote := text[0]
	var out strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote:
			return i + 1, out.String(), nil
		case c == 0:
			return 0, "", errors.New("it has a NUL character, which no argument can have")
		case quote == '"' && c == '\\' && i+1 < len(text) && strings.IndexByte("$`\"\\", text[i+1]) >= 0:
			i++
			out.WriteByte(text[i])
		case quote == '"' && (c == '$' || c == '`'):
			return 0, "", shellWord(c)
		default:
			out.WriteByte(c)
		}
	}
	return 0, "", fmt.Errorf("the quote %c is never closed", quote)
}

func shellWord(c byte) error {
	return fmt.Errorf("%c means something to a shell, and none reads this line; put it into single quotes, or write: sh -c '…'", c)
}
