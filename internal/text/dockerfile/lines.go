package dockerfile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// eachInstruction splits the file into its instructions, as Docker does (moby/buildkit:
// frontend/dockerfile/parser/parser.go). An instruction that Docker's parser refuses is passed over and counted in
// unread, and the first such fault is returned; faults that the build finds later are left to it.
func (r *reader) eachInstruction(each func(instruction)) error {
	count := len(r.lines)
	if r.lines[count-1] == "" {
		// After the last newline.
		count--
	}

	if err := r.readDirectives(r.lines[:count]); err != nil {
		return err
	}

	found := false
	var fault error

	for n := 1; n <= count; n++ {
		line := r.lines[n-1]
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}

		line = strings.TrimLeftFunc(line, unicode.IsSpace)
		if line == "" || line[0] == '#' {
			continue
		}

		i := r.joinLines(n)
		refused := r.checkSyntax(i)
		i.last = min(i.head, count)

		for _, doc := range i.hereDocuments() {
			end := i.last + 1
			for ; end <= count && !doc.isEnd(r.lines[end-1]); end++ {
				continue
			}
			if end > count {
				r.unread += count - n + 1
				return cmp.Or(fault, fmt.Errorf("line %d: the here-document %s does not end", n, doc.name))
			}
			i.last, i.docs = end, i.docs+1
		}

		found = true
		if refused != nil {
			fault = cmp.Or(fault, fmt.Errorf("line %d: %w", n, refused))
		}

		if refused != nil && !i.isAssignment() {
			r.unread += i.last - n + 1
		} else {
			each(i)
		}

		n = i.last
	}

	if !found {
		return errors.New("there is no instruction in it")
	}

	return fault
}

// isAssignment reports whether it is an ENV: what is no assignment in it is a word of its own, which rules look at.
func (i instruction) isAssignment() bool {
	return i.enterArguments() == "ENV" && strings.Contains(i.text[i.args:i.wordEnd(i.args)], "=")
}

// readDirectives reads the lines like "# escape=`" that the file begins with.
func (r *reader) readDirectives(lines []string) error {
	pattern := regexp.MustCompile(`^#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=\s*(.+?)\s*$`)
	seen := map[string]bool{}
	for n, line := range lines {
		if n == 0 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		found := pattern.FindStringSubmatch(strings.TrimLeftFunc(line, unicode.IsSpace))
		if found == nil {
			return nil
		}

		switch name := strings.ToLower(found[1]); {
		case name != "syntax" && name != "check" && name != "escape":
			return nil
		case seen[name]:
			return fmt.Errorf("line %d: %s is set for the second time", n+1, name)
		case name == "escape" && found[2] != "`" && found[2] != `\`:
			return fmt.Errorf("line %d: escape must be \\ or `, and not %q", n+1, found[2])
		default:
			seen[name] = true
			if name == "escape" {
				r.escape = found[2][0]
			}
		}
	}

	return nil
}

// checkSyntax says why Docker's parser does not take an instruction (moby/buildkit: frontend/dockerfile/parser/line_parsers.go).
func (r *reader) checkSyntax(i instruction) error {
	name := i.enterArguments()
	switch name {
	case "ONBUILD":
		i.dropBefore(i.args)
		return r.checkSyntax(i)
	case "HEALTHCHECK":
		i.args = i.skipBlank(i.wordEnd(i.args))
	case "ENV", "LABEL":
		return r.checkPairs(i, name)
	case "RUN", "CMD", "ENTRYPOINT", "SHELL", "ADD", "COPY", "VOLUME":
	default:
		return nil
	}

	var list []any
	if strings.HasPrefix(i.text[i.args:], "[") {
		// What is no JSON is for a shell.
		_ = json.Unmarshal([]byte(i.text[i.args:]), &list)
	}

	for _, item := range list {
		if _, is := item.(string); !is {
			return fmt.Errorf("the list of %s must have strings only", name)
		}
	}

	return nil
}

// checkPairs refuses what is neither NAME=value NAME=value nor NAME value.
func (r *reader) checkPairs(i instruction, name string) error {
	for at := i.args; at < len(i.text); {
		end := i.quotedWordEnd(at, r.escape)
		next := i.skipBlank(end)

		switch {
		case strings.Contains(i.text[at:end], "="):
		case at > i.args:
			return fmt.Errorf("there is no = in %q: %s takes NAME=value", i.text[at:end], name)
		case i.skipBlank(i.wordEnd(at)) == len(i.text):
			return fmt.Errorf("%s %s has no value", name, i.text[at:end])
		default:
			return nil
		}
		at = next
	}
	return nil
}

// hereDocument is the end of one: lines after the instruction belong to it until one that is its name.
type hereDocument struct {
	name string
	// Tabs may precede the name.
	chomp bool
}

func (h hereDocument) isEnd(line string) bool {
	line = strings.TrimRight(line, "\r")
	if h.chomp {
		line = strings.TrimLeft(line, "\t")
	}
	return line == h.name
}

// hereDocuments are those that an instruction begins: RUN, COPY and ADD may, unless they have a list in JSON.
func (i instruction) hereDocuments() (docs []hereDocument) {
	if !strings.Contains(i.text, "<<") {
		return nil
	}

	switch i.enterArguments() {
	case "ONBUILD":
		i.dropBefore(i.args)
		return i.hereDocuments()
	case "RUN", "COPY", "ADD":
	default:
		return nil
	}

	if _, exec := i.execWords(); exec {
		return nil
	}

	for at := i.args; at < len(i.text); {
		end := i.quotedWordEnd(at, '\\')
		for strings.HasSuffix(i.text[at:end], "<<") && end < len(i.text) {
			// Blanks may follow it.
			end = i.quotedWordEnd(i.skipBlank(end), '\\')
		}

		word, closed := unquoteWord(i.text[at:end])
		if !closed {
			// Docker gives up on the words of such a line.
			return nil
		}

		raw, is := strings.CutPrefix(strings.TrimLeft(i.text[at:end], "0123456789"), "<<")
		raw = strings.TrimLeft(strings.TrimPrefix(raw, "-"), " \t")
		if is && raw != "" && !strings.Contains(raw, "<") {
			_, word, _ = strings.Cut(word, "<<")
			word, chomp := strings.CutPrefix(word, "-")
			word = strings.TrimLeft(word, " \t")
			if word != "" {
				docs = append(docs, hereDocument{word, chomp})
			}
		}

		at = i.skipBlank(end)
	}

	return docs
}

// unquoteWord is a word without its quotes and escapes; closed is false where a quote does not end.
func unquoteWord(word string) (text string, closed bool) {
	var out strings.Builder
	quote := byte(0)
	for at := 0; at < len(word); at++ {
		c := word[at]
		switch {
		case c == '\\' && quote != '\'' && at+1 < len(word) && (quote == 0 || strings.IndexByte("\"$\\", word[at+1]) >= 0):
			at++
			out.WriteByte(word[at])
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		default:
			out.WriteByte(c)
		}
	}

	return out.String(), quote == 0
}
