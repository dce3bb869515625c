package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"gpuard/internal/core/status"
	"gpuard/internal/gate"
)

// inTimeNamespace has a command run in a time namespace, where processes seem to have begun a thousand seconds later.
func inTimeNamespace(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	gpuard, err := exec.LookPath("gpuard")
	if err != nil {
		t.Fatal(err)
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args = append([]string{"unshare", "--time", "--boottime", "1000", "--fork", "--kill-child", gpuard}, cmd.Args[1:]...)
	cmd.Path = unshare
	return cmd
}

// TestSpacesTime: a process is the same one whatever the time namespace in which it is looked at, so that a lease whose
// command runs is not given back.
func TestSpacesTime(t *testing.T) {
	t.Parallel()
	gate.Need(t, "timens")
	r := newDemoMachine(t, "demo:2xL4")
	outside := startToFirstLine(t, r.jobCommand("sh", "-c", "echo $GPUARD_LEASE; exec sleep 300"))
	inside := startToFirstLine(t, inTimeNamespace(t, r.jobCommand("sh", "-c", "echo $GPUARD_LEASE; exec sleep 300")))
	for name, look := range map[string]func(*exec.Cmd) *exec.Cmd{"outside": func(cmd *exec.Cmd) *exec.Cmd { return cmd }, "inside": func(cmd *exec.Cmd) *exec.Cmd { return inTimeNamespace(t, cmd) }} {
		for _, lease := range []string{strings.TrimSpace(outside), strings.TrimSpace(inside)} {
			got := runCommand(t, look(r.releaseCommand(lease)))
			if got.code == 0 || !strings.Contains(got.err, "is running") {
				t.Errorf("released %s: %+v", name, got)
			}
		}
		var s status.Report
		got := runCommand(t, look(gpuardCommand(t, r.state, nil, "status", "--json", "--machine", r.machine)))
		if err := json.Unmarshal([]byte(got.out), &s); err != nil {
			t.Fatalf("%v: %+v", err, got)
		}
		held := 0
		for i := range s.Devices {
			for _, l := range s.Devices[i].Leases {
				if held++; l.Ended {
					t.Errorf("%s: %+v", name, l)
				}
			}
		}
		checkEqual(t, "leases seen "+name, held, 2)
	}
}
