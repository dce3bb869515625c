package project

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/lint"
	"gpuard/internal/core/service"
	"gpuard/internal/core/visible"
	"gpuard/internal/text/yamltree"
)

// entry is a service while it is read.
type entry struct {
	*reader
	service.Service
	at map[string]lint.Place // of the keys that it has
}

func (r *reader) service(p yamltree.Pair) service.Service {
	e := &entry{reader: r, at: map[string]lint.Place{}}
	e.Service = service.Service{Name: p.Key.Text, Line: p.Key.At.Line, Column: p.Key.At.Column, Replicas: 1, WorkDir: r.folder, Restart: service.Never}
	if p.Value.Kind != yamltree.Map {
		r.wrong(p.Key.At, "service %s is not a map; write its keys indented below it, command first", e.Name)
		return e.Service
	}
	var later []yamltree.Pair // texts are tried as templates when the number of replicas is known
	for _, p := range r.entries(p.Value, "service "+e.Name) {
		key, known := find(r.keys.Service, p.Key.Text)
		switch {
		case !known:
			e.at[r.unknown(p.Key, r.keys.Service, e.of())] = p.Key.At
			continue
		case p.Value.Null:
			r.wrong(p.Key.At, "%s of service %s has no value%s", key.Name, e.Name, sample(key))
			e.at[key.Name] = p.Key.At
			continue
		}
		e.at[key.Name] = p.Key.At
		switch key.Name {
		case "each", "replicas":
			e.count(key, p)
		default:
			later = append(later, p)
		}
	}
	for _, p := range later {
		key, _ := find(r.keys.Service, p.Key.Text)
		if key.Flag != "" {
			e.flag(key, p)
		} else {
			e.key(key, p)
		}
	}
	e.together()
	return e.Service
}

func sample(k Key) string {
	if k.Sample == "" {
		return ""
	}
	return "; write for instance " + k.Name + ": " + k.Sample
}

func (e *entry) of() string { return " of service " + e.Name }

// count reads how many instances there are.
func (e *entry) count(key Key, p yamltree.Pair) {
	text, ok := e.text(p, e.of())
	if !ok {
		return
	}
	if key.Name == "each" {
		if e.Each = text == "gpu"; !e.Each {
			e.wrong(p.Value.At, "each%s is %q; write each: gpu, or replicas: N for a number of instances", e.of(), text)
		}
		return
	}
	n, err := strconv.Atoi(text)
	const most = 1000 // each has processes and a folder of its own
	if err != nil || n < 1 || n > most {
		e.wrong(p.Value.At, "replicas%s is %q; write a number from 1 to %d, or each: gpu for one on every GPU", e.of(), text, most)
		return
	}
	e.Replicas = n
}

// key reads a key that is no flag of gpuard run.
func (e *entry) key(key Key, p yamltree.Pair) {
	switch key.Name {
	case "command":
		e.Command, e.Split = e.command(p, e.of())
	case "env":
		e.Env = e.variables(p)
	case "env_file":
		for _, item := range e.list(p, e.of()) {
			e.EnvFiles = append(e.EnvFiles, e.path(item, p.Key.Text))
		}
	case "workdir":
		if text, ok := e.text(p, e.of()); ok {
			e.try(p.Value, text, p.Key.Text)
			e.WorkDir = e.path(node{text, p.Value.At}, p.Key.Text)
		}
	case "restart":
		if text, ok := e.text(p, e.of()); ok && e.oneOf(key, text, p.Value.At, e.of()) {
			e.Restart = service.Restart(text)
		}
	case "depends_on":
		e.depends(key, p)
	case "ready":
		e.Ready = e.ready(p)
	}
}

// path makes a path absolute. Only a shell knows ~.
func (e *entry) path(n node, key string) string {
	if n.text == "~" || strings.HasPrefix(n.text, "~/") {
		e.wrong(n.at, "%s%s begins with ~, which only a shell fills in; write the whole path", key, e.of())
	}
	if filepath.IsAbs(n.text) {
		return filepath.Clean(n.text)
	}
	return filepath.Join(e.folder, n.text)
}

// try finds fault with a template.
func (e *entry) try(n *yamltree.Node, text, key string) {
	if err := e.Try(text, false); err != nil {
		e.wrong(n.At, "%s%s: %v", key, e.of(), err)
	}
}

// command reads words, or one text that is cut into words.
func (e *entry) command(p yamltree.Pair, of string) (words []string, split bool) {
	if p.Value.Kind == yamltree.Scalar {
		if err := e.Try(p.Value.Text, true); err != nil {
			e.wrong(p.Value.At, "%s%s: %v", p.Key.Text, of, err)
		}
		return []string{p.Value.Text}, true
	}
	if p.Value.Kind != yamltree.List || len(p.Value.Items) == 0 {
		e.wrong(p.Value.At, "%s%s is not a command; write one text, or a list of words", p.Key.Text, of)
		return nil, false
	}
	for i, item := range p.Value.Items {
		if item.Kind != yamltree.Scalar || item.Null {
			e.wrong(item.At, "word %d of %s%s is not a text; write it in quotes", i+1, p.Key.Text, of)
			continue
		}
		e.try(item, item.Text, p.Key.Text)
		words = append(words, item.Text)
	}
	if len(words) > 0 && words[0] == "" {
		e.wrong(p.Value.Items[0].At, "%s%s begins with an empty word; write the program there", p.Key.Text, of)
	}
	return words, false
}

