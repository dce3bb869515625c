package main

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/service"
	"gpuard/internal/text/project"
)

// promised are the instances of each example, with their GPUs as its page writes them.
func promised() map[string][][2]string {
	return map[string][][2]string{
		"exo":                     {{"node-0", "0"}, {"node-1", "1"}, {"node-2", "2"}, {"node-3", "3"}},
		"jupyter-beside-training": {{"train", "0"}, {"jupyter", "0"}},
		"mtools":                  {{"image", "0"}, {"speech", "1"}, {"video-0", "3"}, {"video-1", "2"}},
		"ollama-beside-vllm":      {{"vllm", "0"}, {"ollama", "0"}},
		"train-and-infer":         {{"serve", "3"}, {"train", "1, 2"}, {"compare", "none"}},
	}
}

// example is one folder below examples.
type example struct {
	name, folder, page string
	line, machine      string // what the page says to type without a GPU
}

func examples(t *testing.T) (all []example) {
	t.Helper()
	files, err := filepath.Glob("../../examples/*/gpuard.yaml")
	if err != nil || len(files) != len(promised()) {
		t.Fatalf("there are %v (%v), and promises for %d examples", files, err, len(promised()))
	}
	typed := regexp.MustCompile(`(?m)^    (PATH=\$PWD/\.\./stand-ins:\$PATH gpuard up --machine (\S+))$`)
	for _, file := range files {
		folder, err := filepath.Abs(filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(filepath.Join(folder, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		found := typed.FindAllStringSubmatch(string(page), -1)
		if len(found) != 1 {
			t.Fatalf("%s has %d lines to type without a GPU, want one", file, len(found))
		}
		all = append(all, example{filepath.Base(folder), folder, string(page), found[0][1], found[0][2]})
	}
	return all
}

// TestExamplesAreWell: the files have no mistakes, and become what their pages list.
func TestExamplesAreWell(t *testing.T) {
	for _, e := range examples(t) {
		t.Run(e.name, func(t *testing.T) {
			file := filepath.Join(e.folder, "gpuard.yaml")
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p, mistakes := project.Read(data, file)
			if len(mistakes) > 0 {
				t.Fatal(&service.Mistakes{File: file, List: mistakes})
			}
			m, err := gpu.Invent(e.machine)
			if err != nil {
				t.Fatal(err)
			}
			instances, _, err := service.Expand(p, service.Ground{Machine: m})
			if err != nil {
				t.Fatal(err)
			}
			want := promised()[e.name]
			if len(instances) != len(want) {
				t.Errorf("%d instances, want %v", len(instances), want)
			}
			for _, w := range want {
				i := slices.IndexFunc(instances, func(i service.Instance) bool { return i.Name == w[0] })
				if i < 0 || instances[i].Refused != "" {
					t.Fatalf("no instance %s, or one that cannot be: %+v", w[0], instances)
				}
				program := instances[i].Command[0]
				if slices.ContainsFunc(instances[i].Flags, func(f string) bool { return strings.HasPrefix(f, "--torchrun") }) {
					program = "torchrun"
				}
				if _, err := exec.LookPath(filepath.Join(e.folder, "../stand-ins", program)); err != nil {
					t.Errorf("nothing stands in for %s: %v", program, err)
				}
				if !strings.Contains(e.page, "| "+w[0]+" | "+w[1]+" |") {
					t.Errorf("the page does not say that %s is on GPU %s", w[0], w[1])
				}
			}
		})
	}
}

// TestExoNodesKnowEachOther: the ports that the nodes listen on are those that the others look for.
func TestExoNodesKnowEachOther(t *testing.T) {
	data, err := os.ReadFile("../../examples/exo/nodes.json")
	if err != nil {
		t.Fatal(err)
	}
	var nodes struct {
		Peers map[string]struct{ Port int }
	}
	if err := json.Unmarshal(data, &nodes); err != nil {
		t.Fatal(err)
	}
	e := examples(t)[0]
	file := filepath.Join(e.folder, "gpuard.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := project.Read(text, file)
	m, err := gpu.Invent(e.machine)
	if err != nil {
		t.Fatal(err)
	}
	instances, _, err := service.Expand(p, service.Ground{Machine: m})
	if err != nil || len(instances) != len(nodes.Peers) {
		t.Fatalf("%d instances (%v) and %d nodes", len(instances), err, len(nodes.Peers))
	}
	for _, i := range instances {
		node, known := nodes.Peers[i.Name]
		if !known || !slices.Contains(i.Command, "--node-id="+i.Name) || !slices.Contains(i.Command, "--node-port="+strconv.Itoa(node.Port)) {
			t.Errorf("%s is %+v for the others, and starts as %q", i.Name, node, i.Command)
		}
	}
}

// TestExamples: on the machine of its page, each example has the GPUs that the page promises, each time.
func TestExamples(t *testing.T) {
	for _, e := range examples(t) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			c := &team{t: t, state: stateFolder(t), dir: e.folder, traces: t.TempDir(), machine: e.machine}
			c.path = filepath.Join(e.folder, "../stand-ins") + ":" + os.Getenv("PATH")
			t.Cleanup(c.clear)
			for range 2 {
				c.do("up")
				s := c.until("all run", settled(len(promised()[e.name])))
				for _, want := range promised()[e.name] {
					var on []string
					for _, g := range s.row(want[0]).Seen.Devices {
						on = append(on, strconv.Itoa(g.Index))
					}
					if got := cmp.Or(strings.Join(on, ", "), "none"); got != want[1] {
						t.Errorf("%s is on GPU %s, promised is %s", want[0], got, want[1])
					}
				}
				c.do("down")
				c.until("all have ended", nothing)
			}
		})
	}
}

// TestServicesComeBack: a service gets the GPU that it had, also when another one that would have taken it stands before it in the file.
func TestServicesComeBack(t *testing.T) {
	t.Parallel()
	c := newTeam(t, "demo:2xL4", "services:\n  a:\n    command: alone\n  b:\n    command: alone\n")
	on := func(s *sight, name string) gpu.UUID {
		devices := s.row(name).Seen.Devices
		if len(devices) != 1 {
			t.Fatalf("%s has %v", name, devices)
		}
		return devices[0].UUID
	}
	c.do("up", "b")
	had := on(c.until("b runs", settled(1)), "b")
	c.do("down")
	c.until("it has ended", nothing)
	c.do("up")
	if s := c.until("both run", settled(2)); on(s, "b") != had || on(s, "a") == had {
		t.Errorf("b had %s, and is on %s now; a is on %s", had, on(s, "b"), on(s, "a"))
	}
	c.check()
}
