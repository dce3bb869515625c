package service

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gpuard/internal/core/diagnostic"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/option"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/policy"
)

// Ground is the machine and the settings with which a project is expanded.
type Ground struct {
	Machine gpu.Machine
	// Limits of this caller: Hidden, Parent.
	In pick.Context
	// The placement of the last expansion.
	Placement Placement
	// Content of each of EnvFiles.
	Files map[string][]Pair
	// The defaults for flags that a service does not set.
	Defaults []policy.Default
}

// Expand makes the instances of a project, dependencies first, otherwise in the order of the file, and the placement to
// record. Each instance has its Hash. The error is a *diagnostic.Many: a template that cannot be filled in, or a flag
// that cannot be read.
func Expand(p *Project, on Ground) ([]Instance, Placement, error) {
	out, kept := []Instance{}, Placement{}
	wrong := &diagnostic.Many{File: p.File}
	for _, s := range orderByDependency(p.Services) {
		places, unplaced := s.placeInstances(on, kept)
		if unplaced != nil {
			wrong.List = append(wrong.List, *unplaced)
		}

		for _, at := range places {
			i, err := s.newInstance(p, at, len(places), on.Files)
			if err != nil {
				wrong.List = append(wrong.List, diagnostic.One{Line: s.Line, Column: s.Column, Text: fmt.Sprintf("service %s: %v", s.Name, err)})
				break
			}
			out = append(out, i)
		}
	}

	if len(wrong.List) > 0 {
		return nil, nil, wrong
	}

	return out, kept, nil
}

// placeInstances places the instances of a service; the placement to record is added to kept.
func (s *Service) placeInstances(on Ground, kept Placement) ([]place, *diagnostic.One) {
	places := []place{}
	if !s.Each {
		for n := range s.Replicas {
			places = append(places, place{ordinal: n})
		}
		return places, nil
	}

	places, remember, wrong := s.assignPlaces(on)
	if len(remember) > 0 {
		kept[s.Name] = remember
	}

	return places, wrong
}

// orderByDependency sorts services after their dependencies.
func orderByDependency(services []Service) []Service {
	var out []Service
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		i := slices.IndexFunc(services, func(s Service) bool { return s.Name == name })
		if i < 0 || seen[name] {
			return
		}

		seen[name] = true

		for _, d := range services[i].After {
			visit(d.Service)
		}

		out = append(out, services[i])
	}

	for _, s := range services {
		visit(s.Name)
	}

	return out
}

// InstanceName is the name of the instance with an ordinal; a single instance has the name of its service.
func (s *Service) InstanceName(ordinal int) string {
	if !s.Each && s.Replicas == 1 {
		return s.Name
	}
	return fmt.Sprintf("%s-%d", s.Name, ordinal)
}

// newInstance fills in the templates of a service for one place.
func (s *Service) newInstance(p *Project, at place, count int, files map[string][]Pair) (Instance, error) {
	f := filler{terms: terms{Ordinal: at.ordinal, Replicas: count, Service: s.Name, Project: p.Name}}
	i := Instance{Name: s.InstanceName(at.ordinal), Service: s.Name, Ordinal: at.ordinal, Restart: s.Restart, Device: at.device, Refused: at.refused, Policy: p.Policy}
	i.Command = f.fillCommand(s.Command, s.Split)
	i.Flags = s.runFlags(at.device, &f)
	i.Env = s.sortedEnv(files, &f)
	i.WorkDir = f.fillText(s.WorkDir)
	i.Image = f.fillText(s.Image)
	i.After = append([]Dependency{}, s.After...)
	i.Limit = s.Limit
	if s.Healthy != nil {
		h := s.Healthy.withDefaults()
		h.Probe = f.fillProbe(h.Probe)
		i.Healthy, i.Ready = &h, &Ready{Probe: h.Probe}
	}

	if s.Ready != nil {
		r := *s.Ready
		r.Probe, r.Log = f.fillProbe(r.Probe), f.fillText(r.Log)
		i.Ready = &r
	}

	return i.WithRound(0), f.err
}

