package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/service"
	"gpuard/internal/host/proc"
)

// rounds is how many times TestServicesKilled attacks.
func rounds() int {
	switch {
	case os.Getenv("GPUARD_SOAK") == "1":
		return 400
	case raced, testing.Short():
		return 6
	}
	return 12
}

// TestServicesKilled: supervisors, keepers, commands and the processes that change what is wanted are killed at random
// moments, alone and together. No instance ever runs twice, and in the end all run again, on the GPUs that they had.
func TestServicesKilled(t *testing.T) {
	t.Parallel()
	const n = 4
	c := newTeam(t, fmt.Sprintf("demo:%dxL4", n), nodes)
	c.do("up")
	placed := c.places(c.until("all run", settled(n)))
	killed := map[string]int{}
	again := func(s *sight) bool {
		if !s.Supervised { // a killed one still holds its lock for a moment, so check again
			c.do("up")
		}
		return settled(n)(s)
	}
	for round := range rounds() {
		if len(c.processes("project-supervise")) == 0 { // without one there is little to kill
			c.do([]string{"up", "restart"}[rand.IntN(2)])
		}
		var edits sync.WaitGroup
		for range 1 + rand.IntN(2) {
			edits.Go(func() { c.meddle() })
		}
		for range 1 + rand.IntN(4) {
			time.Sleep(rand.N(60 * time.Millisecond))
			what := []string{"project-supervise", "project-supervise", "project-supervise", "project-keep", "project-keep", "", "all"}[rand.IntN(7)]
			killed[what] += c.kill(what)
		}
		edits.Wait()
		if c.check(); t.Failed() {
			return
		}
		if round%3 == 2 || round == rounds()-1 {
			c.do("up")
			for name, id := range c.places(c.until("all run again", again)) {
				same(t, name, id, placed[name])
			}
		}
	}
	t.Logf("killed: %v", killed)
	c.do("down")
	c.until("all is over", nothing)
	c.check()
	eventually(t, "no process is left", func() bool { return len(c.processes("")) == 0 })
}

// places are the GPUs of the instances.
func (c *team) places(s *sight) map[string]string {
	on := map[string]string{}
	for _, r := range s.Rows {
		on[r.Name] = string(r.Seen.Devices[0].UUID)
	}
	return on
}

// meddle changes what is wanted, and may be killed in the middle of it.
func (c *team) meddle() {
	what := [][]string{{"up"}, {"up"}, {"restart", "node-1"}, {"restart"}, {"down"}, {"down", "node-2"}}[rand.IntN(6)]
	cmd := c.command(what...)
	if err := cmd.Start(); err != nil {
		c.t.Error(err)
		return
	}
	if rand.IntN(3) == 0 {
		time.Sleep(rand.N(30 * time.Millisecond))
		_ = cmd.Process.Kill()
	}
	_ = cmd.Wait()
}

// kill ends some of the processes of a kind, and says how many.
func (c *team) kill(what string) (count int) {
	var pids []int
	switch what {
	case "all":
		pids = slices.Concat(c.processes("project-supervise"), c.processes("project-keep"), c.mains())
	case "":
		pids = c.mains()
	default:
		pids = c.processes(what)
	}
	for _, pid := range pids {
		if what == "all" || what == "project-supervise" || rand.IntN(2) == 0 {
			_ = unix.Kill(pid, unix.SIGKILL)
			count++
		}
	}
	return count
}

