package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/services"
	"gpuard/internal/core/service"
	"gpuard/internal/host/proc"
)

// runServicesTool runs services without the command line's texts: up, down, restart, and look, which prints the state as JSON.
// Its background processes are the hasty program.
func runServicesTool() {
	if strings.HasPrefix(os.Args[1], "project-") {
		runHasty()
	}
	devices := os.Getenv("GPUARD_MACHINE")
	host := &machine.Host{Name: "upkeep", Env: os.Environ(), Proc: proc.New("/proc"), Machine: devices, Run: "/run", Tmp: "/var/tmp", Messages: machine.Messages{Say: func(string) {}}}
	err := editProject(context.Background(), &services.Projects{Host: host}, os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func editProject(ctx context.Context, projects *services.Projects, what string, names []string) error {
	if what == "up" {
		p, err := projects.Load("")
		if err != nil {
			return err
		}
		f, err := projects.Open(p)
		if err != nil {
			return err
		}
		change, err := f.Up(ctx, p, names)
		fmt.Printf("%+v\n", change)
		return err
	}
	f, err := projects.FindFolder("")
	if err != nil {
		return err
	}
	switch what {
	case "down":
		return f.Down(ctx, names, false)
	case "kill":
		return f.Down(ctx, names, true)
	case "restart":
		return f.Restart(ctx, names)
	}
	view, err := f.ReadView(ctx)
	if err != nil {
		return err
	}
	rows := make([]instanceView, len(view.Rows))
	for i, r := range view.Rows {
		rows[i] = instanceView{r.Name, r.Wanted, r.Fresh, r.Seen}
	}
	return json.NewEncoder(os.Stdout).Encode(projectView{view.Dir, view.Supervised, rows})
}

// projectView is the output of look.
type projectView struct {
	Dir        string
	Supervised bool
	Rows       []instanceView
}

type instanceView struct {
	Name          string
	Wanted, Fresh bool
	Seen          service.Seen
}

func (s *projectView) findInstance(name string) *instanceView {
	for i := range s.Rows {
		if s.Rows[i].Name == name {
			return &s.Rows[i]
		}
	}
	return &instanceView{}
}

// runExclusiveService is the command of a service: it holds a kernel lock that only one process of an instance can have, and records
// its start and its end. It ends on SIGTERM.
func runExclusiveService() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM)
	dir, name := os.Getenv("ALONE"), filepath.Base(os.Getenv("GPUARD_SERVICE"))
	note := func(file, text string) {
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err == nil {
			_, _ = f.WriteString(text + "\n")
			_ = f.Close()
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock-"+name), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		note("violations", fmt.Sprintf("%s runs twice: %v", name, err))
		os.Exit(9)
	}
	note("order", "start "+name)
	fmt.Println("ready", name)
	<-signals
	note("order", "end "+name)
}

// exclusiveProject is a project of services that run alone.
type exclusiveProject struct {
	t             *testing.T
	state, dir    string
	traces        string
	machine, last string // the last output of look
}

func newExclusiveProject(t *testing.T, machine, file string) *exclusiveProject {
	t.Helper()
	c := &exclusiveProject{t: t, state: stateFolder(t), dir: t.TempDir(), traces: t.TempDir(), machine: machine}
	c.writeProjectFile(file)
	t.Cleanup(c.killAllProcesses)
	return c
}

func (c *exclusiveProject) writeProjectFile(file string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, "gpuard.yaml"), []byte(file), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *exclusiveProject) servicesCommand(args ...string) *exec.Cmd {
	cmd := gpuardCommand(c.t, c.state, []string{"GPUARD_MACHINE=" + c.machine, "ALONE=" + c.traces}, args...)
	cmd.Args[0], cmd.Dir = "upkeep", c.dir
	return cmd
}

func (c *exclusiveProject) mustRunTool(args ...string) string {
	c.t.Helper()
	got := runCommand(c.t, c.servicesCommand(args...))
	if got.code != 0 {
		c.t.Fatalf("%v: %+v", args, got)
	}
	return got.out
}

