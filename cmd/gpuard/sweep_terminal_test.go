package main

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSweepKeys: on a terminal one line stays current. Ctrl-C asks what runs to end, and says so; a second one does not
// wait for what ignores that.
func TestSweepKeys(t *testing.T) {
	t.Parallel()
	f := newSweepFixture(t, "demo:2xL4")
	cmd := f.sweepCommand("--grace", "10m", "--over", "x=1..5", "--", "sh", "-c", `[ {{.x}} = 1 ] && exit; trap "" TERM INT; echo; sleep 60 & wait`)
	s := startOnTerminal(t, cmd)
	s.waitForScreen(`\r\x1b\[Kgpuard: \[####-+\] 1/5, 2 running`)
	s.typeKeys("\x03")
	s.waitForScreen("ending what runs")
	s.typeKeys("\x03")
	s.waitForScreen("1 of 5 runs ok, 4 not done")
	_ = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != unix.SIGINT {
		t.Errorf("it ended as %v", cmd.ProcessState)
	}
	for _, row := range f.readResults() {
		if (row["state"] == "ok") != (row["run"] == "0") || strings.Contains(row["state"], "running") {
			t.Errorf("run %s is %s", row["run"], row["state"])
		}
	}
	checkEqual(t, "leases", (&demoMachine{t: t, state: f.state}).countLeases(), 0)
}