// probeURL writes PORT/PATH as the URL of this machine.
func probeURL(text string) string {
	if regexp.MustCompile(`^\d+(/|$)`).MatchString(text) {
		return "http://127.0.0.1:" + text
	}
	return text
}

// filler fills in templates and keeps the first error.
type filler struct {
	terms terms
	err   error
}

func (f *filler) fillText(text string) string {
	out, err := fillTemplate(text, f.terms)
	if f.err == nil {
		f.err = err
	}
	return out
}

func (f *filler) fillCommand(list []string, split bool) []string {
	out := []string{}
	for _, text := range list {
		out = append(out, f.fillText(text))
	}

	if !split || f.err != nil {
		return out
	}

	out, f.err = splitWords(strings.Join(out, " "))

	return out
}

func (f *filler) fillProbe(p Probe) Probe {
	out := Probe{TCP: f.fillText(p.TCP), HTTP: probeURL(f.fillText(p.HTTP))}
	if len(p.Command) > 0 {
		out.Command = f.fillCommand(p.Command, p.Split)
	}
	return out
}

// runFlags keeps the order of the file, so that an error of a flag can be reported at its key.
func (s *Service) runFlags(device gpu.UUID, f *filler) []string {
	out := []string{}
	for _, flag := range s.Flags {
		switch {
		case flag.Name == "device" && device != "":
			out = append(out, option.Expand("{device}=")+string(device))
		case flag.Value == "":
			out = append(out, "--"+flag.Name)
		default:
			out = append(out, "--"+flag.Name+"="+f.fillText(flag.Value))
		}
	}
	if device != "" && !s.isPinned() {
		out = append(out, option.Expand("{device}=")+string(device))
	}

	return out
}

// sortedEnv is sorted, so that a new order of variables in the file does not restart instances. Of a name that is there
// twice the last one counts, and env overrides env_file.
func (s *Service) sortedEnv(files map[string][]Pair, f *filler) []string {
	values := map[string]string{}
	for _, path := range s.EnvFiles {
		for _, v := range files[path] {
			values[v.Name] = v.Value
		}
	}

	for _, v := range s.Env {
		values[v.Name] = f.fillText(v.Value)
	}

	out := []string{}
	for name, value := range values {
		out = append(out, name+"="+value)
	}

	slices.Sort(out)

	return out
}

// WithRound is the instance with another round, and so another Hash: it is started again without any other change. A
// caller that wants to restart an instance that has ended or is ending must use this.
func (i Instance) WithRound(n int) Instance {
	i.Round = n
	of := i
	of.Hash, of.Refused, of.Policy, of.Image = "", "", nil, ""
	of.Flags = slices.Sorted(slices.Values(i.Flags))
	if i.Device != "" {
		// The GPU is chosen already, so the flags that choose GPUs do not change the hash.
		of.Flags = slices.DeleteFunc(of.Flags, choosesGPU)
	}

	if i.Policy != nil {
		var filled []string
		for _, d := range i.Policy.Defaults {
			filled = append(filled, "default "+d.Flag+"="+d.Value)
		}
		of.Flags = append(of.Flags, slices.Sorted(slices.Values(filled))...)
	}

	of.After = slices.SortedFunc(slices.Values(i.After), func(a, b Dependency) int { return cmp.Compare(a.Service, b.Service) })

	// Strings and numbers can always be encoded.
	text, _ := json.Marshal(of)
	sum := sha256.Sum256(text)
	i.Hash = hex.EncodeToString(sum[:8])

	return i
}

func choosesGPU(flag string) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
	return name == "exclude" || name == "model" || name == "min-compute"
}

// TryTemplate reports why Expand could not fill in a text or, with split, not split it into words.
func (s *Service) TryTemplate(text string, split bool) error {
	for _, ordinal := range []int{0, max(1, s.Replicas) - 1} {
		f := filler{terms: terms{Ordinal: ordinal, Replicas: max(1, s.Replicas), Service: s.Name}}
		f.fillCommand([]string{text}, split)
		if f.err != nil {
			return f.err
		}
	}
	return nil
}