func (c *exclusiveProject) readView() *projectView {
	c.t.Helper()
	c.last = c.mustRunTool("look")
	var s projectView
	if err := json.Unmarshal([]byte(c.last), &s); err != nil {
		c.t.Fatal(err)
	}
	return &s
}

// waitForView calls look until ok. It has a long deadline, because whole trees of processes start meanwhile, next to other
// tests.
func (c *exclusiveProject) waitForView(what string, ok func(s *projectView) bool) *projectView {
	c.t.Helper()
	var s *projectView
	if !pollUntil(90*time.Second, func() bool { s = c.readView(); return ok(s) }) {
		journal, _ := os.ReadFile(filepath.Join(s.Dir, "supervisor.log"))
		c.t.Fatalf("still not so after 90 s: %s\n%s\n%s", what, c.last, journal)
	}
	return s
}

// areInstancesSettled reports whether n instances run, each with its keeper, as they are wanted.
func areInstancesSettled(n int) func(s *projectView) bool {
	return func(s *projectView) bool {
		return s.Supervised && len(s.Rows) == n && !slices.ContainsFunc(s.Rows, func(r instanceView) bool {
			return !r.Fresh || !r.Seen.Kept || r.Seen.State != service.Running || !r.Seen.Ready || r.Seen.Main.PID == 0
		})
	}
}

// isNothingLeft reports whether nothing lives any more.
func isNothingLeft(s *projectView) bool {
	return !s.Supervised && !slices.ContainsFunc(s.Rows, func(r instanceView) bool { return r.Seen.Kept || r.Seen.Orphaned })
}

// checkViolations fails the test with what the services complained about.
func (c *exclusiveProject) checkViolations() {
	c.t.Helper()
	if text, err := os.ReadFile(filepath.Join(c.traces, "violations")); err == nil {
		c.t.Errorf("%s", text)
	}
}

