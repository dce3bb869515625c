package main

import (
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// TestPolicyTimeOfProcess: where a rule limits the time, the lease of a process that gpuard did not start ends with it. The
// process goes on, and another user gets the GPU. Those who look at the machine see the end before.
func TestPolicyTimeOfProcess(t *testing.T) {
	t.Parallel()
	g := govern(t, "rules:\n- name: short\n  users: ["+strconv.Itoa(alice)+"]\n  time: 4s\n")
	sleeper := exec.Command("sleep", "300")
	sleeper.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: alice, Gid: alice}}
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- sleeper.Wait() }()
	defer sleeper.Process.Kill() //nolint:errcheck // it may be gone
	g.says(g.by(alice, "reserve", "--pid", strconv.Itoa(sleeper.Process.Pid), "--device", "2"), 0, "GPU 2 ",
		", until process "+strconv.Itoa(sleeper.Process.Pid)+" ends, ", ` at the latest (policy: rule "short" (`+g.file()+":2))")
	g.says(g.by(alice, "reserve", "--pid", strconv.Itoa(sleeper.Process.Pid), "--device", "2"), 0, "already holds lease ", " at the latest (policy: a rule)")
	contains(t, g.says(g.by(bob, "status", "--json"), 0).out, `"until": "2`)
	lease := g.living()[0].ID
	g.says(g.by(alice, "cancel", lease), 1, "was not started by gpuard; to give the lease back: gpuard release "+lease)
	g.says(g.by(bob, "run", "--no-wait", "--device", "2", "--", "true"), 120, "leased as ")
	g.says(g.by(bob, "run", "--wait=30s", "--device", "2", "--", "true"), 0)
	select {
	case err := <-ended:
		t.Errorf("the process was ended with its lease: %v", err)
	default:
	}
	g.freed()
}
