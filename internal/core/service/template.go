package service

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/template"
	"text/template/parse"

	"gpuard/internal/core/suggest"
)

// terms are the names that a template can use.
type terms struct {
	Ordinal, Replicas int
	Service, Project  string
}

// maxTextSize is the maximum size of a filled-in text, in bytes: Linux's limit for one argument (execve(2),
// MAX_ARG_STRLEN).
const maxTextSize = 128 << 10

// fillTemplate fills in the {{…}} of a text.
func fillTemplate(text string, t terms) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}

	parsed, err := template.New("text").Funcs(template.FuncMap{"add": addNumbers}).Option("missingkey=error").Parse(text)
	if err != nil {
		return "", templateError(err)
	}
	if len(parsed.Templates()) > 1 {
		return "", errors.New("{{define}} and {{block}} are not understood in a template")
	}
	if parsed.Tree == nil || parsed.Root == nil {
		// Only a comment.
		return "", nil
	}
	if err := checkNode(parsed.Root); err != nil {
		return "", err
	}

	var out boundedText
	if err := parsed.Execute(&out, t); err != nil {
		return "", templateError(err)
	}

	return out.String(), nil
}

// addNumbers is the only function besides those of text/template: it computes ports from a first one.
func addNumbers(numbers ...int) (sum int) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}

// boundedText is a text with the maximum size of an argument.
type boundedText struct{ strings.Builder }

// Write fails when the text would become too long.
func (b *boundedText) Write(data []byte) (int, error) {
	if b.Len()+len(data) > maxTextSize {
		return 0, fmt.Errorf("it becomes longer than %d KiB", maxTextSize>>10)
	}
	return b.Builder.Write(data)
}

// templateError removes the position in the template from an error of text/template: "template: text:1:2: executing
// "text" at <x>: ".
func templateError(err error) error {
	text := regexp.MustCompile(`^template: text:(\d+:)*\s*(executing "text" at )?`).ReplaceAllString(err.Error(), "")
	return errors.New("the template cannot be filled in: " + text)
}

// checkNode finds unknown names, also in branches that are not executed, and constructs that would make a program of a
// template.
func checkNode(n parse.Node) error {
	var below []parse.Node
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			below = n.Nodes
		}
	case *parse.ActionNode:
		below = []parse.Node{n.Pipe}
	case *parse.IfNode:
		below = []parse.Node{n.Pipe, n.List, n.ElseList}
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			below = append(below, c.Args...)
		}
	case *parse.ChainNode:
		below = []parse.Node{n.Node}
	case *parse.FieldNode:
		return checkName(n.Ident)
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			return checkName(n.Ident[1:])
		}
	case *parse.RangeNode, *parse.WithNode, *parse.TemplateNode:
		word, _, _ := strings.Cut(strings.Trim(n.String(), "{ "), " ")
		return fmt.Errorf("{{%s}} is not understood in a template; {{if}} is", word)
	}
	for _, b := range below {
		if err := checkNode(b); err != nil {
			return err
		}
	}

	return nil
}

func checkName(field []string) error {
	names := []string{"Ordinal", "Replicas", "Service", "Project"}
	for _, name := range names {
		if len(field) == 1 && field[0] == name {
			return nil
		}
	}

	written := "." + strings.Join(field, ".")
	if meant := suggest.ClosestWord(strings.Join(field, ""), names); meant != "" && written != "."+meant {
		return fmt.Errorf("unknown name %s in a template; did you mean .%s?", written, meant)
	}

	return fmt.Errorf("unknown name %s in a template; there are .%s", written, strings.Join(names, ", ."))
}
