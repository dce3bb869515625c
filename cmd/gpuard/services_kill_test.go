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

// attackRounds is how many times TestServicesKilled attacks.
func attackRounds() int {
	switch {
	case os.Getenv("GPUARD_SOAK") == "1":
		return 400
	case raceEnabled, testing.Short():
		return 6
	}
	return 12
}

// TestServicesKilled: supervisors, keepers, commands and the processes that change what is wanted are killed at random
// moments, alone and together. No instance ever runs twice, and in the end all run again, on the GPUs that they had.
func TestServicesKilled(t *testing.T) {
	t.Parallel()
	const n = 4
	c := newExclusiveProject(t, fmt.Sprintf("demo:%dxL4", n), nodeServiceFile)
	c.mustRunTool("up")
	placed := c.instanceGPUs(c.waitForView("all run", areInstancesSettled(n)))
	killed := map[string]int{}
	again := func(s *projectView) bool {
		if !s.Supervised { // a killed one still holds its lock for a moment, so check again
			c.mustRunTool("up")
		}
		return areInstancesSettled(n)(s)
	}
	for round := range attackRounds() {
		if len(c.processesOf("project-supervise")) == 0 { // without one there is little to kill
			c.mustRunTool([]string{"up", "restart"}[rand.IntN(2)])
		}
		var edits sync.WaitGroup
		for range 1 + rand.IntN(2) {
			edits.Go(func() { c.runRandomChange() })
		}
		for range 1 + rand.IntN(4) {
			time.Sleep(rand.N(60 * time.Millisecond))
			what := []string{"project-supervise", "project-supervise", "project-supervise", "project-keep", "project-keep", "", "all"}[rand.IntN(7)]
			killed[what] += c.killSomeProcesses(what)
		}
		edits.Wait()
		if c.checkViolations(); t.Failed() {
			return
		}
		if round%3 == 2 || round == attackRounds()-1 {
			c.mustRunTool("up")
			for name, id := range c.instanceGPUs(c.waitForView("all run again", again)) {
				checkEqual(t, name, id, placed[name])
			}
		}
	}
	t.Logf("killed: %v", killed)
	c.mustRunTool("down")
	c.waitForView("all is over", isNothingLeft)
	c.checkViolations()
	waitUntil(t, "no process is left", func() bool { return len(c.processesOf("")) == 0 })
}

// instanceGPUs are the GPUs of the instances.
func (c *exclusiveProject) instanceGPUs(s *projectView) map[string]string {
	on := map[string]string{}
	for _, r := range s.Rows {
		on[r.Name] = string(r.Seen.Devices[0].UUID)
	}
	return on
}

