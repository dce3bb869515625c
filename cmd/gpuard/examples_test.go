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

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/service"
	"gpuard/internal/text/projectyaml"
)

// example is one folder below examples, and what its page promises.
type example struct {
	name, folder  string
	line, machine string            // what the page says to type without a GPU
	promised      map[string]string // GPUs of each instance, as the page writes them
}

func readExamples(t *testing.T) (all []example) {
	t.Helper()
	files, err := filepath.Glob("../../examples/*/gpuard.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no examples (%v)", err)
	}
	typed := regexp.MustCompile(`(?m)^    (PATH=\$PWD/\.\./stand-ins:\$PATH gpuard up --machine (\S+))$`)
	row := regexp.MustCompile(`(?m)^\| ([a-z0-9-]+) \| ([0-9, ]+|none) \|`)
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
		e := example{filepath.Base(folder), folder, found[0][1], found[0][2], map[string]string{}}
		for _, cells := range row.FindAllStringSubmatch(string(page), -1) {
			e.promised[cells[1]] = cells[2]
		}
		all = append(all, e)
	}
	return all
}

// TestExoNodesKnowEachOther: the nodes listen on the ports that the others use.
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
	e := readExamples(t)[0]
	file := filepath.Join(e.folder, "gpuard.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := projectyaml.Read(text, file)
	m, err := gpu.InventMachine(e.machine)
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

// exampleRun is an example that is run as its page says.
type exampleRun struct {
	*testing.T
	example
	state string
}

// lineCommand prepares a line that is typed in the folder of the example.
func (e *exampleRun) lineCommand(line string) *exec.Cmd {
	cmd := gpuardCommand(e.T, e.state, nil, "-c", line)
	sh, err := exec.LookPath("sh")
	if err != nil {
		e.Fatal(err)
	}
	cmd.Path, cmd.Args[0], cmd.Dir = sh, "sh", e.folder
	return cmd
}

func (e *exampleRun) mustRunLine(line string) string {
	e.Helper()
	got := runCommand(e.T, e.lineCommand(line))
	if got.code != 0 {
		e.Fatalf("%s: %+v", line, got)
	}
	return got.out
}

// shownInstance is an instance in the answer of ps.
type shownInstance struct {
	Name    string
	State   service.State
	Ready   bool
	PID     int
	Devices []job.Given
	Log     string
}

func (e *exampleRun) listInstances() (all []shownInstance, supervised bool) {
	e.Helper()
	var answer struct {
		Supervised bool
		Instances  []shownInstance
	}
	if err := json.Unmarshal([]byte(e.mustRunLine("gpuard ps --json")), &answer); err != nil {
		e.Fatal(err)
	}
	return answer.Instances, answer.Supervised
}

// checkInstances fails the test unless all stand-ins run where the page promises it.
func (e *exampleRun) checkInstances(all []shownInstance) {
	e.Helper()
	got := map[string]string{}
	for _, i := range all {
		var on []string
		for _, d := range i.Devices {
			on = append(on, strconv.Itoa(d.Index))
		}
		got[i.Name] = cmp.Or(strings.Join(on, ", "), "none")
		if i.State != service.Running || !i.Ready || i.PID == 0 {
			e.Errorf("%s does not run: %+v", i.Name, i)
		}
	}
	checkEqual(e, "devices", got, e.promised)
}

// checkSaidEnded fails the test unless each instance was said to have ended, once.
func (e *exampleRun) checkSaidEnded(said string) {
	e.Helper()
	for name := range e.promised {
		if n := len(regexp.MustCompile(`(?m)^(gpuard: )?`+name+` ended$`).FindAllString(said, -1)); n != 1 {
			e.Errorf("%d times it was said that %s ended:\n%s", n, name, said)
		}
	}
}

// TestExamples: what a page says to type starts the example on the GPUs that the page promises, each time. The first
// time it is left in the background, the second time it is ended as the page says, by Ctrl-C.
func TestExamples(t *testing.T) {
	for _, e := range readExamples(t) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			e := &exampleRun{t, e, stateFolder(t)}
			ending := e.lineCommand("gpuard down --now")
			t.Cleanup(func() {
				if !t.Failed() {
					return
				}
				cmd := exec.Command(ending.Path) // the test's context is over
				cmd.Args, cmd.Env, cmd.Dir = ending.Args, ending.Env, ending.Dir
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
			e.mustRunLine(e.line + " -d")
			first, _ := e.listInstances()
			e.checkInstances(first)
			for _, i := range first {
				waitUntil(t, "a stand-in runs for "+i.Name, func() bool {
					text, _ := os.ReadFile(i.Log)
					return strings.Contains(string(text), " GPUARD_GPUS=")
				})
			}
			e.checkSaidEnded(e.mustRunLine("gpuard down"))
			e.runInForeground(first)
			waitUntil(t, "the supervisor has left", func() bool {
				all, supervised := e.listInstances()
				return len(all) == 0 && !supervised
			})
		})
	}
}

// runInForeground types the line of the page, checks what runs, and ends it by Ctrl-C.
func (e *exampleRun) runInForeground(before []shownInstance) {
	e.Helper()
	cmd := e.lineCommand(e.line)
	var said strings.Builder
	cmd.Stderr, cmd.SysProcAttr = &said, &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		e.Fatal(err)
	}
	var again []shownInstance
	waitUntil(e, "all run", func() bool {
		again, _ = e.listInstances()
		return len(again) == len(before) && !slices.ContainsFunc(again, func(i shownInstance) bool { return !i.Ready })
	})
	e.checkInstances(again)
	for n, i := range again {
		checkEqual(e, i.Name, i.Devices, before[n].Devices)
	}
	if err := unix.Kill(-cmd.Process.Pid, unix.SIGINT); err != nil {
		e.Error(err)
	}
	err := cmd.Wait()
	if endingSignal(err) != unix.SIGINT && cmd.ProcessState.ExitCode() != 128+int(unix.SIGINT) { // of a shell that did not become gpuard
		e.Errorf("ended with %v, want SIGINT", err)
	}
	e.checkSaidEnded(said.String())
}

// TestServicesComeBack: a service gets the GPU that it had, even if another one that would take it is before it in the
// file.
func TestServicesComeBack(t *testing.T) {
	t.Parallel()
	c := newExclusiveProject(t, "demo:2xL4", "services:\n  a:\n    command: alone\n  b:\n    command: alone\n")
	on := func(s *projectView, name string) gpu.UUID {
		devices := s.findInstance(name).Seen.Devices
		if len(devices) != 1 {
			t.Fatalf("%s has %v", name, devices)
		}
		return devices[0].UUID
	}
	c.mustRunTool("up", "b")
	had := on(c.waitForView("b runs", areInstancesSettled(1)), "b")
	c.mustRunTool("down")
	c.waitForView("it has ended", isNothingLeft)
	c.mustRunTool("up")
	if s := c.waitForView("both run", areInstancesSettled(2)); on(s, "b") != had || on(s, "a") == had {
		t.Errorf("b had %s, and is on %s now; a is on %s", had, on(s, "b"), on(s, "a"))
	}
	c.checkViolations()
}
