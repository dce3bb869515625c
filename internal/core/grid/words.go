package grid

import (
	"errors"
	"fmt"
	"strings"

	"gpuard/internal/core/shellquote"
)

// ReadCommands reads a file of commands into one run each: words as a POSIX shell splits them (XCU 2.2, 2.6.5), with
// both kinds of quotes and the backslash. Empty lines and comments are skipped. No shell runs the lines, so syntax that
// only a shell understands is an error.
func ReadCommands(data []byte) (Grid, error) {
	g := Grid{Names: []string{}, Commands: [][]string{}}
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(string(data), "\ufeff")) {
		n++
		words, err := splitLine(strings.TrimRight(line, "\r\n"))
		if err != nil {
			return g, fmt.Errorf("line %d: %w", n, err)
		}
		if len(words) == 0 {
			continue
		}
		if words[0] == "" {
			return g, fmt.Errorf("line %d: its first word, which is the program, is empty", n)
		}
		if len(g.Commands) == MaxRuns {
			return g, fmt.Errorf("it has more than %d commands, which is the most that a sweep runs", MaxRuns)
		}

		g.Commands, g.Lines = append(g.Commands, words), append(g.Lines, n)
	}

	if len(g.Commands) == 0 {
		return g, errors.New("it has no command; write one per line")
	}

	return g, nil
}

// errComment ends the words of a line.
var errComment = errors.New("a comment")

// splitLine splits one line into words.
func splitLine(line string) ([]string, error) {
	words, err := shellquote.Split(line, func(rest string, begins bool) error {
		switch {
		case rest[0] == '#' && begins:
			return errComment
		case rest == `\`:
			return errors.New(`it ends with \: a command has one line`)
		case strings.IndexByte("$`|&;<>()", rest[0]) >= 0:
			return fmt.Errorf("%c means something to a shell, and none reads this line; put it into single quotes, or write: sh -c '…'", rest[0])
		}
		return nil
	})
	if errors.Is(err, errComment) {
		err = nil
	}
	if err == nil && strings.Contains(strings.Join(words, ""), "\x00") {
		err = errors.New("it has a NUL character, which no argument can have")
	}

	return words, err
}
