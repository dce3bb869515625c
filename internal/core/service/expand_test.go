package service

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/pick"
)

func invent(t *testing.T, what string) gpu.Machine {
	t.Helper()
	m, err := gpu.InventMachine(what)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func node(flags ...Flag) *Project {
	return &Project{Name: "exo", File: "/p/gpuard.yaml", Services: []Service{{
		Name: "node", Line: 2, Column: 3, Each: true, Replicas: 1, Split: true, Command: []string{"exo --port={{add 8001 .Ordinal}}"}, Flags: flags, WorkDir: "/p",
	}}}
}

// shown is each instance with the number of its GPU: "node-0:0", "node-1!" when it is refused.
func shown(list []Instance, m gpu.Machine) string {
	var out []string
	for _, i := range list {
		text := i.Name
		if n := slices.IndexFunc(m.Devices, func(d gpu.Device) bool { return d.UUID == i.Device }); n >= 0 {
			text += fmt.Sprint(":", n)
		}
		if i.Refused != "" {
			text += "!"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func expanded(t *testing.T, p *Project, on Ground) ([]Instance, Placement) {
	t.Helper()
	list, kept, err := Expand(p, on)
	if err != nil {
		t.Fatal(err)
	}
	return list, kept
}

// TestEach: the GPUs on which a service with each: gpu has instances.
func TestEach(t *testing.T) {
	four, mixed := invent(t, "demo:4xA100-80GB"), invent(t, "demo:2xA100-80GB+2xL4")
	for _, c := range []struct {
		m    gpu.Machine
		in   pick.Context
		flag []Flag
		want string
	}{
		{four, pick.Context{}, nil, "node-0:0 node-1:1 node-2:2 node-3:3"},
		{four, pick.Context{}, []Flag{{Name: "exclude", Value: "1,2"}}, "node-0:0 node-1:3"},
		{four, pick.Context{}, []Flag{{Name: "device", Value: "3,1"}}, "node-0:3 node-1:1"},
		{four, pick.Context{}, []Flag{{Name: "device", Value: "3,7,3"}}, "node-0:3 node-1! node-2!"},
		{mixed, pick.Context{}, nil, "node-0:0 node-1:1"},
		{mixed, pick.Context{}, []Flag{{Name: "mem", Value: "10G"}}, "node-0:0 node-1:1 node-2:2 node-3:3"},
		{mixed, pick.Context{}, []Flag{{Name: "model", Value: "*L4*"}}, "node-0:2 node-1:3"},
		{mixed, pick.Context{}, []Flag{{Name: "mem", Value: "40G"}}, "node-0:0 node-1:1"},
		{mixed, pick.Context{}, []Flag{{Name: "share", Value: "30G"}}, "node-0:0 node-1:1"},
		{mixed, pick.Context{}, []Flag{{Name: "min-compute", Value: "8.9"}}, "node-0:2 node-1:3"},
		{mixed, pick.Context{}, []Flag{{Name: "min-compute", Value: "99.0"}}, "node-0!"},
		{four, pick.Context{Hidden: map[gpu.UUID]string{four.Devices[0].UUID: "CUDA_VISIBLE_DEVICES=1,2,3 hides it"}}, nil, "node-0:1 node-1:2 node-2:3"},
		{gpu.Machine{}, pick.Context{}, nil, "node-0!"},
	} {
		list, _ := expanded(t, node(c.flag...), Ground{Machine: c.m, In: c.in})
		if got := shown(list, c.m); got != c.want {
			t.Errorf("%v: %s, want %s", c.flag, got, c.want)
		}
	}
	if _, _, err := Expand(node(Flag{Name: "mem", Value: "x", Line: 4, Column: 9}), Ground{Machine: four}); err == nil || err.Error() != `cannot read /p/gpuard.yaml:4:9: service node: mem "x" cannot be read` {
		t.Error(err)
	}
}

// TestPlacement: instances keep their GPUs and names while others come and go.
func TestPlacement(t *testing.T) {
	four, six := invent(t, "demo:4xA100-80GB"), invent(t, "demo:6xA100-80GB")
	first, kept := expanded(t, node(), Ground{Machine: four})
	lost := four
	lost.Devices = slices.Delete(slices.Clone(four.Devices), 1, 2)
	for _, c := range []struct {
		name string
		m    gpu.Machine
		p    *Project
		want string
	}{
		{"again", four, node(), "node-0:0 node-1:1 node-2:2 node-3:3"},
		{"one is gone", lost, node(), "node-0:0 node-1! node-2:1 node-3:2"},
		{"two more", six, node(), "node-0:0 node-1:1 node-2:2 node-3:3 node-4:4 node-5:5"},
		{"one is not wanted", four, node(Flag{Name: "exclude", Value: "0"}), "node-1:1 node-2:2 node-3:3"},
		{"no driver", gpu.Machine{}, node(), "node-0! node-1! node-2! node-3!"},
		{"another machine", invent(t, "demo:2xL4"), node(), "node-0:0 node-1:1"},
	} {
		list, again := expanded(t, c.p, Ground{Machine: c.m, Placement: kept})
		if got := shown(list, c.m); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if back, _ := expanded(t, node(), Ground{Machine: four, Placement: again}); c.name != "another machine" && c.name != "two more" && shown(back, four) != shown(first, four) {
			t.Errorf("%s, and back: %s", c.name, shown(back, four))
		}
		for _, i := range list {
			same := slices.ContainsFunc(first, func(f Instance) bool { return f.Name == i.Name && f.Hash == i.Hash })
			if i.Device != "" && c.name != "another machine" && i.Ordinal < 4 != same {
				t.Errorf("%s: the hash of %s is not what it was", c.name, i.Name)
			}
		}
		if c.name == "one is gone" && !strings.Contains(list[1].Refused, string(four.Devices[1].UUID)+", which it has had, is not on this machine now") {
			t.Errorf("node-1: %s", list[1].Refused)
		}
	}
}

// TestExpand: all parts of an instance.
func TestExpand(t *testing.T) {
	p := &Project{Name: "shop", File: "/p/gpuard.yaml", Services: []Service{
		{Name: "web", Replicas: 2, Command: []string{"serve", "--on={{.Ordinal}} of {{.Replicas}}"}, Restart: Always, WorkDir: "/p/{{.Service}}",
			Flags: []Flag{{Name: "cpu"}, {Name: "log", Value: "/p/{{.Ordinal}}.log"}}, Env: []Pair{{"B", "{{.Project}}"}, {"A", "2"}}, EnvFiles: []string{"/p/.env"},
			After: []Dependency{{"db", UntilReady}, {"prepare", UntilDone}},
			Ready: &Ready{Probe: Probe{HTTP: "{{add 8000 .Ordinal}}/health"}, Timeout: time.Minute}},
		{Name: "prepare", Replicas: 1, Command: []string{"prepare '{{.Service}} 1'"}, Split: true},
		{Name: "db", Replicas: 1, Command: []string{"db"}, Healthy: &Healthy{Probe: Probe{Command: []string{"probe {{.Service}}"}, Split: true}, Failures: 2}},
	}}
	list, _ := expanded(t, p, Ground{Files: map[string][]Pair{"/p/.env": {{"A", "1"}, {"C", "{{x}}"}}}})
	if got := shown(list, gpu.Machine{}); got != "db prepare web-0 web-1" {
		t.Fatal(got)
	}
	web := list[3]
	got := fmt.Sprintf("%q %q %q %s %s %v", web.Command, web.Flags, web.Env, web.WorkDir, web.Ready.HTTP, web.After)
	if want := `["serve" "--on=1 of 2"] ["--cpu" "--log=/p/1.log"] ["A=2" "B=shop" "C={{x}}"] /p/web http://127.0.0.1:8001/health [{db ready} {prepare done}]`; got != want {
		t.Errorf("web-1 is\n%s, want\n%s", got, want)
	}
	if got := fmt.Sprintf("%q %q", list[1].Command, list[0].Ready.Command); got != `["prepare" "prepare 1"] ["probe" "db"]` {
		t.Error(got)
	}
	if got := fmt.Sprintf("%q %s %s %d", list[0].Healthy.Command, list[0].Healthy.Interval, list[0].Healthy.Timeout, list[0].Healthy.Failures); got != `["probe" "db"] 30s 30s 2` {
		t.Error(got)
	}
	before := list[3].Hash
	slices.Reverse(p.Services[0].Flags)
	slices.Reverse(p.Services[0].After)
	slices.Reverse(p.Services[0].Env)
	list, _ = expanded(t, p, Ground{Files: map[string][]Pair{"/p/.env": {{"C", "{{x}}"}, {"A", "1"}}}})
	if list[3].Hash != before {
		t.Error("another order is another instance")
	}
	if list[3].WithRound(1).Hash == before || list[3].WithRound(1).WithRound(0).Hash != before {
		t.Error("a round does not count")
	}
	p.Services[0].Command[1] = "{{index .Service .Ordinal 1}}"
	if _, _, err := Expand(p, Ground{}); err == nil || !strings.HasPrefix(err.Error(), "cannot read /p/gpuard.yaml:0:0: service web: the template cannot be filled in") {
		t.Error(err)
	}
}
