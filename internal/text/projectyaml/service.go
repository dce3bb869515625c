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

func (s *serviceReader) ofService() string { return " of service " + s.Name }

// readCount reads how many instances there are.
func (s *serviceReader) readCount(k yamltree.Entry) {
	text, ok := s.Text(k, s.ofService())
	if !ok {
		return
	}

	if k.Key.Name == "each" {
		s.Each = text == "gpu"
		if !s.Each {
			s.Wrong(k.Value.At, "each%s is %q; write each: gpu, or replicas: N for a number of instances", s.ofService(), text)
		}
		return
	}

	n, err := strconv.Atoi(text)

	// Each has processes and a folder of its own.
	const most = 1000
	if err != nil || n < 1 || n > most {
		s.Wrong(k.Value.At, "replicas%s is %q; write a number from 1 to %d, or each: gpu for one on every GPU", s.ofService(), text, most)
		return
	}

	s.Replicas = n
}

// readKey reads a key that is no flag of gpuard run.
func (s *serviceReader) readKey(k yamltree.Entry) {
	switch k.Key.Name {
	case "command":
		s.Command, s.Split = s.readCommand(k, s.ofService())
	case "env":
		s.Env = s.readVariables(k.Value)
	case "env_file":
		for _, item := range s.List(k, s.ofService()) {
			s.EnvFiles = append(s.EnvFiles, s.absolutePath(item, k.Key.Name))
		}
	case "workdir":
		if text, ok := s.Text(k, s.ofService()); ok {
			s.checkTemplate(k.Value, text, k.Key.Name)
			s.WorkDir = s.absolutePath(yamltree.Item{Text: text, At: k.Value.At}, k.Key.Name)
		}
	case "image":
		if text, ok := s.Text(k, s.ofService()); ok {
			s.checkTemplate(k.Value, text, k.Key.Name)
			s.Image = text
		}
	case "engine":
		if text, ok := s.Text(k, s.ofService()); ok && s.CheckOneOf(k.Key, text, k.Value.At, s.ofService()) {
			s.Engine = text
		}
	case "restart":
		s.readRestart(k)
	case "depends_on":
		s.readDependsOn(k)
	case "ready":
		s.Ready = s.readReady(k)
	case "healthy":
		s.Healthy = s.readHealthy(k)
	}
}

// readRestart reads a word, with a number behind a colon for the limit.
func (s *serviceReader) readRestart(k yamltree.Entry) {
	text, ok := s.Text(k, s.ofService())
	word, limit, limited := strings.Cut(text, ":")
	if !ok || !s.CheckOneOf(k.Key, word, k.Value.At, s.ofService()) {
		return
	}

	s.Restart = service.Restart(word)
	if !limited {
		return
	}

	var err error
	s.Limit, err = strconv.Atoi(limit)
	if err != nil || s.Limit < 1 || s.Restart == service.Never {
		s.Wrong(k.Value.At, "restart%s is %q; write on-failure:5 or always:5 for at most 5 restarts in a row", s.ofService(), text)
	}
}

// absolutePath makes a path absolute. Only a shell knows ~.
func (s *serviceReader) absolutePath(n yamltree.Item, key string) string {
	if n.Text == "~" || strings.HasPrefix(n.Text, "~/") {
		s.Wrong(n.At, "%s%s begins with ~, which only a shell fills in; write the whole path", key, s.ofService())
	}
	if filepath.IsAbs(n.Text) {
		return filepath.Clean(n.Text)
	}
	return filepath.Join(s.folder, n.Text)
}

// checkTemplate finds fault with a template.
func (s *serviceReader) checkTemplate(n *yamltree.Node, text, key string) {
	if err := s.TryTemplate(text, false); err != nil {
		s.Wrong(n.At, "%s%s: %v", key, s.ofService(), err)
	}
}

// readCommand reads words, or one text that is cut into words.
func (s *serviceReader) readCommand(k yamltree.Entry, of string) (words []string, split bool) {
	if k.Value.Kind == yamltree.Scalar {
		if err := s.TryTemplate(k.Value.Text, true); err != nil {
			s.Wrong(k.Value.At, "%s%s: %v", k.Key.Name, of, err)
		}
		return []string{k.Value.Text}, true
	}

	if k.Value.Kind != yamltree.List || len(k.Value.Items) == 0 {
		s.Wrong(k.Value.At, "%s%s is not a command; write one text, or a list of words", k.Key.Name, of)
		return nil, false
	}

	for i, item := range k.Value.Items {
		if item.Kind != yamltree.Scalar || item.Null {
			s.Wrong(item.At, "word %d of %s%s is not a text; write it in quotes", i+1, k.Key.Name, of)
			continue
		}
		s.checkTemplate(item, item.Text, k.Key.Name)
		words = append(words, item.Text)
	}

	if len(words) > 0 && words[0] == "" {
		s.Wrong(k.Value.Items[0].At, "%s%s begins with an empty word; write the program there", k.Key.Name, of)
	}

	return words, false
}

