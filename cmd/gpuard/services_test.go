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

// upkeep runs services without the command line's texts: up, down, restart, and look, which prints the state as JSON.
// Its background processes are the hasty program.
func upkeep() {
	if strings.HasPrefix(os.Args[1], "project-") {
		hasty()
	}
	devices := os.Getenv("GPUARD_MACHINE")
	host := &machine.Host{Name: "upkeep", Env: os.Environ(), Proc: proc.New("/proc"), Machine: devices, Run: "/run", Tmp: "/var/tmp", Messages: machine.Messages{Say: func(string) {}}}
	err := edit(context.Background(), &services.Projects{Host: host}, os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func edit(ctx context.Context, projects *services.Projects, what string, names []string) error {
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
	f, err := projects.Find("")
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
	view, err := f.Look(ctx)
	if err != nil {
		return err
	}
	rows := make([]glimpse, len(view.Rows))
	for i, r := range view.Rows {
		rows[i] = glimpse{r.Name, r.Wanted, r.Fresh, r.Seen}
	}
	return json.NewEncoder(os.Stdout).Encode(sight{view.Dir, view.Supervised, rows})
}

// sight is the output of look.
type sight struct {
	Dir        string
	Supervised bool
	Rows       []glimpse
}

type glimpse struct {
	Name          string
	Wanted, Fresh bool
	Seen          service.Seen
}

func (s *sight) row(name string) *glimpse {
	for i := range s.Rows {
		if s.Rows[i].Name == name {
			return &s.Rows[i]
		}
	}
	return &glimpse{}
}

// alone is the command of a service: it holds a kernel lock that only one process of an instance can have, and records
// its start and its end. It ends on SIGTERM.
func alone() {
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

// team is a project of services that run alone.
type team struct {
	t             *testing.T
	state, dir    string
	traces        string
	machine, last string // the last output of look
}

func newTeam(t *testing.T, machine, file string) *team {
	t.Helper()
	c := &team{t: t, state: stateFolder(t), dir: t.TempDir(), traces: t.TempDir(), machine: machine}
	c.write(file)
	t.Cleanup(c.clear)
	return c
}

func (c *team) write(file string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, "gpuard.yaml"), []byte(file), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *team) command(args ...string) *exec.Cmd {
	cmd := program(c.t, c.state, []string{"GPUARD_MACHINE=" + c.machine, "ALONE=" + c.traces}, args...)
	cmd.Args[0], cmd.Dir = "upkeep", c.dir
	return cmd
}

func (c *team) do(args ...string) string {
	c.t.Helper()
	got := run(c.t, c.command(args...))
	if got.code != 0 {
		c.t.Fatalf("%v: %+v", args, got)
	}
	return got.out
}

func (c *team) look() *sight {
	c.t.Helper()
	c.last = c.do("look")
	var s sight
	if err := json.Unmarshal([]byte(c.last), &s); err != nil {
		c.t.Fatal(err)
	}
	return &s
}

// until calls look until ok. It has a long deadline, because whole trees of processes start meanwhile, next to other
// tests.
func (c *team) until(what string, ok func(s *sight) bool) *sight {
	c.t.Helper()
	var s *sight
	if !polled(90*time.Second, func() bool { s = c.look(); return ok(s) }) {
		journal, _ := os.ReadFile(filepath.Join(s.Dir, "supervisor.log"))
		c.t.Fatalf("still not so after 90 s: %s\n%s\n%s", what, c.last, journal)
	}
	return s
}

// settled reports whether n instances run, each with its keeper, as they are wanted.
func settled(n int) func(s *sight) bool {
	return func(s *sight) bool {
		return s.Supervised && len(s.Rows) == n && !slices.ContainsFunc(s.Rows, func(r glimpse) bool {
			return !r.Fresh || !r.Seen.Kept || r.Seen.State != service.Running || !r.Seen.Ready || r.Seen.Main.PID == 0
		})
	}
}

// nothing reports whether nothing lives any more.
func nothing(s *sight) bool {
	return !s.Supervised && !slices.ContainsFunc(s.Rows, func(r glimpse) bool { return r.Seen.Kept || r.Seen.Orphaned })
}

// check fails the test with what the services complained about.
func (c *team) check() {
	c.t.Helper()
	if text, err := os.ReadFile(filepath.Join(c.traces, "violations")); err == nil {
		c.t.Errorf("%s", text)
	}
}

// order is what the services noted so far.
func (c *team) order() []string {
	text, _ := os.ReadFile(filepath.Join(c.traces, "order"))
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// processes are those of gpuard for this project, by what they do: "project-supervise", "project-keep"; and its
// services'.
func (c *team) processes(what string) (pids []int) {
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

// clear ends all processes, whatever the test's result.
func (c *team) clear() {
	for _, what := range []string{"project-supervise", "project-keep", ""} {
		for _, pid := range c.processes(what) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

const nodes = "services:\n  node:\n    each: gpu\n    restart: always\n    command: [alone]\n"

// TestServicesAgain: services continue when their supervisor and keepers are killed, are found again and not started
// twice, and come back on the same GPUs after everything was ended.
func TestServicesAgain(t *testing.T) {
	t.Parallel()
	c := newTeam(t, "demo:2xL4", nodes)
	c.do("up")
	first := c.until("both run", settled(2))
	for _, what := range []string{"project-supervise", "project-keep"} {
		for _, pid := range c.processes(what) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	c.until("keepers are gone", func(s *sight) bool {
		return !s.Supervised && s.row("node-0").Seen.Orphaned && s.row("node-1").Seen.Orphaned
	})
	contains(t, c.do("up"), "Start:[] Stay:[node-0 node-1]")
	again := c.until("both are found again", settled(2))
	for _, name := range []string{"node-0", "node-1"} {
		same(t, name, again.row(name).Seen.Main, first.row(name).Seen.Main)
	}
	c.do("down")
	c.until("all is over", nothing)
	c.do("up")
	last := c.until("both run again", settled(2))
	for _, name := range []string{"node-0", "node-1"} {
		same(t, name, last.row(name).Seen.Devices[0].UUID, first.row(name).Seen.Devices[0].UUID)
	}
	c.do("kill")
	c.until("all is over", nothing)
	c.check()
	eventually(t, "no process is left", func() bool { return len(c.processes("")) == 0 })
}

// TestServicesOrder: what depends on something starts after it and ends before it; what cannot start does not hold up
// the others.
func TestServicesOrder(t *testing.T) {
	t.Parallel()
	c := newTeam(t, "demo:2xL4", `services:
  web: {command: [alone], cpu: true, depends_on: [api], ready: {log: ^ready web}}
  api: {command: [alone], cpu: true, depends_on: [db], ready: {log: ^ready api}}
  db: {command: [alone], cpu: true, ready: {log: ^ready db}}
  none: {command: [no-such-program]}
  big: {command: [alone], gpus: 3}
  after: {command: [alone], cpu: true, depends_on: [none]}
`)
	c.do("up")
	s := c.until("the others run", func(s *sight) bool {
		return s.row("web").Seen.Ready && s.row("none").Seen.State == service.Refused && s.row("big").Seen.State == service.Refused
	})
	contains(t, s.row("none").Seen.Why, `cannot run "no-such-program": no such command in PATH`)
	contains(t, s.row("big").Seen.Why, "cannot give 3 GPUs")
	same(t, "what waits", []string{string(s.row("after").Seen.State), s.row("after").Seen.Why}, []string{"waiting", "waits for none, which was refused"})
	c.do("down")
	c.until("all is over", nothing)
	same(t, "order", c.order(), []string{"start db", "start api", "start web", "end web", "end api", "end db"})
	c.check()
}

// TestEachGPUOnFourDevices: `each: gpu` on 4 devices is 4 nodes with ports of their own, each on the same device after
// a restart of everything, and after kill -9 of the supervisor, which costs no node its process.
func TestEachGPUOnFourDevices(t *testing.T) {
	t.Parallel()
	const n = 4
	c := newTeam(t, "demo:4xL4", "services:\n  node:\n    each: gpu\n    command: [alone, --port, \"{{add 52415 .Ordinal}}\"]\n")
	nodes := func(what string) (all []string) {
		t.Helper()
		s := c.until(what, settled(n))
		devices := map[string]bool{}
		for i := range n {
			r := s.row(fmt.Sprintf("node-%d", i))
			same(t, what+": command", proc.New("/proc").Arguments(r.Seen.Main.PID), []string{"alone", "--port", fmt.Sprint(52415 + i)})
			if len(r.Seen.Devices) != 1 {
				t.Fatalf("%s: %s has %v", what, r.Name, r.Seen.Devices)
			}
			id := string(r.Seen.Devices[0].UUID)
			devices[id] = true
			all = append(all, r.Name+" "+id)
		}
		same(t, what+": devices", len(devices), n)
		return all
	}
	c.do("up")
	first := nodes("all run")
	c.do("down")
	c.until("all is over", nothing)
	c.do("up")
	same(t, "after down and up", nodes("all run after down and up"), first)
	c.do("restart")
	same(t, "after restart", nodes("all run after restart"), first)
	before := c.look()
	for _, pid := range c.processes("project-supervise") {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	c.until("the supervisor is gone", func(s *sight) bool { return !s.Supervised })
	contains(t, c.do("up"), "Start:[] Stay:[node-0 node-1 node-2 node-3]")
	same(t, "after kill -9 of the supervisor", nodes("all run after kill -9"), first)
	after := c.look()
	for i := range n {
		name := fmt.Sprintf("node-%d", i)
		same(t, "process of "+name, after.row(name).Seen.Main, before.row(name).Seen.Main)
	}
	c.do("kill")
	c.until("all is over", nothing)
	c.check()
}

// TestServicesUnwatched: a line that shows readiness counts if it was written while no keeper was alive to read it; one
// of an earlier start does not.
func TestServicesUnwatched(t *testing.T) {
	t.Parallel()
	c := newTeam(t, "demo:1xL4", `services:
  one: {command: [sh, -c, "until [ -e $ALONE/go ]; do sleep 0.1; done; echo usable; touch $ALONE/said; exec sleep 1012"], cpu: true, ready: {log: ^usable}}
`)
	c.do("up")
	runs := func(s *sight) bool {
		return s.Supervised && s.row("one").Fresh && s.row("one").Seen.Kept && s.row("one").Seen.State == service.Running && s.row("one").Seen.Main.PID != 0
	}
	killAll := func() *sight {
		t.Helper()
		s := c.until("it runs", runs)
		for _, what := range []string{"project-supervise", "project-keep"} {
			for _, pid := range c.processes(what) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		c.until("nobody looks after it", func(s *sight) bool { return !s.Supervised && s.row("one").Seen.Orphaned })
		return s
	}
	first := killAll()
	if err := os.WriteFile(filepath.Join(c.traces, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	said := filepath.Join(c.traces, "said")
	eventually(t, "it has said so", func() bool { _, err := os.Stat(said); return err == nil })
	c.do("up")
	same(t, "process", c.until("it is ready", settled(1)).row("one").Seen.Main, first.row("one").Seen.Main)
	if err := os.Remove(filepath.Join(c.traces, "go")); err != nil {
		t.Fatal(err)
	}
	c.do("restart")
	c.until("it is started again", func(s *sight) bool { return runs(s) && s.row("one").Seen.Main != first.row("one").Seen.Main })
	killAll()
	c.do("up")
	if s := c.until("it is found again", runs); s.row("one").Seen.Ready {
		t.Error("ready by the line of an earlier start")
	}
	c.do("kill")
	c.until("all is over", nothing)
}

// TestServicesUnderNohup: signals that the starter ignores are not ignored by services and their keepers.
func TestServicesUnderNohup(t *testing.T) {
	t.Parallel()
	c := newTeam(t, "demo:1xL4", "services:\n  one: {command: [sleep, \"1013\"], cpu: true}\n")
	up := c.command("up")
	up.Args = append([]string{"bash", "-c", "trap '' INT HUP; exec -a upkeep \"$@\"", "bash", up.Path}, up.Args[1:]...)
	up.Path = "/bin/bash"
	if got := run(t, up); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	s := c.until("it runs", settled(1))
	var pids []int
	eventually(t, "there are two processes", func() bool { // a process just before its exec counts as a third
		pids = append(c.processes("project-supervise"), c.processes("project-keep")...)
		return len(pids) == 2
	})
	for _, pid := range append(pids, s.row("one").Seen.Main.PID) {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, rest, _ := bytes.Cut(status, []byte("\nSigIgn:\t"))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		set, err := strconv.ParseUint(string(line), 16, 64)
		if err != nil || set&(1<<(unix.SIGHUP-1)|1<<(unix.SIGINT-1)|1<<(unix.SIGQUIT-1)) != 0 {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			t.Errorf("%q ignores %s (%v)", name, line, err)
		}
	}
	c.do("kill")
	c.until("all is over", nothing)
}
