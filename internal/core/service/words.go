package service

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// words cuts a command into words as a POSIX shell does (Shell Command Language, 2.2 Quoting and 2.3 Token Recognition), and
// does nothing else of what a shell does. Where a shell would do more, such as fill in $HOME, the command is not understood:
// handing it over as it stands is never what was meant.
func words(text string) ([]string, error) {
	c := cutter{rest: text}
	for c.rest != "" {
		if err := c.step(); err != nil {
			return nil, err
		}
	}
	c.end()
	if len(c.words) == 0 {
		return nil, errors.New("the command is empty")
	}
	return c.words, nil
}

type cutter struct {
	rest  string
	words []string
	word  strings.Builder
	in    bool // a word has begun, though it may be empty: ''
}

// assigns reports a word in front of a command that a shell would put into its environment.
func assigns(text string) bool {
	return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`).MatchString(text)
}

func (c *cutter) end() {
	if c.in {
		c.words = append(c.words, c.word.String())
	}
	c.word.Reset()
	c.in = false
}

// step reads one character, or all that is quoted.
func (c *cutter) step() error {
	first := c.rest[0]
	if !c.in && len(c.words) == 0 && assigns(c.rest) {
		name, _, _ := strings.Cut(c.rest, "=")
		return fmt.Errorf("the command begins with a variable; write %s under env", name)
	}
	switch {
	case strings.ContainsRune(" \t\n\r", rune(first)):
		c.end()
	case strings.HasPrefix(c.rest, "\\\n"):
		c.rest = c.rest[1:] // a line that goes on in the next one
	case strings.ContainsRune("|&;<>()", rune(first)), first == '#' && !c.in, first == '~' && !c.in, computed(c.rest):
		return shellish(c.rest)
	case first == '\'':
		return c.quoted()
	case first == '"':
		return c.doubled()
	case first == '\\' && len(c.rest) > 1:
		c.in = true
		c.word.WriteByte(c.rest[1])
		c.rest = c.rest[1:]
	default:
		c.in = true
		c.word.WriteByte(first)
	}
	c.rest = c.rest[1:]
	return nil
}

func (c *cutter) quoted() error {
	inner, rest, closed := strings.Cut(c.rest[1:], "'")
	if !closed {
		return errors.New("a ' in the command is not closed by another one")
	}
	c.in = true
	c.word.WriteString(inner)
	c.rest = rest
	return nil
}

// doubled reads what stands in ", where a backslash protects only what could mean something there.
func (c *cutter) doubled() error {
	c.in = true
	for text := c.rest[1:]; text != ""; text = text[1:] {
		switch {
		case text[0] == '"':
			c.rest = text[1:]
			return nil
		case strings.HasPrefix(text, "\\\n"):
			text = text[1:]
			continue
		case computed(text):
			return shellish(text)
		case text[0] == '\\' && len(text) > 1 && strings.IndexByte("$`\"\\", text[1]) >= 0:
			text = text[1:]
		}
		c.word.WriteByte(text[0])
	}
	return errors.New(`a " in the command is not closed by another one`)
}

// computed reports whether a text begins with what a shell replaces by something else.
func computed(text string) bool {
	if text[0] == '`' {
		return true
	}
	return len(text) > 1 && text[0] == '$' && (text[1] == '{' || text[1] == '(' || text[1] == '_' || text[1] >= 'A' && text[1] <= 'Z' || text[1] >= 'a' && text[1] <= 'z')
}

// shellish says what to write in place of something that only a shell does.
func shellish(text string) error {
	what := text[:1]
	switch what {
	case "$", "~":
		what, _, _ = strings.Cut(strings.Fields(text)[0], `"`)
	case "|", "&", ";", "<", ">":
		what = text[:len(text)-len(strings.TrimLeft(text, what))]
	}
	return fmt.Errorf("%s is for a shell, and none is started; write command: [sh, -c, '…'] for one, or %s in quotes (' ') for the characters themselves", what, what)
}
