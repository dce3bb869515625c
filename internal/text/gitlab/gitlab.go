// Package gitlab reads the pipelines of GitLab: which variables and commands their jobs run with. It runs nothing and
// follows no include.
package gitlab

import (
	"fmt"
	"strings"

	"gpuard/internal/core/lint"
	"gpuard/internal/text/yamltree"
)

// maxSteps is how many steps a file may have: aliases can make a small file name a great many.
const maxSteps = 20000

// ReadSteps returns what a pipeline does (https://docs.gitlab.com/ci/yaml/). Variables are Set steps of their job, those of
// the whole pipeline of no section. before_script and script of a job share a shell: they are one Script where they
// are written in that order.
func ReadSteps(path string, src []byte) (lint.File, error) {
	f := lint.File{Path: path, Kind: lint.GitLab}
	docs, err := yamltree.Parse(src)
	if err != nil {
		return f, err
	}

	for _, doc := range docs {
		var r reader
		r.readVariables("", doc.Find("variables"))
		r.readScripts("", doc.Find("before_script"))

		for _, p := range doc.Entries() {
			if p.Value.Kind == yamltree.Map && p.Key.Text != "variables" {
				r.readVariables(p.Key.Text, p.Value.Find("variables"))
				r.readScripts(p.Key.Text, p.Value.Find("before_script"), p.Value.Find("script"))
				r.readScripts(p.Key.Text, p.Value.Find("after_script"))
			}
			if len(r.steps) > maxSteps {
				return f, fmt.Errorf("cannot read the file: its jobs come to more than %d settings", maxSteps)
			}
		}

		f.Steps = append(f.Steps, r.steps...)
	}

	return f, nil
}

type reader struct{ steps []lint.Step }

func (r *reader) readVariables(job string, n *yamltree.Node) {
	for _, p := range n.Entries() {
		value := p.Value
		if given := value.Find("value"); given != nil {
			value = given
		}

		if value.Kind != yamltree.Scalar {
			continue
		}

		s := lint.Step{At: yamltree.JoinPlaces(p.Key.At, value.At), Do: lint.Set, Name: p.Key.Text, In: job, How: "variables", Exported: true, Value: value.Value()}
		s.Value.Known = !strings.Contains(s.Value.Text, "$")
		if p.Bare {
			// The rest of a value that was split at its comma.
			s.How = "variables, cut"
		}

		r.steps = append(r.steps, s)
	}
}

// readScripts reads lists of commands that one shell runs.
func (r *reader) readScripts(job string, lists ...*yamltree.Node) {
	var all page
	for _, list := range lists {
		for _, line := range flattenCommands(list, 0) {
			if !all.addCommand(line) {
				r.addScript(job, all)
				all = page{}
				all.addCommand(line)
			}
		}
	}
	r.addScript(job, all)
}

func (r *reader) addScript(job string, p page) {
	if len(p.lines) == 0 {
		return
	}

	text := strings.Join(p.lines, "\n")
	at := lint.Place{Line: p.first, Column: 1, EndLine: p.first + len(p.lines) - 1, EndColumn: len(p.lines[len(p.lines)-1]) + 1}
	s := lint.Step{At: at, Do: lint.Script, In: job, Value: lint.Value{Text: text, Known: true, At: at, Raw: text}}
	if p.lost {
		s.Indent, s.At.EndLine, s.At.EndColumn = -1, at.Line, at.Column
	}

	r.steps = append(r.steps, s)
}

// flattenCommands lists the commands of a list, and of lists in it, which !reference and anchors make.
func flattenCommands(n *yamltree.Node, depth int) (all []*yamltree.Node) {
	switch {
	case n == nil || depth > 10 || n.Null:
	case n.Kind == yamltree.Scalar:
		return []*yamltree.Node{n}
	case n.Kind == yamltree.List:
		for _, item := range n.Items {
			all = append(all, flattenCommands(item, depth+1)...)
			if len(all) > maxSteps {
				break
			}
		}
	}
	return all
}

// page is a script with each line where the file has it: blanks stand for what is before it.
type page struct {
	first int
	lines []string
	// A text is not written as it is read, so that places are not known.
	lost bool
}

// addCommand writes a command below those that are there; false where it is above them in the file.
func (p *page) addCommand(n *yamltree.Node) bool {
	text, at, indent := n.ScriptText()
	if len(p.lines) == 0 {
		p.first = at.Line
	}

	if at.Line < p.first+len(p.lines) {
		return false
	}

	for p.first+len(p.lines) < at.Line {
		p.lines = append(p.lines, "")
	}

	p.lost = p.lost || indent < 0

	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		margin := max(indent, 0)
		if i == 0 {
			margin = max(at.Column-1, 0)
		}
		if line != "" {
			line = strings.Repeat(" ", margin) + line
		}
		p.lines = append(p.lines, line)
	}

	return true
}
