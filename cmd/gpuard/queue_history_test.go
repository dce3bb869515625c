package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/trend"
	"gpuard/internal/host/sys"
)

// TestQueueHistory: what was measured of a job's devices is in the history, and adds up by user, GPU and command.
func TestQueueHistory(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 2)
	l.SetValue(0, "utilization", "75 10")
	l.SetValue(1, "utilization", "75 10")
	measured := func(words ...string) {
		t.Helper()
		c := l.submitCommand(words...)
		c.Args[0] = "sampling"
		checkEqual(t, "submit", runCommand(t, c).code, 0)
	}
	var h []userqueue.Entry
	for n, lasts := range []string{"1.5", "6", "24"} { // a machine that does something else for long measures little
		l.SetValue(0, "memory_used", "0")
		measured("--gpus", "2", "--name", "train", "--", "sleep", lasts)
		waitUntil(t, "it runs", func() bool { q := l.queuedJobs(); return len(q) == 1 && q[0].State == userqueue.Running })
		l.SetValue(0, "memory_used", "10737418240")
		checkEqual(t, "wait", l.run("wait", strconv.Itoa(n+1)).code, 0)
		l.waitUntilAllEnded()
		if h = slices.DeleteFunc(l.endedJobs(), func(e userqueue.Entry) bool { return e.Number != n+1 }); len(h) == 1 && h[0].Load != nil && h[0].Peak != nil {
			break
		}
	}
	if len(h) != 1 || h[0].Load == nil || *h[0].Load < 0.7 || *h[0].Load > 0.8 || h[0].Peak == nil || h[0].Peak.String() != "10 GiB" && h[0].Peak.String() != "10.0 GiB" {
		t.Fatalf("%+v", h)
	}
	if h[0].Granted < 2*1.4 || h[0].Used < 0.7*h[0].Granted || h[0].Used > 0.8*h[0].Granted || h[0].Idle+h[0].Used < 0.99*h[0].Granted {
		t.Errorf("%+v", h[0])
	}
	checkContains(t, l.run("history").out, "load 75 %", "10")
	for by, want := range map[string]int{"user": 1, "gpu": 2, "command": 1} {
		var a struct{ Use []trend.Use }
		got := l.run("history", "--by", by, "--since", "1h", "--json")
		if err := json.Unmarshal([]byte(got.out), &a); err != nil || len(a.Use) != want || a.Use[0].Granted <= 0 || a.Use[0].Idle <= 0 {
			t.Errorf("%s: %+v, %v", by, got, err)
		}
	}
	checkContains(t, l.run("history", "--by", "command").out, "train")
	checkContains(t, l.run("simulate").out, "jobs of the leases that have ended", " own ")
	checkEqual(t, "by what", l.run("history", "--by", "moon").code, 2)
	checkEqual(t, "nothing since", l.run("history", "--since", "1s", "--by", "user").code, 0)
}

// TestQueueBuriesWhatMeasured: what a killed runner has started to measure its jobs is waited for when it ends.
func TestQueueBuriesWhatMeasured(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 2)
	for _, until := range []string{"first", "second"} { // the second keeps the queue while the first one ends
		c := l.submitCommand("--", "sh", "-c", "until test -e "+l.marks+"/"+until+"; do sleep 0.1; done")
		c.Args[0] = "sampling"
		checkEqual(t, "submit", runCommand(t, c).code, 0)
	}
	waitUntil(t, "they are measured", func() bool { return len(measurersOf(l.state)) == 1 })
	measures, keeper, runner := measurersOf(l.state)[0], l.queueProcesses(userqueue.Flag), l.queueProcesses(userqueue.RunnerFlag)
	if len(keeper) != 1 || len(runner) != 1 {
		t.Fatalf("keepers %v, runners %v", keeper, runner)
	}
	killProcess(t, runner[0])
	waitUntil(t, "it has another parent", func() bool { p, found := sys.ReadProcess(measures); return found && p.Parent == keeper[0] })
	killProcess(t, measures)
	waitUntil(t, "it is buried", func() bool { _, found := sys.ReadProcess(measures); return !found })
	checkEqual(t, "who keeps the queue", l.queueProcesses(userqueue.Flag), keeper)
	writeFile(t, l.marks+"/first", "", 0o600)
	writeFile(t, l.marks+"/second", "", 0o600)
	l.waitUntilAllEnded()
	l.waitForNoLeases()
}
