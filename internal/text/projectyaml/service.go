package projectyaml

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/service"
	"gpuard/internal/core/source"
	"gpuard/internal/core/visible"
	"gpuard/internal/text/yamltree"
)

// serviceReader is a service while it is read.
type serviceReader struct {
	*reader
	service.Service
	// The places of the keys that it has.
	at map[string]source.Place
}

func (r *reader) readService(p yamltree.Pair) service.Service {
	e := &serviceReader{reader: r, at: map[string]source.Place{}}
	e.Service = service.Service{Name: p.Key.Text, Line: p.Key.At.Line, Column: p.Key.At.Column, Replicas: 1, WorkDir: r.folder, Restart: service.Never}
	if p.Value.Kind != yamltree.Map {
		r.Wrong(p.Key.At, "service %s is not a map; write its keys indented below it, command first", e.Name)
		return e.Service
	}

	for _, p := range p.Value.Pairs {
		e.at[p.Key.Text] = p.Key.At
	}

	all := r.KnownEntries(p.Value, r.keys.Service, "service "+e.Name, e.ofService(), func(key *yamltree.Node) {
		e.at[r.reportUnknown(key, r.keys.Service, e.ofService())] = key.At
	})

	counts := func(k yamltree.Entry) bool { return k.Key.Name == "each" || k.Key.Name == "replicas" }
	for _, k := range all {
		if counts(k) {
			e.readCount(k)
		}
	}

	for _, k := range all {
		// Texts are tried as templates when the number of replicas is known.
		switch {
		case counts(k):
		case k.Key.Flag != "":
			e.readFlag(k)
		default:
			e.readKey(k)
		}
	}

	e.checkCombination()

	return e.Service
}

func (e *serviceReader) ofService() string { return " of service " + e.Name }

// readCount reads how many instances there are.
func (e *serviceReader) readCount(k yamltree.Entry) {
	text, ok := e.Text(k, e.ofService())
	if !ok {
		return
	}

	if k.Key.Name == "each" {
		e.Each = text == "gpu"
		if !e.Each {
			e.Wrong(k.Value.At, "each%s is %q; write each: gpu, or replicas: N for a number of instances", e.ofService(), text)
		}
		return
	}

	n, err := strconv.Atoi(text)

	// Each has processes and a folder of its own.
	const most = 1000
	if err != nil || n < 1 || n > most {
		e.Wrong(k.Value.At, "replicas%s is %q; write a number from 1 to %d, or each: gpu for one on every GPU", e.ofService(), text, most)
		return
	}

	e.Replicas = n
}

// readKey reads a key that is no flag of gpuard run.
func (e *serviceReader) readKey(k yamltree.Entry) {
	switch k.Key.Name {
	case "command":
		e.Command, e.Split = e.readCommand(k, e.ofService())
	case "env":
		e.Env = e.readVariables(k.Value)
	case "env_file":
		for _, item := range e.List(k, e.ofService()) {
			e.EnvFiles = append(e.EnvFiles, e.absolutePath(item, k.Key.Name))
		}
	case "workdir":
		if text, ok := e.Text(k, e.ofService()); ok {
			e.checkTemplate(k.Value, text, k.Key.Name)
			e.WorkDir = e.absolutePath(yamltree.Item{Text: text, At: k.Value.At}, k.Key.Name)
		}
	case "image":
		if text, ok := e.Text(k, e.ofService()); ok {
			e.checkTemplate(k.Value, text, k.Key.Name)
			e.Image = text
		}
	case "engine":
		if text, ok := e.Text(k, e.ofService()); ok && e.CheckOneOf(k.Key, text, k.Value.At, e.ofService()) {
			e.Engine = text
		}
	case "restart":
		e.readRestart(k)
	case "depends_on":
		e.readDependsOn(k)
	case "ready":
		e.Ready = e.readReady(k)
	case "healthy":
		e.Healthy = e.readHealthy(k)
	}
}

// readRestart reads a word, with a number behind a colon for the limit.
func (e *serviceReader) readRestart(k yamltree.Entry) {
	text, ok := e.Text(k, e.ofService())
	word, limit, limited := strings.Cut(text, ":")
	if !ok || !e.CheckOneOf(k.Key, word, k.Value.At, e.ofService()) {
		return
	}

	e.Restart = service.Restart(word)
	if !limited {
		return
	}

	var err error
	e.Limit, err = strconv.Atoi(limit)
	if err != nil || e.Limit < 1 || e.Restart == service.Never {
		e.Wrong(k.Value.At, "restart%s is %q; write on-failure:5 or always:5 for at most 5 restarts in a row", e.ofService(), text)
	}
}

// absolutePath makes a path absolute. Only a shell knows ~.
func (e *serviceReader) absolutePath(n yamltree.Item, key string) string {
	if n.Text == "~" || strings.HasPrefix(n.Text, "~/") {
		e.Wrong(n.At, "%s%s begins with ~, which only a shell fills in; write the whole path", key, e.ofService())
	}
	if filepath.IsAbs(n.Text) {
		return filepath.Clean(n.Text)
	}
	return filepath.Join(e.folder, n.Text)
}

// checkTemplate finds fault with a template.
func (e *serviceReader) checkTemplate(n *yamltree.Node, text, key string) {
	if err := e.TryTemplate(text, false); err != nil {
		e.Wrong(n.At, "%s%s: %v", key, e.ofService(), err)
	}
}

