package projectyaml

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/prose"
	"gpuard/internal/core/service"
	"gpuard/internal/core/source"
	"gpuard/internal/core/suggest"
	"gpuard/internal/text/yamltree"
)

// readDependsOn reads the services that come first: a list, or a map with a condition for each.
func (s *serviceReader) readDependsOn(k yamltree.Entry) {
	add := func(name string, until service.Condition, at source.Place) {
		if slices.ContainsFunc(s.After, func(d service.Dependency) bool { return d.Service == name }) {
			s.Wrong(at, "depends_on%s names %s twice; leave one of them out", s.ofService(), name)
			return
		}
		s.After = append(s.After, service.Dependency{Service: name, Until: until})
		s.needs = append(s.needs, need{of: s.Name, on: name, until: until, at: at})
	}
	if k.Value.Kind != yamltree.Map {
		for _, n := range s.List(k, s.ofService()) {
			add(n.Text, service.UntilReady, n.At)
		}
		return
	}

	for _, d := range s.UniqueEntries(k.Value, "depends_on"+s.ofService()) {
		switch {
		case d.Value.Kind != yamltree.Scalar:
			s.Wrong(d.Key.At, "depends_on%s: the condition of %s is not one word; write %[2]s: ready or %[2]s: done", s.ofService(), d.Key.Text)
		case d.Value.Null:
			add(d.Key.Text, service.UntilReady, d.Key.At)
		case s.CheckOneOf(k.Key, d.Value.Text, d.Value.At, s.ofService()):
			add(d.Key.Text, service.Condition(d.Value.Text), d.Key.At)
		}
	}
}

// checkDependencies finds those on nothing, those that can never be met, and rings.
func (r *reader) checkDependencies() {
	names := prose.Texts(r.project.Services, func(s service.Service) string { return s.Name })
	for _, n := range r.needs {
		i := slices.Index(names, n.on)
		switch {
		case i < 0:
			text := fmt.Sprintf("unknown service %q in depends_on of service %s", n.on, n.of)
			if meant := suggest.ClosestWord(n.on, names); meant != "" && meant != n.of {
				text += "; did you mean " + meant + "?"
			}
			r.Wrong(n.at, "%s", text)
		case n.until == service.UntilDone && r.project.Services[i].Restart == service.Always:
			r.Wrong(n.at, "service %s waits until %s is done, which restart: always never lets it be", n.of, n.on)
		case r.project.Services[i].HasOtherEngine() && !r.project.Services[slices.Index(names, n.of)].HasOtherEngine():
			r.Wrong(n.at, "service %s depends on %s, which this machine never starts: its engine is %s", n.of, n.on, r.project.Services[i].Engine)
		}
	}
	r.reportRings()
}

// reportRings reports each cycle of dependencies once, at its first service in the file.
func (r *reader) reportRings() {
	done := map[string]bool{}
	var path []string
	var visit func(name string)
	visit = func(name string) {
		if i := slices.Index(path, name); i >= 0 {
			ring := append(slices.Clone(path[i:]), name)
			at := r.needs[slices.IndexFunc(r.needs, func(n need) bool { return n.of == path[len(path)-1] && n.on == name })].at
			if len(ring) == 2 {
				r.Wrong(at, "service %s depends on itself", name)
			} else {
				r.Wrong(at, "these services wait for each other: %s; leave one depends_on out", strings.Join(ring, " → "))
			}

			return
		}

		if done[name] {
			return
		}

		path = append(path, name)

		for _, n := range r.needs {
			if n.of == name {
				visit(n.on)
			}
		}

		path = path[:len(path)-1]
		done[name] = true
	}

	for _, s := range r.project.Services {
		visit(s.Name)
	}
}

// checkNames finds instances that would be called alike: those of node with two replicas, and a service node-1.
func (r *reader) checkNames() {
	counted := regexp.MustCompile(`^(.+)-(0|[1-9][0-9]{0,3})$`)
	for _, other := range r.project.Services {
		m := counted.FindStringSubmatch(other.Name)
		if m == nil {
			continue
		}
		i := slices.IndexFunc(r.project.Services, func(s service.Service) bool { return s.Name == m[1] })
		if n, err := strconv.Atoi(m[2]); i >= 0 && err == nil && (r.project.Services[i].Each || r.project.Services[i].Replicas > max(1, n)) {
			r.Wrong(source.Place{Line: other.Line, Column: other.Column}, "service %s has the name of an instance of service %s; name it otherwise", other.Name, m[1])
		}
	}
}

