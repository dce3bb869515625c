// Package editorconf reads two files in JSON that say how a program is started: launch.json of VS Code and kernel.json
// of Jupyter. It starts nothing.
package editorconf

import (
	"fmt"
	"strings"

	"gpuard/internal/core/lint"
	"gpuard/internal/text/yamltree"
)

// ReadLaunch returns what the configurations of a launch.json do, each in the section of its name
// (https://code.visualstudio.com/docs/debugtest/debugging-configuration): env as Set steps, program and args as a
// Command. Comments and commas too many are allowed there.
func ReadLaunch(path string, src []byte) (lint.File, error) {
	f := lint.File{Path: path, Kind: lint.Launch}
	doc, err := parseJSON(src)
	if err != nil || doc == nil {
		return f, err
	}

	list := doc.Find("configurations")
	if list == nil {
		// Of a workspace.
		list = doc.Find("launch", "configurations")
	}

	if list == nil {
		return f, nil
	}

	for i, c := range list.Items {
		in := fmt.Sprint("configuration ", i+1)
		f.Steps = append(f.Steps, variableSteps(c.Find("env"), in)...)
		var words []lint.Word
		if kind := c.Find("type"); kind != nil && (kind.Text == "python" || kind.Text == "debugpy") {
			words = append(words, lint.Word{Text: "python", Known: true, At: kind.At})
			if module := c.Find("module"); module != nil {
				words = append(words, lint.Word{Text: "-m", Known: true, At: module.At}, scalarValue(module))
			}
		}

		f.Steps = append(f.Steps, commandSteps(words, in, c.Find("program"), c.Find("args"))...)
	}

	return f, nil
}

// ReadKernel returns what a kernel.json does (https://jupyter-client.readthedocs.io/en/stable/kernels.html#kernel-specs):
// env as Set steps, argv as a Command.
func ReadKernel(path string, src []byte) (lint.File, error) {
	f := lint.File{Path: path, Kind: lint.Kernel}
	doc, err := parseJSON(src)
	if err != nil || doc == nil {
		return f, err
	}

	f.Steps = append(variableSteps(doc.Find("env"), ""), commandSteps(nil, "", doc.Find("argv"))...)

	return f, nil
}

// parseJSON reads JSON as the YAML that it is too, which knows places; comments and tabs are made blank.
func parseJSON(src []byte) (*yamltree.Node, error) {
	plain := []byte(string(src))
	quoted := false
	for i := 0; i < len(plain); i++ {
		switch c := plain[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '\t':
			plain[i] = ' '
		case c == '/' && i+1 < len(plain) && plain[i+1] == '/':
			for ; i < len(plain) && plain[i] != '\n'; i++ {
				plain[i] = ' '
			}
		case c == '/' && i+1 < len(plain) && plain[i+1] == '*':
			end := strings.Index(string(plain[i+2:]), "*/")
			for stop := i + 4 + end; i < stop && end >= 0; i++ {
				if plain[i] != '\n' {
					plain[i] = ' '
				}
			}
		}
	}

	docs, err := yamltree.Parse(plain)
	if err != nil || len(docs) == 0 {
		return nil, err
	}

	return docs[0], nil
}

// scalarValue is a scalar; ${…} is filled in by the editor, or by Jupyter.
func scalarValue(n *yamltree.Node) lint.Value {
	v := n.Value()
	v.Known = v.Known && !strings.Contains(v.Text, "${")
	return v
}

func variableSteps(n *yamltree.Node, in string) (all []lint.Step) {
	for _, p := range n.Entries() {
		if p.Value.Kind == yamltree.Scalar && !p.Value.Null {
			all = append(all, lint.Step{At: yamltree.JoinPlaces(p.Key.At, p.Value.At), Do: lint.Set, Name: p.Key.Text, In: in, How: "env", Exported: true, Value: scalarValue(p.Value)})
		}
	}
	return all
}

func commandSteps(words []lint.Word, in string, parts ...*yamltree.Node) []lint.Step {
	for _, part := range parts {
		switch {
		case part == nil:
		case part.Kind == yamltree.Scalar && !part.Null:
			words = append(words, scalarValue(part))
		default:
			for _, item := range part.Items {
				if item.Kind == yamltree.Scalar {
					words = append(words, scalarValue(item))
				}
			}
		}
	}

	if len(words) == 0 {
		return nil
	}

	s := lint.Step{Do: lint.Command, Words: words, In: in, At: yamltree.JoinPlaces(words[0].At, words[len(words)-1].At)}
	if inner, ok := lint.ShellText(s); ok {
		return []lint.Step{s, inner}
	}

	return []lint.Step{s}
}