// variables reads env in both forms.
func (e *entry) variables(p yamltree.Pair) (out []service.Pair) {
	add := func(name string, value *yamltree.Node, text string, at lint.Place) {
		switch {
		case name == "" || strings.ContainsAny(name, "= \t\n\x00"):
			e.wrong(at, "env%s: %q is not the name of a variable", e.of(), name)
		case slices.Contains(visible.Variables(), name) && name != "CUDA_DEVICE_ORDER" && name != "DEV":
			e.wrong(at, "env%s sets %s, which gpuard writes itself; say which GPU with device", e.of(), name)
		case slices.ContainsFunc(out, func(v service.Pair) bool { return v.Name == name }):
			e.wrong(at, "env%s has %s twice; leave one of them out", e.of(), name)
		default:
			e.try(value, text, "env")
			out = append(out, service.Pair{Name: name, Value: text})
		}
	}
	switch p.Value.Kind {
	case yamltree.Map:
		for _, v := range e.entries(p.Value, "env"+e.of()) {
			switch {
			case v.Bare:
				e.wrong(v.Key.At, "env%s: in {} a comma begins the next variable, so %s is one without a value; put the value in front of it in quotes", e.of(), v.Key.Text)
			case v.Value.Null:
				e.wrong(v.Key.At, "env%s: %s has no value; write %[2]s: '' for an empty one, or leave it out for that of gpuard up", e.of(), v.Key.Text)
			case v.Value.Kind != yamltree.Scalar:
				e.wrong(v.Value.At, "env%s: the value of %s is not a text; write it in quotes", e.of(), v.Key.Text)
			default:
				add(v.Key.Text, v.Value, v.Value.Text, v.Key.At)
			}
		}
	case yamltree.List:
		for _, item := range p.Value.Items {
			name, value, given := strings.Cut(item.Text, "=")
			if item.Kind != yamltree.Scalar || !given {
				e.wrong(item.At, "env%s: %q is not a variable; write NAME=VALUE", e.of(), item.Text)
				continue
			}
			add(name, item, value, item.At)
		}
	default:
		e.wrong(p.Value.At, "env%s is not a map; write NAME: VALUE lines below it", e.of())
	}
	return out
}

// flag reads a key that is a flag of gpuard run.
func (e *entry) flag(key Key, p yamltree.Pair) {
	f := service.Flag{Name: key.Flag, Line: p.Value.At.Line, Column: p.Value.At.Column}
	yes := p.Value.Kind == yamltree.Scalar && p.Value.Plain && p.Value.Text == "true"
	no := p.Value.Kind == yamltree.Scalar && p.Value.Plain && p.Value.Text == "false"
	switch {
	case key.Kind == Switch && !yes && !no:
		e.wrong(p.Value.At, "%s%s is neither true nor false; write %s: true or %s: false", key.Name, e.of(), key.Name, key.Name)
		return
	case (key.Kind == Switch || key.Kind == Optional) && no:
		return
	case (key.Kind == Switch || key.Kind == Optional) && yes:
		e.Flags = append(e.Flags, f)
		return
	case key.Kind == List || key.Kind == Optional:
		var items []string
		for _, item := range e.list(p, e.of()) {
			items = append(items, item.text)
		}
		f.Value = strings.Join(items, ",")
	default:
		f.Value, _ = e.text(p, e.of())
	}
	if f.Value == "" {
		return
	}
	e.try(p.Value, f.Value, key.Name)
	if key.Name == "log" {
		f.Value = e.path(node{f.Value, p.Value.At}, key.Name)
	}
	if key.Kind == Number {
		if n, err := strconv.Atoi(f.Value); err != nil && !strings.Contains(f.Value, "{{") || err == nil && n < 0 {
			e.wrong(p.Value.At, "%s%s is %q; write a whole number, such as %[1]s: %[4]s", key.Name, e.of(), f.Value, key.Sample)
			return
		}
	}
	e.Flags = append(e.Flags, f)
}

// together finds keys that do not go with each other, and what is missing. What the flags say to each other is not known here.
func (e *entry) together() {
	if _, there := e.at["command"]; !there {
		e.wrong(lint.Place{Line: e.Line, Column: e.Column}, "service %s has no command; write for instance command: python serve.py", e.Name)
	}
	one, each := e.at["each"]
	if !each {
		return
	}
	for _, c := range []struct{ key, why string }{
		{"replicas", "each counts the GPUs"}, {"gpus", "each instance has one GPU"}, {"cpu", "each instance has a GPU"}, {"mig", "slices are not counted as GPUs"},
		{"drift", "each instance keeps its GPU"},
	} {
		if at, there := e.at[c.key]; there {
			if at.Line < one.Line {
				at = one
			}
			e.wrong(at, "service %s has each and %s: %s; leave one of them out", e.Name, c.key, c.why)
		}
	}
	for _, f := range e.Flags {
		if slices.Contains([]string{"device", "exclude", "model", "min-compute", "mem", "share"}, f.Name) && strings.Contains(f.Value, "{{") {
			e.wrong(lint.Place{Line: f.Line, Column: f.Column}, "%s%s is a template, and with each: gpu it says which GPUs there are instances for; write it out",
				strings.ReplaceAll(f.Name, "-", "_"), e.of())
		}
	}
}
