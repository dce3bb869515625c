package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// TestPolicyTimeOfProcess: where a rule limits the time, the lease of a process that gpuard did not start ends with it. The
// process goes on, and another user gets the GPU. Those who look at the machine see the end before.
func TestPolicyTimeOfProcess(t *testing.T) {
	t.Parallel()
	g := newPolicyMachine(t, "rules:\n- name: short\n  users: ["+strconv.Itoa(aliceUID)+"]\n  time: 4s\n")
	sleeper := exec.Command("sleep", "300")
	sleeper.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: aliceUID, Gid: aliceUID}}
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- sleeper.Wait() }()
	defer sleeper.Process.Kill() //nolint:errcheck // it may be gone
	g.checkRun(g.commandAs(aliceUID, "reserve", "--pid", strconv.Itoa(sleeper.Process.Pid), "--device", "2"), 0, "GPU 2 ",
		", until process "+strconv.Itoa(sleeper.Process.Pid)+" ends, ", ` at the latest (policy: rule "short" (`+g.policyFile()+":2))")
	g.checkRun(g.commandAs(aliceUID, "reserve", "--pid", strconv.Itoa(sleeper.Process.Pid), "--device", "2"), 0, "already holds lease ", " at the latest (policy: a rule)")
	checkContains(t, g.checkRun(g.commandAs(bobUID, "status", "--json"), 0).out, `"until": "2`)
	lease := g.liveLeases()[0].ID
	g.checkRun(g.commandAs(aliceUID, "cancel", lease), 1, "was not started by gpuard; to give the lease back: gpuard release "+lease)
	g.checkRun(g.commandAs(bobUID, "run", "--no-wait", "--device", "2", "--", "true"), 120, "leased as ")
	g.checkRun(g.commandAs(bobUID, "run", "--wait=30s", "--device", "2", "--", "true"), 0)
	select {
	case err := <-ended:
		t.Errorf("the process was ended with its lease: %v", err)
	default:
	}
	g.waitUntilFreed()
}

// TestPolicyTimeOfShell: a job that was started in a shell keeps its GPU when the time of the shell's lease is over, until its own is.
func TestPolicyTimeOfShell(t *testing.T) {
	t.Parallel()
	g := newPolicyMachine(t, "rules:\n- name: short\n  users: ["+strconv.Itoa(aliceUID)+"]\n  time: 4s\n")
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(open, 0o777), os.Chmod(filepath.Dir(open), 0o755)); err != nil {
		t.Fatal(err)
	}
	shell := g.commandAs(aliceUID, "run", "--", "true")
	shell.Path, shell.Args = "/bin/sh", []string{"sh", "-c", `eval "$(surveyed reserve --shell --device 2)" && sleep 2 && surveyed run -q -- sh -c 'trap "rmdir $0/used; exit" TERM; mkdir $0/used; echo on; while :; do sleep 0.05; done' ` + open}
	checkEqual(t, "the job", startToFirstLine(t, shell), "on")
	bobs := g.commandAs(bobUID, "run", "-q", "--wait=60s", "--device", "2", "--", "sh", "-c", `mkdir "$0/used" && echo alone`, open)
	checkEqual(t, "the next job on that GPU", runCommand(t, bobs).out, "alone\n")
	_ = shell.Wait()
	g.waitUntilFreed()
}