// readVariables reads env in both forms.
func (s *serviceReader) readVariables(n *yamltree.Node) (out []service.Pair) {
	add := func(name string, value *yamltree.Node, text string, at source.Place) {
		switch {
		case name == "" || strings.ContainsAny(name, "= \t\n\x00"):
			s.Wrong(at, "env%s: %q is not the name of a variable", s.ofService(), name)
		case slices.Contains(visible.Variables(), name) && name != "CUDA_DEVICE_ORDER" && name != "DEV":
			say := "say which GPU with device"
			if text != "" && strings.Trim(text, "0123456789,") == "" {
				say = "write device: [" + text + "]"
			}
			s.Wrong(at, "env%s sets %s, which gpuard writes itself; %s", s.ofService(), name, say)
		case slices.ContainsFunc(out, func(v service.Pair) bool { return v.Name == name }):
			s.Wrong(at, "env%s has %s twice; leave one of them out", s.ofService(), name)
		default:
			s.checkTemplate(value, text, "env")
			out = append(out, service.Pair{Name: name, Value: text})
		}
	}
	switch n.Kind {
	case yamltree.Map:
		for _, v := range s.UniqueEntries(n, "env"+s.ofService()) {
			switch {
			case v.Bare:
				s.Wrong(v.Key.At, "env%s: in {} a comma begins the next variable, so %s is one without a value; put the value in front of it in quotes", s.ofService(), v.Key.Text)
			case v.Value.Null:
				s.Wrong(v.Key.At, "env%s: %s has no value; write %[2]s: '' for an empty one, or leave it out for that of gpuard up", s.ofService(), v.Key.Text)
			case v.Value.Kind != yamltree.Scalar:
				s.Wrong(v.Value.At, "env%s: the value of %s is not a text; write it in quotes", s.ofService(), v.Key.Text)
			default:
				add(v.Key.Text, v.Value, v.Value.Text, v.Key.At)
			}
		}
	case yamltree.List:
		for _, item := range n.Items {
			name, value, given := strings.Cut(item.Text, "=")
			if item.Kind != yamltree.Scalar || !given {
				s.Wrong(item.At, "env%s: %q is not a variable; write NAME=VALUE", s.ofService(), item.Text)
				continue
			}
			add(name, item, value, item.At)
		}
	default:
		s.Wrong(n.At, "env%s is not a map; write NAME: VALUE lines below it", s.ofService())
	}
	return out
}

// readFlag reads a key that is a flag of gpuard run.
func (s *serviceReader) readFlag(k yamltree.Entry) {
	value, set := s.ReadSetting(k, s.ofService())
	if !set {
		return
	}

	s.checkTemplate(k.Value, value, k.Key.Name)
	if k.Key.Name == "log" {
		value = s.absolutePath(yamltree.Item{Text: value, At: k.Value.At}, k.Key.Name)
	}

	if k.Key.Takes == yamltree.Number {
		if n, err := strconv.Atoi(value); err != nil && !strings.Contains(value, "{{") || err == nil && n < 0 {
			s.Wrong(k.Value.At, "%s%s is %q; write a whole number, such as %[1]s: %[4]s", k.Key.Name, s.ofService(), value, k.Key.Sample)
			return
		}
	}

	s.Flags = append(s.Flags, service.Flag{Name: k.Key.Flag, Value: value, Line: k.Value.At.Line, Column: k.Value.At.Column})
}

// checkCombination finds keys that do not go with each other, and what is missing. What the flags say to each other is not
// known here.
func (s *serviceReader) checkCombination() {
	if _, there := s.at["command"]; !there {
		s.Wrong(source.Place{Line: s.Line, Column: s.Column}, "service %s has no command; write for instance command: python serve.py", s.Name)
	}

	one, each := s.at["each"]
	if !each {
		return
	}

	for _, c := range []struct{ key, why string }{
		{"replicas", "each counts the GPUs"}, {"gpus", "each instance has one GPU"}, {"cpu", "each instance has a GPU"}, {"mig", "slices are not counted as GPUs"},
		{"drift", "each instance keeps its GPU"},
	} {
		if at, there := s.at[c.key]; there {
			if at.Line < one.Line {
				at = one
			}
			s.Wrong(at, "service %s has each and %s: %s; leave one of them out", s.Name, c.key, c.why)
		}
	}

	for _, f := range s.Flags {
		if slices.Contains([]string{"device", "exclude", "model", "min-compute", "mem", "share"}, f.Name) && strings.Contains(f.Value, "{{") {
			s.Wrong(source.Place{Line: f.Line, Column: f.Column}, "%s%s is a template, and with each: gpu it says which GPUs there are instances for; write it out",
				strings.ReplaceAll(f.Name, "-", "_"), s.ofService())
		}
	}
}
