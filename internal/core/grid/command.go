package grid

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"gpuard/internal/core/option"
	"gpuard/internal/core/suggest"
)

// Command makes the command line of each run.
type Command struct {
	// Parameters that no word uses.
	Unused []string

	grid  *Grid
	words []commandWord
}

// commandWord is a template, or a literal text.
type commandWord struct {
	text string
	// nil: a literal text.
	made *template.Template
}

// unknownParameter is the error of a word with an unknown parameter.
func unknownParameter(word, name string, known []string) error {
	known = append(slices.Clone(known), ordinalName)
	if meant := suggest.ClosestWord(name, known); meant != "" {
		return fmt.Errorf("cannot use %q: there is no parameter %s; did you mean {{.%s}}?", word, name, meant)
	}
	return fmt.Errorf("cannot use %q: there is no parameter %s, only %s", word, name, strings.Join(known, ", "))
}

// ParseCommand reads the words of a command, each as a separate template with the parameters and .Ordinal, so that a
// parameter's value never becomes two words. A Grid with Commands has its words already, which are no templates.
func ParseCommand(words []string, g *Grid) (*Command, error) {
	c := &Command{grid: g}
	if g.Commands != nil {
		return c, nil
	}
	if len(words) == 0 {
		return nil, errors.New(option.Expand("cannot start anything: there is no command; write it after --, such as: {gpuard sweep} {over=seed=1..5} -- python train.py --seed {{.seed}}"))
	}

	used := map[string]bool{}
	for _, text := range words {
		w := commandWord{text: text}
		if strings.Contains(text, "{{") {
			var err error
			w.made, err = template.New("").Option("missingkey=error").Funcs(template.FuncMap{"add": addNumbers}).Parse(text)
			if err != nil {
				return nil, fmt.Errorf("cannot read %q: %s; a parameter is written {{.name}}", text, plainTemplate(err))
			}

			for _, name := range templateNames(w.made.Root) {
				used[name] = true
				if name != ordinalName && !slices.Contains(g.Names, name) {
					return nil, unknownParameter(text, name, g.Names)
				}
			}
		}
		c.words = append(c.words, w)
	}

	c.Unused = slices.DeleteFunc(slices.Clone(g.Names), func(n string) bool { return used[n] })
	if g.Len() > 0 {
		// An error that only execution shows appears in the first run.
		if _, err := c.Words(0); err != nil {
			return nil, err
		}
	}

	return c, nil
}

// addNumbers computes numbers from the run's number, such as ports: {{add 8001 .Ordinal}}.
func addNumbers(a, b int) int { return a + b }

// plainTemplate removes the template's name and line from its error: the user has given neither.
func plainTemplate(err error) string {
	text := strings.TrimPrefix(err.Error(), "template: ")
	if _, rest, found := strings.Cut(text, ": "); found {
		text = rest
	}
	return strings.TrimPrefix(text, "executing \"\" at ")
}

// templateNames lists the names that a template uses.
func templateNames(n parse.Node) []string {
	names := map[string]bool{}
	var walk func(parse.Node)
	pipe := func(p *parse.PipeNode) {
		if p != nil {
			walk(p)
		}
	}

	branch := func(b *parse.BranchNode) {
		pipe(b.Pipe)
		walk(b.List)
		if b.ElseList != nil {
			walk(b.ElseList)
		}
	}

	walk = func(n parse.Node) {
		switch n := n.(type) {
		case *parse.ListNode:
			for _, each := range n.Nodes {
				walk(each)
			}
		case *parse.ActionNode:
			pipe(n.Pipe)
		case *parse.PipeNode:
			for _, each := range n.Cmds {
				walk(each)
			}
		case *parse.CommandNode:
			for _, each := range n.Args {
				walk(each)
			}
		case *parse.ChainNode:
			walk(n.Node)
		case *parse.FieldNode:
			names[n.Ident[0]] = true
		case *parse.IfNode:
			branch(&n.BranchNode)
		case *parse.RangeNode:
			branch(&n.BranchNode)
		case *parse.WithNode:
			branch(&n.BranchNode)
		}
	}

	walk(n)

	return slices.Sorted(maps.Keys(names))
}

// Words are the words of run i.
func (c *Command) Words(i int) ([]string, error) {
	if c.grid.Commands != nil {
		return c.grid.Commands[i], nil
	}

	data := map[string]any{ordinalName: i}
	for at, value := range c.grid.ValuesOf(i) {
		data[c.grid.Names[at]] = value
	}

	out := make([]string, len(c.words))
	for at, w := range c.words {
		out[at] = w.text
		if w.made == nil {
			continue
		}

		var b strings.Builder
		if err := w.made.Execute(&b, data); err != nil {
			return nil, fmt.Errorf("cannot make %q for run %d: %s", w.text, i, plainTemplate(err))
		}

		out[at] = b.String()
	}

	switch {
	case out[0] == "":
		return nil, fmt.Errorf("cannot start run %d: the first word, %q, is empty", i, c.words[0].text)
	case slices.ContainsFunc(out, func(w string) bool { return strings.ContainsRune(w, 0) }):
		return nil, fmt.Errorf("cannot start run %d: a word has a NUL character, which no argument can have", i)
	}

	return out, nil
}

// Programs are the first words of all runs, without making every run: of a template only that of the first run.
func (c *Command) Programs() []string {
	if c.grid.Commands == nil {
		words, err := c.Words(0)
		if err != nil {
			return nil
		}
		return words[:1]
	}
	names := map[string]bool{}
	for _, words := range c.grid.Commands {
		names[words[0]] = true
	}

	return slices.Sorted(maps.Keys(names))
}
