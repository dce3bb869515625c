package desktop

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"unicode/utf8"

	"gpuard/internal/core/launchers"
	"gpuard/internal/core/prose"
)

// Main is the group of an entry that describes the program; those of its actions begin with Action.
const (
	MainGroup    = "Desktop Entry"
	ActionPrefix = "Desktop Action "
)

// Rewrite calls change for every assignment of an entry. change returns the new value, and whether the assignment
// stays. Values are as in the file, and key includes the language: Name[de]. Everything else stays byte for byte.
func Rewrite(src []byte, change func(group, key, value string) (string, bool)) ([]byte, error) {
	if bytes.IndexByte(src, 0) >= 0 || !utf8.Valid(src) {
		return nil, errors.New("it is no text in UTF-8")
	}

	var out strings.Builder
	group := ""
	for line := range strings.Lines(string(src)) {
		body := strings.TrimPrefix(strings.TrimRight(line, "\r\n"), "\ufeff")
		key, value, assigns := strings.Cut(body, "=")
		switch start := strings.TrimLeft(body, " \t"); {
		case start == "" || start[0] == '#':
		case start[0] == '[':
			if end := strings.IndexByte(start, ']'); end > 0 {
				group = start[1:end]
			}
		case group == "":
			return nil, errors.New("it does not begin with [Desktop Entry]")
		case assigns:
			bare := strings.TrimLeft(value, " \t")
			now, stays := change(group, strings.TrimSpace(key), bare)
			if !stays {
				continue
			}
			line = line[:len(line)-len(strings.TrimLeft(line, "\ufeff"))] + key + "=" + value[:len(value)-len(bare)] + now + line[len(strings.TrimRight(line, "\r\n")):]
		}
		out.WriteString(line)
	}

	return []byte(out.String()), nil
}

// PrefixExec is an Exec value with words before the program. more come where the field code for files is, or at the end
// if there is none.
func PrefixExec(value string, words, more []string) string {
	all := unescapeValue(value, 1, 1)
	parts := prose.Texts(words, QuoteWord)

	written := prose.Texts(more, QuoteWord)

	at := len(value)
	for _, w := range splitExec(all) {
		if slices.Contains([]string{"%f", "%F", "%u", "%U"}, w.Raw) {
			at = w.At.Column - 1
			break
		}
	}

	for _, part := range []string{strings.TrimRight(value[:at], " \t"), strings.Join(written, " "), value[at:]} {
		if part != "" {
			parts = append(parts, part)
		}
	}

	return strings.Join(parts, " ")
}

// WithoutLists is an Exec value without the lists of devices that env gives the program, and without env where it has
// nothing else to do; dropped are those lists, as they were written.
func WithoutLists(value string) (out string, dropped []string) {
	words := splitExec(unescapeValue(value, 1, 1))
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.Text
	}

	gone := launchers.WordsOfLists(texts)
	at := 0
	for i, w := range words {
		if slices.Contains(gone, i) {
			if strings.Contains(texts[i], "=") {
				dropped = append(dropped, texts[i])
			}

			from, to := w.At.Column-1, len(value)
			if i+1 < len(words) {
				to = words[i+1].At.Column - 1
			}

			out += value[at:from]
			at = to
		}
	}

	return out + value[at:], dropped
}

// QuoteWord writes a word of an Exec value. What has a character that is reserved is quoted whole, and a % is written twice;
// the escapes of every value of type string come on top
// (https://specifications.freedesktop.org/desktop-entry-spec/latest/exec-variables.html).
func QuoteWord(word string) string {
	quoted := strings.ReplaceAll(word, "%", "%%")
	if word == "" || strings.ContainsAny(word, " \t\n\r\"'\\><~|&;$*?#()`") {
		quoted = `"` + strings.NewReplacer(`"`, `\"`, "`", "\\`", `$`, `\$`, `\`, `\\`).Replace(quoted) + `"`
	}
	return EscapeText(quoted)
}

// EscapeText writes a value of type string.
func EscapeText(text string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\t", `\t`, "\r", `\r`).Replace(text)
}
