// Package compose reads Compose files: which services get which GPUs, with which variables, and what they run. It
// starts nothing.
package compose

import (
	"fmt"
	"strings"

	"gpuard/internal/core/lint"
	"gpuard/internal/text/yamltree"
)

// maxSteps is how many steps a file may have: aliases can make a small file name a great many.
const maxSteps = 20000

// ReadSteps returns what the services of a Compose file do (https://github.com/compose-spec/compose-spec/blob/main/spec.md):
// of each, first its variables as Set steps in the section of its name, then what matters to devices as Setting steps,
// then its programs as Command steps and the scripts they hand to a shell as Script steps.
func ReadSteps(path string, src []byte) (lint.File, error) {
	f := lint.File{Path: path, Kind: lint.Compose}
	docs, err := yamltree.Parse(src)
	if err != nil {
		return f, err
	}

	for _, doc := range docs {
		for _, s := range doc.Find("services").Entries() {
			r := reader{name: s.Key.Text}
			r.readService(s.Value)
			f.Steps = append(f.Steps, r.steps...)
			if len(f.Steps) > maxSteps {
				return f, fmt.Errorf("cannot read the file: its services come to more than %d settings", maxSteps)
			}
		}
	}

	return f, nil
}

type reader struct {
	name  string // of the service
	steps []lint.Step
}

func (r *reader) readService(n *yamltree.Node) {
	if n == nil {
		return
	}
	for _, p := range n.Entries() {
		if p.Key.Text == "environment" {
			r.readEnvironment(p.Value)
		}
	}
	for _, p := range n.Entries() {
		switch p.Key.Text {
		case "image", "runtime", "gpus", "devices", "deploy", "scale", "extends", "env_file", "shm_size", "ipc", "ulimits", "privileged", "build":
			r.addSettings("services."+r.name+"."+p.Key.Text, p.Key, p.Value)
		}
	}
	r.readCommands(n)
}

// readEnvironment reads both forms: a map, and a list of NAME=VALUE. A name alone takes the value that Compose itself was
// started with.
func (r *reader) readEnvironment(n *yamltree.Node) {
	for _, p := range n.Entries() {
		s := lint.Step{At: yamltree.JoinPlaces(p.Key.At, p.Value.At), Do: lint.Set, Name: p.Key.Text, In: r.name, How: "environment", Exported: true}
		switch {
		case p.Bare:
			// The rest of a value that was split at its comma.
			s.How = "environment, cut"
		case p.Value.Kind != yamltree.Scalar:
			// A shape that Compose refuses.
			continue
		}

		s.Value = interpolateValue(p.Value.Value())
		if p.Value.Null {
			s.Value = lint.Value{At: p.Value.At}
		}

		r.steps = append(r.steps, s)
	}
	if n == nil {
		return
	}

	for i, item := range n.Items {
		if item.Kind != yamltree.Scalar {
			continue
		}

		s := lint.Step{At: item.At, Do: lint.Set, In: r.name, How: "environment", Exported: true}
		name, value, given := strings.Cut(item.Text, "=")
		s.Name = name
		if given {
			s.Value = interpolateValue(restOfScalar(item, len(name)+1, value))
		} else {
			s.Value = lint.Value{At: item.At}
			if n.Flow && item.Plain && i > 0 {
				s.How = "environment, cut"
			}
		}

		r.steps = append(r.steps, s)
	}
}

// restOfScalar is the rest of a scalar from a byte on.
func restOfScalar(n *yamltree.Node, from int, text string) lint.Value {
	v := n.Value()
	v.Text = text
	_, at, indent := n.ScriptText()
	if indent < 0 || at.Line != at.EndLine {
		return v
	}

	v.At, v.Raw = at, text
	v.At.Column += from

	return v
}

// interpolateValue takes the doubled $ away, by which a file writes one; any other $ is filled in by Compose
// (https://github.com/compose-spec/compose-spec/blob/main/12-interpolation.md).
func interpolateValue(v lint.Value) lint.Value {
	plain := strings.ReplaceAll(v.Text, "$$", "")
	if strings.Contains(plain, "$") {
		v.Known = false
		return v
	}
	v.Text = strings.ReplaceAll(v.Text, "$$", "$")

	return v
}

// addSettings names every scalar below a key by its path: "services.web.deploy.resources.reservations.devices[0].count".
// An entry of a list that is a map has a step of its own, without a value.
func (r *reader) addSettings(name string, key, n *yamltree.Node) {
	if n == nil || len(r.steps) > maxSteps {
		return
	}
	s := lint.Step{At: yamltree.JoinPlaces(key.At, n.At), Do: lint.Setting, Name: name, In: r.name}
	switch n.Kind {
	case yamltree.Scalar:
		if !n.Null {
			s.Value = interpolateValue(n.Value())
			r.steps = append(r.steps, s)
		}
	case yamltree.List:
		for i, item := range n.Items {
			if item.Kind == yamltree.Map {
				r.steps = append(r.steps, lint.Step{At: item.At, Do: lint.Setting, Name: fmt.Sprintf("%s[%d]", name, i), In: r.name})
			}
			r.addSettings(fmt.Sprintf("%s[%d]", name, i), item, item)
		}
	case yamltree.Map:
		for _, p := range n.Entries() {
			r.addSettings(name+"."+p.Key.Text, p.Key, p.Value)
		}
	}
}