// runRandomChange changes what is wanted, and may be killed in the middle of it.
func (c *exclusiveProject) runRandomChange() {
	what := [][]string{{"up"}, {"up"}, {"restart", "node-1"}, {"restart"}, {"down"}, {"down", "node-2"}}[rand.IntN(6)]
	cmd := c.servicesCommand(what...)
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

// killSomeProcesses ends some of the processes of a kind, and says how many.
func (c *exclusiveProject) killSomeProcesses(what string) (count int) {
	var pids []int
	switch what {
	case "all":
		pids = slices.Concat(c.processesOf("project-supervise"), c.processesOf("project-keep"), c.servicePIDs())
	case "":
		pids = c.servicePIDs()
	default:
		pids = c.processesOf(what)
	}
	for _, pid := range pids {
		if what == "all" || what == "project-supervise" || rand.IntN(2) == 0 {
			_ = unix.Kill(pid, unix.SIGKILL)
			count++
		}
	}
	return count
}

// servicePIDs are the commands of the services.
func (c *exclusiveProject) servicePIDs() (pids []int) {
	for _, pid := range c.processesOf("") {
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
	c := newExclusiveProject(t, "demo:4xL4", "services:\n  one: {command: [alone]}\n  two: {command: [alone], cpu: true}\n")
	other := newExclusiveProject(t, c.machine, "services:\n  one: {command: [alone]}\n")
	other.state = c.state
	var commands []*exec.Cmd
	for range 4 {
		commands = append(commands, c.servicesCommand("up"))
	}
	commands = append(commands, other.servicesCommand("up"))
	var all sync.WaitGroup
	for _, cmd := range commands {
		all.Go(func() {
			if got := runCommand(t, cmd); got.code != 0 {
				t.Errorf("up: %+v", got)
			}
		})
	}
	all.Wait()
	mine := c.waitForView("one project runs", areInstancesSettled(2))
	its := other.waitForView("the other runs", areInstancesSettled(1))
	if a, b := mine.findInstance("one").Seen.Devices[0].UUID, its.findInstance("one").Seen.Devices[0].UUID; a == b {
		t.Errorf("both are on %s", a)
	}
	c.mustRunTool("down")
	c.waitForView("one is over", isNothingLeft)
	if !areInstancesSettled(1)(other.readView()) {
		t.Errorf("the other project ended too: %s", other.last)
	}
	other.mustRunTool("down")
	other.waitForView("the other is over", isNothingLeft)
	c.checkViolations()
	other.checkViolations()
}

// TestServicesChange: an up after a change of the file starts anew what changed, ends what is gone, and leaves the rest
// alone.
func TestServicesChange(t *testing.T) {
	t.Parallel()
	const file = "services:\n  same: {command: [alone], cpu: true}\n  other: {command: [alone], cpu: true}\n  gone: {command: [alone], cpu: true}\n"
	c := newExclusiveProject(t, "demo:1xL4", file)
	c.mustRunTool("up")
	before := c.waitForView("all run", areInstancesSettled(3))
	c.writeProjectFile("services:\n  same: {command: [alone], cpu: true}\n  other: {command: [alone, again], cpu: true}\n")
	checkContains(t, c.mustRunTool("up"), "Start:[other] Stay:[same] End:[gone]")
	after := c.waitForView("what is left runs", areInstancesSettled(2))
	checkEqual(t, "same", after.findInstance("same").Seen.Main, before.findInstance("same").Seen.Main)
	if after.findInstance("other").Seen.Main == before.findInstance("other").Seen.Main {
		t.Error("other was not started anew")
	}
	c.mustRunTool("down")
	c.waitForView("all is over", isNothingLeft)
	c.checkViolations()
}

// TestServicesRestart: restart decides what follows an end, and processes that a service leaves behind end with it.
func TestServicesRestart(t *testing.T) {
	t.Parallel()
	c := newExclusiveProject(t, "demo:1xL4", `services:
  never: {command: [sh, -c, "exit 3"], cpu: true}
  failing: {command: [sh, -c, "exit 4"], cpu: true, restart: on-failure}
  good: {command: [sh, -c, "sleep 1010 & exit 0"], cpu: true, restart: on-failure}
  always: {command: [sh, -c, "exit 0"], cpu: true, restart: always}
  late: {command: [sleep, "1011"], cpu: true, ready: {command: ["false"], timeout: 100ms}}
`)
	c.mustRunTool("up")
	s := c.waitForView("each came to its end", func(s *projectView) bool {
		return s.findInstance("failing").Seen.Restarts > 1 && s.findInstance("always").Seen.Restarts > 1 && s.findInstance("never").Seen.State == service.Failed &&
			s.findInstance("good").Seen.State == service.Done && s.findInstance("late").Seen.State == service.Failed
	})
	checkEqual(t, "exit of never", *s.findInstance("never").Seen.Exit, 3)
	checkEqual(t, "exit of failing", *s.findInstance("failing").Seen.Exit, 4)
	checkContains(t, s.findInstance("late").Seen.Why, "it was not ready within 100ms")
	c.mustRunTool("down")
	c.waitForView("all is over", isNothingLeft)
	waitUntil(t, "no process is left", func() bool { return len(c.processesOf("")) == 0 })
}

// TestServicesRemoved: services end when their project's folder is removed, because no command could find them.
func TestServicesRemoved(t *testing.T) {
	t.Parallel()
	c := newExclusiveProject(t, "demo:1xL4", "services:\n  one: {command: [alone]}\n  two: {command: [alone], cpu: true}\n")
	c.mustRunTool("up")
	s := c.waitForView("both run", areInstancesSettled(2))
	waitUntil(t, "both hear signals", func() bool { return len(c.readOrderNotes()) == 2 })
	waitUntil(t, "the folder is gone", func() bool { return os.RemoveAll(s.Dir) == nil }) // one that is written to meanwhile is not
	waitUntil(t, "no process is left", func() bool { return len(c.processesOf("")) == 0 })
	ends := slices.DeleteFunc(c.readOrderNotes(), func(line string) bool { return !strings.HasPrefix(line, "end ") })
	checkEqual(t, "ends", slices.Sorted(slices.Values(ends)), []string{"end one", "end two"})
	c.mustRunTool("up")
	c.waitForView("both run again", areInstancesSettled(2))
	c.mustRunTool("down")
	c.waitForView("all is over", isNothingLeft)
	c.checkViolations()
}

// TestServicesHurry: an end that takes its time can be hurried up, and costs those that wait for it no time of a processor.
func TestServicesHurry(t *testing.T) {
	t.Parallel()
	c := newExclusiveProject(t, "demo:1xL4", `services:
  slow: {command: [sh, -c, "trap '' TERM; echo ready; while :; do sleep 0.1; done"], ready: {log: ready}, cpu: true, grace: 1h}
`)
	c.mustRunTool("up")
	c.waitForView("it runs", areInstancesSettled(1))
	c.mustRunTool("down")
	c.waitForView("it is ending", func(s *projectView) bool { return s.findInstance("slow").Seen.State == service.Ending })
	time.Sleep(200 * time.Millisecond)
	waiting := append(c.processesOf("project-supervise"), c.processesOf("project-keep")...)
	before := processorTimeOf(waiting)
	time.Sleep(time.Second)
	if cost := processorTimeOf(waiting) - before; len(waiting) != 2 || cost > 200*time.Millisecond {
		t.Errorf("%d processes that wait used %s of a second", len(waiting), cost)
	}
	c.mustRunTool("kill")
	c.waitForView("all is over", isNothingLeft)
	waitUntil(t, "no process is left", func() bool { return len(c.processesOf("")) == 0 })
}

// TestServicesFolder: a folder of projects that leads elsewhere is not used.
func TestServicesFolder(t *testing.T) {
	t.Parallel()
	c := newExclusiveProject(t, "demo:1xL4", "services:\n  one: {command: [alone], cpu: true}\n")
	top := durablePath(c.state, os.Geteuid(), "projects")
	if err := os.MkdirAll(filepath.Dir(top), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), top); err != nil {
		t.Fatal(err)
	}
	got := runCommand(t, c.servicesCommand("up"))
	checkEqual(t, "exit", got.code, 1)
	checkContains(t, got.err, "cannot use the project's folder "+top+": it is not a folder; remove it")
}
