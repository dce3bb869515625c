package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gpuard/test/fakegpu"
)

// TestWaitDrained: a device that was drained while a request waited for it is not given when it becomes free, also on
// an invented machine, where no other event makes a reading old.
func TestWaitDrained(t *testing.T) {
	t.Parallel()
	l := newLineFixture(t)
	waiter := l.startQueued("one", 1)
	admin := func(verb string) {
		t.Helper()
		if got := runCommand(t, gpuardCommand(t, l.state, nil, verb, "0", "--machine", l.machine)); got.code != 0 {
			t.Fatalf("%s: exit %d, %s", verb, got.code, got.err)
		}
	}
	admin("drain")
	l.freeDevice()
	waitUntil(t, "its lease has ended", func() bool { return l.countLeases() == 0 })
	time.Sleep(200 * time.Millisecond) // a waiter that is woken takes a device within milliseconds
	if ran := l.readRunOrder(); len(ran) > 0 {
		t.Fatalf("%v got a drained device", ran)
	}
	admin("undrain")
	if err := waiter.Wait(); err != nil {
		t.Error(err)
	}
	l.checkNoTickets()
}

// TestWaitEndedWhileReading: a signal, or the end of the time, counts also where it comes during a reading of the
// machine, which it interrupts; nothing else is said.
func TestWaitEndedWhileReading(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	startToFirstLine(t, r.fakeJobCommand(0, "20G", fakegpu.Compute))
	r.Delay("nvmlDeviceGetMemoryInfo_v2", 0, 400)
	for _, after := range []time.Duration{300 * time.Millisecond, 450 * time.Millisecond} { // the first slow reading comes after 200 ms
		cmd := r.hastyCommand("run", "-q", "--", "true")
		var errs strings.Builder
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "it stands in the line", func() bool { // status would read the machine for as long
			tickets, _ := filepath.Glob(filepath.Join(r.state, "tickets", "*", "*.ticket"))
			return len(tickets) == 1
		})
		time.Sleep(after)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if end, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !end.Signaled() || end.Signal() != syscall.SIGTERM || errs.Len() > 0 {
			t.Errorf("%v after it stood in the line: %v, %q", after, cmd.ProcessState, errs.String())
		}
	}
	for _, wait := range []string{"600ms", "800ms"} {
		got := runCommand(t, r.hastyCommand("run", "-q", "--wait="+wait, "--", "true"))
		checkEqual(t, "exit", got.code, 121)
		checkContains(t, got.err, "after waiting "+wait, "in use without a lease by PID ")
		if strings.Contains(got.err, "no answer") {
			t.Errorf("a reading that the end of the time interrupted counts: %s", got.err)
		}
	}
}

// TestWaitNamesTheLease: whenever the time of --wait is over, the lease is named that was waited for.
func TestWaitNamesTheLease(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	r.holdDevice("0")
	r.Delay("nvmlDeviceGetMemoryInfo_v2", 0, 60)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			wait := fmt.Sprint(300+25*i, "ms")
			got := runCommand(t, r.hastyCommand("run", "--wait="+wait, "--", "true"))
			checkEqual(t, "exit", got.code, 121)
			checkContains(t, got.err, "after waiting "+wait, "leased as ")
			if strings.Contains(got.err, "no answer") {
				t.Errorf("--wait %s: %s", wait, got.err)
			}
		})
	}
	all.Wait()
}

// TestWaitReasons: a waiter says what it waits for where that is no command: a drain, with its reason and that a person
// has to act. A refusal does not call a drained device busy.
func TestWaitReasons(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:2xL4")
	ask := func(args ...string) runResult {
		return runCommand(t, gpuardCommand(t, r.state, nil, append(args, "--machine", r.machine)...))
	}
	checkEqual(t, "drain", ask("drain", "0", "--reason", "fan replacement").code, 0)
	refused := runCommand(t, gpuardCommand(t, r.state, nil, "run", "--no-wait", "--device", "0,1", "--machine", r.machine, "--", "true"))
	checkContains(t, refused.err, "GPU 0  drained  fan replacement (")
	late := startBackgroundRun(t, gpuardCommand(t, r.state, nil, "run", "--device", "0", "--machine", r.machine, "--", "true"))
	late.waitForText("1st of 1; a user has to act; GPU 0: drained: fan replacement (")
	late.endRun()
	checkEqual(t, "undrain", ask("undrain", "0").code, 0)
}

// TestWaitMistakes: what was meant as the time of --wait is not looked for as a command, and what waits for nothing is
// named.
func TestWaitMistakes(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	for flags, want := range map[string]string{
		"run --wait 10 -- true":    `cannot read --wait "10": the unit is missing; write --wait=10s`,
		"run --wait 10M true":      `cannot read --wait "10M": write a time`,
		"run --wait abc -- true":   `cannot read --wait "abc": write a time`,
		"run --wait 9999d -- true": "to run a command of that name: --wait -- 9999d",
		"run --wait=0 -- true":     "write --no-wait for an immediate answer",
		"run --wait=0s -- true":    "write --no-wait for an immediate answer",
	} {
		got := runCommand(t, gpuardCommand(t, state, nil, append(strings.Fields(flags), "--machine", "demo:1xL4")...))
		if got.code != 125 || !strings.Contains(got.err, want) {
			t.Errorf("%s: exit %d, %s", flags, got.code, got.err)
		}
	}
	if got := runCommand(t, gpuardCommand(t, state, nil, "reserve", "--help")); strings.Contains(got.out, "cpu, wait") {
		t.Error("reserve offers to fall back to the CPU, which it refuses")
	}
}

// TestFallbackDry: a dry run answers what --no-wait would, and a refusal does not advise what --fallback has tried.
func TestFallbackDry(t *testing.T) {
	t.Parallel()
	l := newLineFixture(t)
	dry := func(machine string, flags ...string) runResult {
		return runCommand(t, gpuardCommand(t, l.state, nil, append([]string{"run", "--machine", machine, "--dry-run"}, flags...)...))
	}
	cpu := dry(l.machine, "--fallback", "cpu")
	checkEqual(t, "cpu", cpu.code, 0)
	checkContains(t, cpu.out, "no GPU", "as --fallback cpu says")
	other := dry("demo:2xL4", "--device", "7", "--fallback", "other")
	checkEqual(t, "other", other.code, 0)
	checkContains(t, other.out, "would be cuda:0", "as --fallback other says")
	none := dry(l.machine, "--device", "0", "--fallback", "other")
	for what, got := range map[string]string{"dry": none.out, "run": runCommand(t, gpuardCommand(t, l.state, nil, "run", "--machine", l.machine, "--device", "0", "--fallback", "other", "--", "true")).err} {
		if !strings.Contains(got, "none of 1 is free") || strings.Contains(got, "name another device") {
			t.Errorf("%s: %s", what, got)
		}
	}
	checkEqual(t, "none", none.code, 120)
}