// readOrderNotes is what the services noted so far.
func (c *exclusiveProject) readOrderNotes() []string {
	text, _ := os.ReadFile(filepath.Join(c.traces, "order"))
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// processesOf are those of gpuard for this project, by what they do: "project-supervise", "project-keep"; and its
// services'.
func (c *exclusiveProject) processesOf(what string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		words := proc.New("/proc").Arguments(pid)
		if len(words) > 2 && words[1] == what && strings.HasPrefix(words[2], c.state) {
			pids = append(pids, pid)
		}
		if what != "" {
			continue
		}
		if env, _ := proc.New("/proc").Environ(pid); slices.Contains(env, "ALONE="+c.traces) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killAllProcesses ends all processes, whatever the test's result.
func (c *exclusiveProject) killAllProcesses() {
	for _, what := range []string{"project-supervise", "project-keep", ""} {
		for _, pid := range c.processesOf(what) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

const nodeServiceFile = "services:\n  node:\n    each: gpu\n    restart: always\n    command: [alone]\n"

// TestServicesAgain: services continue when their supervisor and keepers are killed, are found again and not started
// twice, and come back on the same GPUs after everything was ended.
func TestServicesAgain(t *testing.T) {
	t.Parallel()
	c := newExclusiveProject(t, "demo:2xL4", nodeServiceFile)
	c.mustRunTool("up")
	first := c.waitForView("both run", areInstancesSettled(2))
	for _, what := range []string{"project-supervise", "project-keep"} {
		for _, pid := range c.processesOf(what) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	c.waitForView("keepers are gone", func(s *projectView) bool {
		return !s.Supervised && s.findInstance("node-0").Seen.Orphaned && s.findInstance("node-1").Seen.Orphaned
	})
	checkContains(t, c.mustRunTool("up"), "Start:[] Stay:[node-0 node-1]")
	again := c.waitForView("both are found again", areInstancesSettled(2))
	for _, name := range []string{"node-0", "node-1"} {
		checkEqual(t, name, again.findInstance(name).Seen.Main, first.findInstance(name).Seen.Main)
	}
	c.mustRunTool("down")
	c.waitForView("all is over", isNothingLeft)
	c.mustRunTool("up")
	last := c.waitForView("both run again", areInstancesSettled(2))
	for _, name := range []string{"node-0", "node-1"} {
		checkEqual(t, name, last.findInstance(name).Seen.Devices[0].UUID, first.findInstance(name).Seen.Devices[0].UUID)
	}
	c.mustRunTool("kill")
	c.waitForView("all is over", isNothingLeft)
	c.checkViolations()
	waitUntil(t, "no process is left", func() bool { return len(c.processesOf("")) == 0 })
}

// TestServicesOrder: what depends on something starts after it and ends before it; what cannot start does not hold up
// the others.
func TestServicesOrder(t *testing.T) {
	t.Parallel()
	c := newExclusiveProject(t, "demo:2xL4", `services:
  web: {command: [alone], cpu: true, depends_on: [api], ready: {log: ^ready web}}
  api: {command: [alone], cpu: true, depends_on: [db], ready: {log: ^ready api}}
  db: {command: [alone], cpu: true, ready: {log: ^ready db}}
  none: {command: [no-such-program]}
  big: {command: [alone], gpus: 3}
  after: {command: [alone], cpu: true, depends_on: [none]}
`)
	c.mustRunTool("up")
	s := c.waitForView("the others run", func(s *projectView) bool {
		return s.findInstance("web").Seen.Ready && s.findInstance("none").Seen.State == service.Refused && s.findInstance("big").Seen.State == service.Refused
	})
	checkContains(t, s.findInstance("none").Seen.Why, `cannot run "no-such-program": no such command in PATH`)
	checkContains(t, s.findInstance("big").Seen.Why, "cannot give 3 GPUs")
	checkEqual(t, "what waits", []string{string(s.findInstance("after").Seen.State), s.findInstance("after").Seen.Why}, []string{"waiting", "waits for none, which was refused"})
	c.mustRunTool("down")
	c.waitForView("all is over", isNothingLeft)
	checkEqual(t, "order", c.readOrderNotes(), []string{"start db", "start api", "start web", "end web", "end api", "end db"})
	c.checkViolations()
}

// TestEachGPUOnFourDevices: `each: gpu` on 4 devices is 4 nodes with ports of their own, each on the same device after
// a restart of everything, and after kill -9 of the supervisor, which costs no node its process.
func TestEachGPUOnFourDevices(t *testing.T) {
	t.Parallel()
	const n = 4
	c := newExclusiveProject(t, "demo:4xL4", "services:\n  node:\n    each: gpu\n    command: [alone, --port, \"{{add 52415 .Ordinal}}\"]\n")
	nodes := func(what string) (all []string) {
		t.Helper()
		s := c.waitForView(what, areInstancesSettled(n))
		devices := map[string]bool{}
		for i := range n {
			r := s.findInstance(fmt.Sprintf("node-%d", i))
			checkEqual(t, what+": command", proc.New("/proc").Arguments(r.Seen.Main.PID), []string{"alone", "--port", fmt.Sprint(52415 + i)})
			if len(r.Seen.Devices) != 1 {
				t.Fatalf("%s: %s has %v", what, r.Name, r.Seen.Devices)
			}
			id := string(r.Seen.Devices[0].UUID)
			devices[id] = true
			all = append(all, r.Name+" "+id)
		}
		checkEqual(t, what+": devices", len(devices), n)
		return all
	}
	c.mustRunTool("up")
	first := nodes("all run")
	c.mustRunTool("down")
	c.waitForView("all is over", isNothingLeft)
	c.mustRunTool("up")
	checkEqual(t, "after down and up", nodes("all run after down and up"), first)
	c.mustRunTool("restart")
	checkEqual(t, "after restart", nodes("all run after restart"), first)
	before := c.readView()
	for _, pid := range c.processesOf("project-supervise") {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	c.waitForView("the supervisor is gone", func(s *projectView) bool { return !s.Supervised })
	checkContains(t, c.mustRunTool("up"), "Start:[] Stay:[node-0 node-1 node-2 node-3]")
	checkEqual(t, "after kill -9 of the supervisor", nodes("all run after kill -9"), first)
	after := c.readView()
	for i := range n {
		name := fmt.Sprintf("node-%d", i)
		checkEqual(t, "process of "+name, after.findInstance(name).Seen.Main, before.findInstance(name).Seen.Main)
	}
	c.mustRunTool("kill")
	c.waitForView("all is over", isNothingLeft)
	c.checkViolations()
}

// TestServicesUnwatched: a line that shows readiness counts if it was written while no keeper was alive to read it; one
// of an earlier start does not.
func TestServicesUnwatched(t *testing.T) {
	t.Parallel()
	c := newExclusiveProject(t, "demo:1xL4", `services:
  one: {command: [sh, -c, "until [ -e $ALONE/go ]; do sleep 0.1; done; echo usable; touch $ALONE/said; exec sleep 1012"], cpu: true, ready: {log: ^usable}}
`)
	c.mustRunTool("up")
	runs := func(s *projectView) bool {
		return s.Supervised && s.findInstance("one").Fresh && s.findInstance("one").Seen.Kept && s.findInstance("one").Seen.State == service.Running && s.findInstance("one").Seen.Main.PID != 0
	}
	killAll := func() *projectView {
		t.Helper()
		s := c.waitForView("it runs", runs)
		for _, what := range []string{"project-supervise", "project-keep"} {
			for _, pid := range c.processesOf(what) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		c.waitForView("nobody looks after it", func(s *projectView) bool { return !s.Supervised && s.findInstance("one").Seen.Orphaned })
		return s
	}
	first := killAll()
	if err := os.WriteFile(filepath.Join(c.traces, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	said := filepath.Join(c.traces, "said")
	waitUntil(t, "it has said so", func() bool { _, err := os.Stat(said); return err == nil })
	c.mustRunTool("up")
	checkEqual(t, "process", c.waitForView("it is ready", areInstancesSettled(1)).findInstance("one").Seen.Main, first.findInstance("one").Seen.Main)
	if err := os.Remove(filepath.Join(c.traces, "go")); err != nil {
		t.Fatal(err)
	}
	c.mustRunTool("restart")
	c.waitForView("it is started again", func(s *projectView) bool {
		return runs(s) && s.findInstance("one").Seen.Main != first.findInstance("one").Seen.Main
	})
	killAll()
	c.mustRunTool("up")
	if s := c.waitForView("it is found again", runs); s.findInstance("one").Seen.Ready {
		t.Error("ready by the line of an earlier start")
	}
	c.mustRunTool("kill")
	c.waitForView("all is over", isNothingLeft)
}

// TestServicesUnderNohup: signals that the starter ignores are not ignored by services and their keepers.
func TestServicesUnderNohup(t *testing.T) {
	t.Parallel()
	c := newExclusiveProject(t, "demo:1xL4", "services:\n  one: {command: [sleep, \"1013\"], cpu: true}\n")
	up := c.servicesCommand("up")
	up.Args = append([]string{"bash", "-c", "trap '' INT HUP; exec -a upkeep \"$@\"", "bash", up.Path}, up.Args[1:]...)
	up.Path = "/bin/bash"
	if got := runCommand(t, up); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	s := c.waitForView("it runs", areInstancesSettled(1))
	var pids []int
	waitUntil(t, "there are two processes", func() bool { // a process just before its exec counts as a third
		pids = append(c.processesOf("project-supervise"), c.processesOf("project-keep")...)
		return len(pids) == 2
	})
	for _, pid := range append(pids, s.findInstance("one").Seen.Main.PID) {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, rest, _ := bytes.Cut(status, []byte("\nSigIgn:\t"))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		set, err := strconv.ParseUint(string(line), 16, 64)
		if err != nil || set&(1<<(unix.SIGHUP-1)|1<<(unix.SIGINT-1)|1<<(unix.SIGQUIT-1)) != 0 {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			t.Errorf("%q ignores %s (%v)", name, line, err)
		}
	}
	c.mustRunTool("kill")
	c.waitForView("all is over", isNothingLeft)
}
