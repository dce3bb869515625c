package unit

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"gpuard/internal/core/lint"
)

// Entry is one assignment of a unit: continued lines are joined, comments are gone, everything else is as written.
type Entry struct{ Section, Key, Value string }

// Entries lists the assignments of a unit in their order, as systemd reads them: a line ends at a carriage return or a
// zero byte, too, and one that is not UTF-8 counts as nothing (systemd.syntax(7); systemd: src/shared/conf-parser.c,
// config_parse, and src/basic/fileio.c, read_line_full).
func Entries(src []byte) (list []Entry) {
	ends := strings.NewReplacer("\r\n", "\n", "\n\r", "\n", "\r", "\n", "\x00", "\n")
	section := ""
	var begun []byte

	for line := range strings.SplitSeq(ends.Replace(string(src))+"\n", "\n") {
		if start := strings.TrimLeft(line, blanks); start != "" && (start[0] == '#' || start[0] == ';') {
			continue
		}

		begun = append(begun, strings.TrimPrefix(line, "\ufeff")...)
		if isContinued(line) {
			begun[len(begun)-1] = ' '
			continue
		}

		whole := strings.Trim(string(begun), blanks)
		begun = begun[:0]
		key, value, assigns := strings.Cut(whole, "=")
		switch {
		case !utf8.ValidString(whole):
		case strings.HasPrefix(whole, "["):
			if strings.HasSuffix(whole, "]") {
				section = whole[1 : len(whole)-1]
			}
		case assigns && key != "":
			list = append(list, Entry{section, strings.TrimRight(key, blanks), strings.TrimLeft(value, blanks)})
		}
	}

	return list
}

// isContinued reports whether the next line belongs to this one: of the backslashes that it ends in, each pair is one
// that is meant.
func isContinued(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// Command is one command of an Exec…= line.
type Command struct {
	// The characters that change how it is started: -, @, :, +, !, !! and |.
	Prefix  string
	Program string // without quotes
	// Program and arguments as written, without the prefix.
	Line string
}

// SplitCommands splits the value of an Exec…= line at each ; into its commands (systemd.service(5), "Command lines").
func SplitCommands(value string) ([]Command, error) {
	var list []Command
	var first *lint.Word
	from, to := 0, 0
	end := func() error {
		if first == nil {
			return nil
		}
		c, err := parseCommand(*first, value[from:to])
		list, first = append(list, c), nil

		return err
	}

	t := placedText{bytes: value}
	for at := 0; ; {
		w, begin, next, ok := t.nextWord(at)
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

// parseCommand removes the prefix, which may also follow a quote (systemd: src/core/load-fragment.c, config_parse_exec).
func parseCommand(first lint.Word, line string) (Command, error) {
	c := Command{Program: strings.TrimLeft(first.Text, "-@:+!|")}
	c.Prefix = first.Text[:len(first.Text)-len(c.Program)]
	var found bool
	c.Line, found = strings.CutPrefix(line, c.Prefix)
	if found {
		return c, nil
	}

	if quote := line[:1]; quote == `"` || quote == "'" {
		c.Line, found = strings.CutPrefix(line[1:], c.Prefix)
		if found {
			c.Line = quote + c.Line
			return c, nil
		}
	}

	return c, fmt.Errorf("the characters %s before the program are written in a way that is not understood", c.Prefix)
}

// QuoteWord writes a word of a command line, so that systemd reads it as it is. literal: the command has the prefix ":",
// which takes the meaning of $ away.
func QuoteWord(word string, literal bool) string {
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
