package compose

import (
	"strings"

	"gpuard/internal/core/launchers"
	"gpuard/internal/core/lint"
	"gpuard/internal/text/yamltree"
)

// readCommands reads entrypoint, command and the health check. The words of command follow those of the entrypoint where
// both are in the file and command begins with an argument; where it is an option, they follow the entrypoint of an
// image that is known.
func (r *reader) readCommands(n *yamltree.Node) {
	entry, command := commandWords(n.Find("entrypoint")), commandWords(n.Find("command"))
	if len(entry) == 0 && len(command) > 0 && strings.HasPrefix(command[0].Text, "-") {
		entry = imageCommand(n.Find("image"))
	}

	whole := append(append([]lint.Word{}, entry...), command...)
	joined := lint.Step{Do: lint.Command, Words: whole, In: r.name}
	if _, script := lint.ShellText(joined); script || len(entry) > 0 && len(command) > 0 && isArgument(command[0]) {
		r.addCommand(whole)
	} else {
		r.addCommand(entry)
		r.addCommand(command)
	}

	if test := n.Find("healthcheck", "test"); test != nil && len(test.Items) > 1 {
		switch test.Items[0].Text {
		case "CMD":
			r.addCommand(commandWords(&yamltree.Node{Kind: yamltree.List, Items: test.Items[1:]}))
		case "CMD-SHELL":
			r.addScript(test.Items[1])
		}
	}
}

// isArgument reports whether a word can only be an argument of the entrypoint: an option, or an assignment for env.
func isArgument(w lint.Word) bool {
	return strings.HasPrefix(w.Text, "-") || strings.Contains(w.Text, "=")
}

func (r *reader) addCommand(words []lint.Word) {
	if len(words) == 0 {
		return
	}
	s := lint.Step{Do: lint.Command, Words: words, In: r.name, At: yamltree.JoinPlaces(words[0].At, words[len(words)-1].At)}
	r.steps = append(r.steps, s)
	if inner, ok := lint.ShellText(s); ok {
		r.steps = append(r.steps, inner)
	}
}

func (r *reader) addScript(n *yamltree.Node) {
	text, at, indent := n.ScriptText()
	text = strings.ReplaceAll(text, "$$", "$")
	r.steps = append(r.steps, lint.Step{At: at, Do: lint.Script, Value: lint.Value{Text: text, Known: true, At: n.At, Raw: n.Raw}, In: r.name, Indent: indent})
}

// imageCommand is the program that an image starts with options alone.
func imageCommand(image *yamltree.Node) (words []lint.Word) {
	if image == nil {
		return nil
	}
	for _, word := range launchers.ProgramOfImage(image.Text) {
		words = append(words, lint.Word{Text: word, Known: true, At: image.At})
	}
	return words
}

// commandWords reads a command in both forms: a list of words, and one text that Compose splits as a shell would, without
// starting one.
func commandWords(n *yamltree.Node) []lint.Word {
	if n == nil {
		return nil
	}

	if n.Kind == yamltree.List {
		var list []lint.Word
		for _, item := range n.Items {
			if item.Kind == yamltree.Scalar {
				list = append(list, item.Value())
				list[len(list)-1] = interpolateValue(list[len(list)-1])
			}
		}
		return list
	}

	if n.Kind != yamltree.Scalar || n.Null {
		return nil
	}

	text, at, indent := n.ScriptText()

	return splitCommand(text, at, indent)
}

// splitCommand cuts a command into words: blanks separate, quotes and backslashes protect as in a shell. Places follow the
// lines of the text; indent as in a Script step.
func splitCommand(text string, at lint.Place, indent int) []lint.Word {
	var list []lint.Word
	line, column := at.Line, at.Column
	place := func() lint.Place {
		if indent < 0 {
			return at
		}
		return lint.Place{Line: line, Column: column}
	}

	var word strings.Builder
	var begin lint.Place
	in, from, quote := false, 0, byte(0)
	end := func(to int) {
		if in {
			w := lint.Word{Text: word.String(), Known: true, At: begin, Raw: text[from:to]}
			if indent >= 0 {
				w.At.EndLine, w.At.EndColumn = line, column
				if line > at.EndLine {
					// An open quote ends with the text, and not after its last line.
					w.At.EndLine, w.At.EndColumn = at.EndLine, at.EndColumn
				}
			}
			list = append(list, interpolateValue(w))
		}
		word.Reset()
		in = false
	}

	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			end(i)
		case c == '\\' && quote != '\'' && i+1 < len(text) && text[i+1] == '\n':
			// The line continues in the next one.
			i, line, column = i+1, line+1, indent+1
			continue
		default:
			if !in {
				in, from, begin = true, i, place()
			}
			switch {
			case c == quote:
				quote = 0
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
			case c == '\\' && quote != '\'' && i+1 < len(text):
				i, column = i+1, column+1
				word.WriteByte(text[i])
			default:
				word.WriteByte(c)
			}
		}
		if text[i] == '\n' {
			line, column = line+1, indent+1
		} else {
			column++
		}
	}

	end(len(text))

	return list
}
