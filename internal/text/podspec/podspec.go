// Package podspec reads manifests of Kubernetes: what their containers run, with which variables and which share of
// the machine. It runs nothing.
package podspec

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/lint"
	"gpuard/internal/text/yamltree"
)

// maxSteps is how many steps a file may have: aliases can make a small file name a great many.
const maxSteps = 20000

// ReadSteps returns what the containers of a file do
// (https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/), wherever they are: in a pod, or in
// what makes pods. Of each, in the section of its name: its variables as Set steps, its image and its resources as
// Setting steps ("resources.limits.nvidia.com/gpu"), then its program and the script that it hands to a shell.
func ReadSteps(path string, src []byte) (lint.File, error) {
	f := lint.File{Path: path, Kind: lint.Kubernetes}
	docs, err := yamltree.Parse(src)
	if err != nil {
		return f, err
	}

	var r reader

	for i, doc := range docs {
		if doc.Find("apiVersion") != nil && doc.Find("kind") != nil {
			r.findContainers(doc, 0, fmt.Sprint(i))
		}
	}

	if len(r.steps) > maxSteps {
		return f, fmt.Errorf("cannot read the file: its containers come to more than %d settings", maxSteps)
	}

	f.Steps = r.steps

	return f, nil
}

// maxNodes is more than any manifest has.
const maxNodes = 200_000

type reader struct {
	steps []lint.Step
	count int // containers so far
	// Visited: an anchor is visited at each place that names it.
	nodes int
}

// findContainers looks for containers below a node.
func (r *reader) findContainers(n *yamltree.Node, depth int, in string) {
	r.nodes++
	if n == nil || depth > 30 || len(r.steps) > maxSteps || r.nodes > maxNodes {
		return
	}

	for _, item := range n.Items {
		r.findContainers(item, depth+1, in)
	}
	for _, p := range n.Entries() {
		if slices.Contains([]string{"containers", "initContainers"}, p.Key.Text) && p.Value.Kind == yamltree.List {
			for _, c := range p.Value.Items {
				r.count++
				r.readContainer(fmt.Sprintf("%s %d", c.Find("name").ScalarText(), r.count), c)
			}
			continue
		}
		r.findContainers(p.Value, depth+1, in)
	}
}

func (r *reader) readContainer(in string, n *yamltree.Node) {
	if env := n.Find("env"); env != nil {
		for _, item := range env.Items {
			r.readVariable(in, item)
		}
	}
	if image := n.Find("image"); image != nil && image.Kind == yamltree.Scalar {
		r.steps = append(r.steps, lint.Step{At: image.At, Do: lint.Setting, Name: "image", In: in, Value: image.Value()})
	}

	for _, part := range []string{"requests", "limits"} {
		for _, p := range n.Find("resources", part).Entries() {
			if p.Value.Kind == yamltree.Scalar {
				r.steps = append(r.steps, lint.Step{At: yamltree.JoinPlaces(p.Key.At, p.Value.At), Do: lint.Setting, Name: "resources." + part + "." + p.Key.Text, In: in, Value: p.Value.Value()})
			}
		}
	}
	r.readProgram(in, n)
}

// readVariable reads an entry of env: a value, or where it comes from.
func (r *reader) readVariable(in string, n *yamltree.Node) {
	name, value := n.Find("name"), n.Find("value")
	if name == nil || name.Kind != yamltree.Scalar {
		return
	}

	s := lint.Step{At: n.At, Do: lint.Set, Name: name.Text, In: in, How: "env", Exported: true, Value: lint.Value{At: name.At}}
	if value != nil && value.Kind == yamltree.Scalar {
		s.Value = expandableValue(value)
	}

	r.steps = append(r.steps, s)
}

// expandableValue is a scalar in which Kubernetes fills in $(NAME); $$(NAME) is the text itself.
func expandableValue(n *yamltree.Node) lint.Value {
	v := n.Value()
	if strings.Contains(v.Text, "\n") {
		// Its lines are indented in the file.
		v.Raw = ""
	}
	v.Known = !strings.Contains(strings.ReplaceAll(v.Text, "$$(", ""), "$(")

	return v
}

// readProgram reads command and args, which are one command line where both are there. A command of a shell has its script
// as a text of several lines, whose places are known.
func (r *reader) readProgram(in string, n *yamltree.Node) {
	var nodes []*yamltree.Node
	var words, plain []lint.Word

	for _, key := range []string{"command", "args"} {
		list := n.Find(key)
		if list == nil {
			continue
		}

		for _, item := range list.Items {
			if item.Kind == yamltree.Scalar {
				nodes, words, plain = append(nodes, item), append(words, expandableValue(item)), append(plain, item.Value())
			}
		}
	}

	if len(words) == 0 {
		return
	}

	s := lint.Step{Do: lint.Command, Words: words, In: in, At: yamltree.JoinPlaces(words[0].At, words[len(words)-1].At)}
	r.steps = append(r.steps, s)

	// What has a $( is for the shell, mostly.
	s.Words = plain
	inner, ok := lint.ShellText(s)
	i := slices.IndexFunc(nodes, func(n *yamltree.Node) bool { return n.At == inner.Value.At })
	if !ok || i < 0 {
		return
	}

	inner.Value.Text, inner.At, inner.Indent = nodes[i].ScriptText()
	r.steps = append(r.steps, inner)
}
