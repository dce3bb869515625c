package unit

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"gpuard/internal/core/lint"
)

// Entry is one assignment of a unit: continued lines are joined, remarks are gone, everything else is as it stands.
type Entry struct{ Section, Key, Value string }

// Entries lists the assignments of a unit in their order (systemd.syntax(7)).
func Entries(src []byte) []Entry {
	var list []Entry
	r := reader{lines: strings.Split(string(src), "\n")}
	for n := 0; n < len(r.lines); {
		line := strings.TrimLeft(strings.TrimPrefix(strings.TrimRight(r.lines[n], "\r"), "\ufeff"), " \t")
		if equals := strings.IndexByte(r.lines[n], '='); equals > 0 && line[0] != '#' && line[0] != ';' && line[0] != '[' {
			var v text
			key := strings.TrimSpace(strings.TrimPrefix(r.lines[n][:equals], "\ufeff"))
			v, n = r.value(n, equals+1)
			list = append(list, Entry{r.section, key, strings.Trim(v.bytes, blanks)})
			continue
		}
		n = r.entry(n)
	}
	return list
}

// Command is one command of an Exec…= line.
type Command struct {
	Prefix  string // the characters that change how it is started: -, @, :, +, !, !! and |
	Program string // without quotes
	Line    string // program and arguments as they stand, without the prefix
}

// Commands cuts the value of an Exec…= line into its commands, between which a ; stands (systemd.service(5), "Command lines").
func Commands(value string) ([]Command, error) {
	var list []Command
	var first *lint.Word
	from, to := 0, 0
	end := func() error {
		if first == nil {
			return nil
		}
		c, err := command(*first, value[from:to])
		list, first = append(list, c), nil
		return err
	}
	t := text{bytes: value}
	for at := 0; ; {
		w, begin, next, ok := t.word(at)
		switch {
		case !ok && begin < len(value):
			return nil, fmt.Errorf("the quotes of %q do not close", value)
		case !ok || w.Raw == ";":
			if err := end(); err != nil || !ok {
				return list, err
			}
		case first == nil:
			first, from = &w, begin
		}
		at, to = next, next
	}
}

// command takes the prefix off. systemd looks for it behind a quote, too (systemd: src/core/load-fragment.c, config_parse_exec).
func command(first lint.Word, line string) (Command, error) {
	c := Command{Program: strings.TrimLeft(first.Text, "-@:+!|")}
	c.Prefix = first.Text[:len(first.Text)-len(c.Program)]
	var found bool
	if c.Line, found = strings.CutPrefix(line, c.Prefix); found {
		return c, nil
	}
	if quote := line[:1]; quote == `"` || quote == "'" {
		if c.Line, found = strings.CutPrefix(line[1:], c.Prefix); found {
			c.Line = quote + c.Line
			return c, nil
		}
	}
	return c, fmt.Errorf("the characters %s before the program are written in a way that is not understood", c.Prefix)
}

// Word writes a word of a command line, so that systemd reads it as it is. literal: the command has the prefix ":", which takes
// the meaning of $ away.
func Word(word string, literal bool) string {
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,/:=+@") == "" {
		return word
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(word); {
		r, width := utf8.DecodeRuneInString(word[i:])
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '%', r == '$' && !literal:
			b.WriteString(string(r) + string(r))
		case r < ' ' || r == 0x7f || r == utf8.RuneError && width == 1:
			fmt.Fprintf(&b, `\x%02x`, word[i])
		default:
			b.WriteString(word[i : i+width])
		}
		i += width
	}
	return b.String() + `"`
}