// readCommand reads words, or one text that is cut into words.
func (e *serviceReader) readCommand(k yamltree.Entry, of string) (words []string, split bool) {
	if k.Value.Kind == yamltree.Scalar {
		if err := e.TryTemplate(k.Value.Text, true); err != nil {
			e.Wrong(k.Value.At, "%s%s: %v", k.Key.Name, of, err)
		}
		return []string{k.Value.Text}, true
	}

	if k.Value.Kind != yamltree.List || len(k.Value.Items) == 0 {
		e.Wrong(k.Value.At, "%s%s is not a command; write one text, or a list of words", k.Key.Name, of)
		return nil, false
	}

	for i, item := range k.Value.Items {
		if item.Kind != yamltree.Scalar || item.Null {
			e.Wrong(item.At, "word %d of %s%s is not a text; write it in quotes", i+1, k.Key.Name, of)
			continue
		}
		e.checkTemplate(item, item.Text, k.Key.Name)
		words = append(words, item.Text)
	}

	if len(words) > 0 && words[0] == "" {
		e.Wrong(k.Value.Items[0].At, "%s%s begins with an empty word; write the program there", k.Key.Name, of)
	}

	return words, false
}

// readVariables reads env in both forms.
func (e *serviceReader) readVariables(n *yamltree.Node) (out []service.Pair) {
	add := func(name string, value *yamltree.Node, text string, at source.Place) {
		switch {
		case name == "" || strings.ContainsAny(name, "= \t\n\x00"):
			e.Wrong(at, "env%s: %q is not the name of a variable", e.ofService(), name)
		case slices.Contains(visible.Variables(), name) && name != "CUDA_DEVICE_ORDER" && name != "DEV":
			say := "say which GPU with device"
			if text != "" && strings.Trim(text, "0123456789,") == "" {
				say = "write device: [" + text + "]"
			}
			e.Wrong(at, "env%s sets %s, which gpuard writes itself; %s", e.ofService(), name, say)
		case slices.ContainsFunc(out, func(v service.Pair) bool { return v.Name == name }):
			e.Wrong(at, "env%s has %s twice; leave one of them out", e.ofService(), name)
		default:
			e.checkTemplate(value, text, "env")
			out = append(out, service.Pair{Name: name, Value: text})
		}
	}
	switch n.Kind {
	case yamltree.Map:
		for _, v := range e.UniqueEntries(n, "env"+e.ofService()) {
			switch {
			case v.Bare:
				e.Wrong(v.Key.At, "env%s: in {} a comma begins the next variable, so %s is one without a value; put the value in front of it in quotes", e.ofService(), v.Key.Text)
			case v.Value.Null:
				e.Wrong(v.Key.At, "env%s: %s has no value; write %[2]s: '' for an empty one, or leave it out for that of gpuard up", e.ofService(), v.Key.Text)
			case v.Value.Kind != yamltree.Scalar:
				e.Wrong(v.Value.At, "env%s: the value of %s is not a text; write it in quotes", e.ofService(), v.Key.Text)
			default:
				add(v.Key.Text, v.Value, v.Value.Text, v.Key.At)
			}
		}
	case yamltree.List:
		for _, item := range n.Items {
			name, value, given := strings.Cut(item.Text, "=")
			if item.Kind != yamltree.Scalar || !given {
				e.Wrong(item.At, "env%s: %q is not a variable; write NAME=VALUE", e.ofService(), item.Text)
				continue
			}
			add(name, item, value, item.At)
		}
	default:
		e.Wrong(n.At, "env%s is not a map; write NAME: VALUE lines below it", e.ofService())
	}
	return out
}

// readFlag reads a key that is a flag of gpuard run.
func (e *serviceReader) readFlag(k yamltree.Entry) {
	value, set := e.ReadSetting(k, e.ofService())
	if !set {
		return
	}

	e.checkTemplate(k.Value, value, k.Key.Name)
	if k.Key.Name == "log" {
		value = e.absolutePath(yamltree.Item{Text: value, At: k.Value.At}, k.Key.Name)
	}

	if k.Key.Takes == yamltree.Number {
		if n, err := strconv.Atoi(value); err != nil && !strings.Contains(value, "{{") || err == nil && n < 0 {
			e.Wrong(k.Value.At, "%s%s is %q; write a whole number, such as %[1]s: %[4]s", k.Key.Name, e.ofService(), value, k.Key.Sample)
			return
		}
	}

	e.Flags = append(e.Flags, service.Flag{Name: k.Key.Flag, Value: value, Line: k.Value.At.Line, Column: k.Value.At.Column})
}

// checkCombination finds keys that do not go with each other, and what is missing. What the flags say to each other is not
// known here.
func (e *serviceReader) checkCombination() {
	if _, there := e.at["command"]; !there {
		e.Wrong(source.Place{Line: e.Line, Column: e.Column}, "service %s has no command; write for instance command: python serve.py", e.Name)
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
			e.Wrong(at, "service %s has each and %s: %s; leave one of them out", e.Name, c.key, c.why)
		}
	}

	for _, f := range e.Flags {
		if slices.Contains([]string{"device", "exclude", "model", "min-compute", "mem", "share"}, f.Name) && strings.Contains(f.Value, "{{") {
			e.Wrong(source.Place{Line: f.Line, Column: f.Column}, "%s%s is a template, and with each: gpu it says which GPUs there are instances for; write it out",
				strings.ReplaceAll(f.Name, "-", "_"), e.ofService())
		}
	}
}