// readReady reads how an instance shows that it can be used.
func (s *serviceReader) readReady(k yamltree.Entry) *service.Ready {
	out := &service.Ready{}
	s.readCheck(k, s.keys.Ready, &out.Probe, func(r yamltree.Entry, of string) (probe bool) {
		switch r.Key.Name {
		case "interval":
			out.Interval, _ = s.Duration(r, of)
		case "timeout":
			out.Timeout, _ = s.Duration(r, of)
		case "log":
			out.Log = s.readPattern(r, of)
			return true
		}
		return false
	})
	return out
}

// readHealthy reads how an instance shows that it still works.
func (s *serviceReader) readHealthy(k yamltree.Entry) *service.Healthy {
	out := &service.Healthy{}
	s.readCheck(k, s.keys.Healthy, &out.Probe, func(r yamltree.Entry, of string) (probe bool) {
		switch r.Key.Name {
		case "interval":
			out.Interval, _ = s.Duration(r, of)
		case "timeout":
			out.Timeout, _ = s.Duration(r, of)
		case "failures":
			text, ok := s.Text(r, of)
			var err error
			out.Failures, err = strconv.Atoi(text)
			if ok && (err != nil || out.Failures < 1) {
				s.Wrong(r.Value.At, "failures%s is %q; write a whole number, such as failures: 3", of, text)
			}
		}
		return false
	})
	return out
}

// readCheck reads the keys of ready or healthy; other reads those that are not of the probe, and reports whether one says how
// to check.
func (s *serviceReader) readCheck(k yamltree.Entry, keys []yamltree.Key, out *service.Probe, other func(r yamltree.Entry, of string) bool) {
	name := k.Key.Name
	if k.Value.Kind != yamltree.Map {
		s.Wrong(k.Value.At, "%s%s is not a map; write for instance %[1]s: %[3]s", name, s.ofService(), k.Key.Sample)
		return
	}

	var kinds, ways []string

	for _, key := range keys {
		if key.Takes != yamltree.Time && key.Takes != yamltree.Number {
			ways = append(ways, key.Name)
		}
	}

	of := " of " + name + s.ofService()
	for _, r := range s.KnownEntries(k.Value, keys, name+s.ofService(), of, func(key *yamltree.Node) { s.reportUnknown(key, keys, of) }) {
		switch r.Key.Name {
		case "command":
			out.Command, out.Split = s.readCommand(r, of)
		case "tcp", "http":
			s.readProbe(r, of, out)
		default:
			if !other(r, of) {
				continue
			}
		}
		kinds = append(kinds, r.Key.Name)
	}

	switch {
	case len(kinds) > 1:
		s.Wrong(k.At, "%s%s asks in %d ways: %s; leave one of them", name, s.ofService(), len(kinds), strings.Join(kinds, " and "))
	case len(kinds) == 0:
		s.Wrong(k.At, "%s%s does not say how: write %s below it", name, s.ofService(), prose.JoinWords(ways, "or"))
	}
}

// readPattern reads a regular expression.
func (s *serviceReader) readPattern(k yamltree.Entry, of string) string {
	text, ok := s.readTemplate(k, of)
	if _, err := regexp.Compile(text); ok && !strings.Contains(text, "{{") && err != nil {
		s.Wrong(k.Value.At, "log%s is not a regular expression: %v", of, err)
	}
	return text
}

// readTemplate reads a text that is filled in for each instance.
func (s *serviceReader) readTemplate(k yamltree.Entry, of string) (text string, ok bool) {
	text, ok = s.Text(k, of)
	if !ok {
		return "", false
	}
	if err := s.TryTemplate(text, false); err != nil {
		s.Wrong(k.Value.At, "%s%s: %v", k.Key.Name, of, err)
	}

	return text, true
}

func (s *serviceReader) readProbe(k yamltree.Entry, of string, out *service.Probe) {
	text, ok := s.readTemplate(k, of)
	if !ok {
		return
	}
	plain := !strings.Contains(text, "{{")
	switch k.Key.Name {
	case "tcp":
		out.TCP = text
		if plain && (!regexp.MustCompile(`^(.+:)?[0-9]{1,5}$`).MatchString(text) || !isPort(text[strings.LastIndex(text, ":")+1:])) {
			s.Wrong(k.Value.At, "tcp%s is %q; write a port such as 8001, or host:8001", of, text)
		}
	case "http":
		out.HTTP = text
		port, _, _ := strings.Cut(text, "/")
		if plain && !isPort(port) && !regexp.MustCompile(`^http://.+$`).MatchString(text) {
			s.Wrong(k.Value.At, "http%s is %q; write http://127.0.0.1:8000/health, or 8000/health for this machine", of, text)
		}
	}
}

// isPort reports whether text is the number of a port that a program can listen at.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}
