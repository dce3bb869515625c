package service

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"gpuard/internal/core/shellquote"
)

// isAssignment reports a word before a command that a shell would put into its environment.
func isAssignment(text string) bool {
	return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`).MatchString(text)
}

// splitWords splits a command into words. A command that uses more of a shell, such as $HOME, is refused, because the
// literal characters are never intended.
func splitWords(text string) ([]string, error) {
	inCommand := false
	list, err := shellquote.Split(text, func(rest string, begins bool) error {
		if !inCommand && isAssignment(rest) {
			name, _, _ := strings.Cut(rest, "=")
			return fmt.Errorf("the command begins with a variable; write %s under env", name)
		}
		inCommand = inCommand || strings.TrimLeft(rest[:1], " \t\n") != ""
		if strings.ContainsRune("|&;<>()", rune(rest[0])) || begins && (rest[0] == '#' || rest[0] == '~') || shellExpands(rest) {
			return shellSyntaxError(rest)
		}

		return nil
	})

	if unclosed := shellquote.UnclosedError(0); errors.As(err, &unclosed) {
		return nil, fmt.Errorf("a %c in the command is not closed by another one", byte(unclosed))
	}

	if err == nil && len(list) == 0 {
		err = errors.New("the command is empty")
	}

	if err != nil {
		return nil, err
	}

	return list, nil
}

// shellExpands reports whether a text begins with something that a shell expands.
func shellExpands(text string) bool {
	if text[0] == '`' {
		return true
	}
	return len(text) > 1 && text[0] == '$' && (text[1] == '{' || text[1] == '(' || text[1] == '_' || text[1] >= 'A' && text[1] <= 'Z' || text[1] >= 'a' && text[1] <= 'z')
}

// shellSyntaxError says what to write instead of syntax that only a shell understands.
func shellSyntaxError(text string) error {
	what := text[:1]
	switch what {
	case "$", "~":
		what, _, _ = strings.Cut(strings.Fields(text)[0], `"`)
	case "|", "&", ";", "<", ">":
		what = text[:len(text)-len(strings.TrimLeft(text, what))]
	}
	return fmt.Errorf("%s is for a shell, and none is started; write command: [sh, -c, '…'] for one, or %s in quotes (' ') for the characters themselves", what, what)
}
