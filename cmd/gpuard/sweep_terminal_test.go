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
	f := newField(t, "demo:2xL4")
	cmd := f.sweep("--grace", "10m", "--over", "x=1..5", "--", "sh", "-c", `[ {{.x}} = 1 ] && exit; trap "" TERM INT; echo; sleep 60 & wait`)
	s := onTerminal(t, cmd)
	s.until(`\r\x1b\[Kgpuard: \[####-+\] 1/5, 2 running`)
	s.press("\x03")
	s.until("ending what runs")
	s.press("\x03")
	s.until("1 of 5 runs ok, 4 not done")
	_ = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != unix.SIGINT {
		t.Errorf("it ended as %v", cmd.ProcessState)
	}
	for _, row := range f.results() {
		if (row["state"] == "ok") != (row["run"] == "0") || strings.Contains(row["state"], "running") {
			t.Errorf("run %s is %s", row["run"], row["state"])
		}
	}
	same(t, "leases", (&rig{t: t, state: f.state}).leases(), 0)
}