// mains are the commands of the services.
func (c *team) mains() (pids []int) {
	for _, pid := range c.processes("") {
		if words := proc.New("/proc").Arguments(pid); len(words) > 0 && words[0] == "alone" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestServicesTogether: many starts of the same project at the same time make one of it, and two projects are
// independent.
func TestServicesTogether(t *testing.T) {
	t.Parallel()
	c := newTeam(t, "demo:4xL4", "services:\n  one: {command: [alone]}\n  two: {command: [alone], cpu: true}\n")
	other := newTeam(t, c.machine, "services:\n  one: {command: [alone]}\n")
	other.state = c.state
	var commands []*exec.Cmd
	for range 4 {
		commands = append(commands, c.command("up"))
	}
	commands = append(commands, other.command("up"))
	var all sync.WaitGroup
	for _, cmd := range commands {
		all.Go(func() {
			if got := run(t, cmd); got.code != 0 {
				t.Errorf("up: %+v", got)
			}
		})
	}
	all.Wait()
	mine := c.until("one project runs", settled(2))
	its := other.until("the other runs", settled(1))
	if a, b := mine.row("one").Seen.Devices[0].UUID, its.row("one").Seen.Devices[0].UUID; a == b {
		t.Errorf("both are on %s", a)
	}
	c.do("down")
	c.until("one is over", nothing)
	if !settled(1)(other.look()) {
		t.Errorf("the other project ended too: %s", other.last)
	}
	other.do("down")
	other.until("the other is over", nothing)
	c.check()
	other.check()
}

// TestServicesChange: an up after a change of the file starts anew what changed, ends what is gone, and leaves the rest
// alone.
func TestServicesChange(t *testing.T) {
	t.Parallel()
	const file = "services:\n  same: {command: [alone], cpu: true}\n  other: {command: [alone], cpu: true}\n  gone: {command: [alone], cpu: true}\n"
	c := newTeam(t, "demo:1xL4", file)
	c.do("up")
	before := c.until("all run", settled(3))
	c.write("services:\n  same: {command: [alone], cpu: true}\n  other: {command: [alone, again], cpu: true}\n")
	contains(t, c.do("up"), "Start:[other] Stay:[same] End:[gone]")
	after := c.until("what is left runs", settled(2))
	same(t, "same", after.row("same").Seen.Main, before.row("same").Seen.Main)
	if after.row("other").Seen.Main == before.row("other").Seen.Main {
		t.Error("other was not started anew")
	}
	c.do("down")
	c.until("all is over", nothing)
	c.check()
}

// TestServicesRestart: restart decides what follows an end, and processes that a service leaves behind end with it.
func TestServicesRestart(t *testing.T) {
	t.Parallel()
	c := newTeam(t, "demo:1xL4", `services:
  never: {command: [sh, -c, "exit 3"], cpu: true}
  failing: {command: [sh, -c, "exit 4"], cpu: true, restart: on-failure}
  good: {command: [sh, -c, "sleep 1010 & exit 0"], cpu: true, restart: on-failure}
  always: {command: [sh, -c, "exit 0"], cpu: true, restart: always}
  late: {command: [sleep, "1011"], cpu: true, ready: {command: ["false"], timeout: 100ms}}
`)
	c.do("up")
	s := c.until("each came to its end", func(s *sight) bool {
		return s.row("failing").Seen.Restarts > 1 && s.row("always").Seen.Restarts > 1 && s.row("never").Seen.State == service.Failed &&
			s.row("good").Seen.State == service.Done && s.row("late").Seen.State == service.Failed
	})
	same(t, "exit of never", *s.row("never").Seen.Exit, 3)
	same(t, "exit of failing", *s.row("failing").Seen.Exit, 4)
	contains(t, s.row("late").Seen.Why, "it was not ready within 100ms")
	c.do("down")
	c.until("all is over", nothing)
	eventually(t, "no process is left", func() bool { return len(c.processes("")) == 0 })
}

// TestServicesRemoved: services end when their project's folder is removed, because no command could find them.
func TestServicesRemoved(t *testing.T) {
	t.Parallel()
	c := newTeam(t, "demo:1xL4", "services:\n  one: {command: [alone]}\n  two: {command: [alone], cpu: true}\n")
	c.do("up")
	s := c.until("both run", settled(2))
	eventually(t, "both hear signals", func() bool { return len(c.order()) == 2 })
	eventually(t, "the folder is gone", func() bool { return os.RemoveAll(s.Dir) == nil }) // one that is written to meanwhile is not
	eventually(t, "no process is left", func() bool { return len(c.processes("")) == 0 })
	ends := slices.DeleteFunc(c.order(), func(line string) bool { return !strings.HasPrefix(line, "end ") })
	same(t, "ends", slices.Sorted(slices.Values(ends)), []string{"end one", "end two"})
	c.do("up")
	c.until("both run again", settled(2))
	c.do("down")
	c.until("all is over", nothing)
	c.check()
}

// TestServicesHurry: an end that takes its time can be hurried up, and costs those that wait for it no time of a processor.
func TestServicesHurry(t *testing.T) {
	t.Parallel()
	c := newTeam(t, "demo:1xL4", `services:
  slow: {command: [sh, -c, "trap '' TERM; echo ready; while :; do sleep 0.1; done"], ready: {log: ready}, cpu: true, grace: 1h}
`)
	c.do("up")
	c.until("it runs", settled(1))
	c.do("down")
	c.until("it is ending", func(s *sight) bool { return s.row("slow").Seen.State == service.Ending })
	time.Sleep(200 * time.Millisecond)
	waiting := append(c.processes("project-supervise"), c.processes("project-keep")...)
	before := used(waiting)
	time.Sleep(time.Second)
	if cost := used(waiting) - before; len(waiting) != 2 || cost > 200*time.Millisecond {
		t.Errorf("%d processes that wait used %s of a second", len(waiting), cost)
	}
	c.do("kill")
	c.until("all is over", nothing)
	eventually(t, "no process is left", func() bool { return len(c.processes("")) == 0 })
}

// TestServicesFolder: a folder of projects that leads elsewhere is not used.
func TestServicesFolder(t *testing.T) {
	t.Parallel()
	c := newTeam(t, "demo:1xL4", "services:\n  one: {command: [alone], cpu: true}\n")
	top := durable(c.state, os.Geteuid(), "projects")
	if err := os.MkdirAll(filepath.Dir(top), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), top); err != nil {
		t.Fatal(err)
	}
	got := run(t, c.command("up"))
	same(t, "exit", got.code, 1)
	contains(t, got.err, "cannot use the project's folder "+top+": it is not a folder; remove it")
}
