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

// TestPolicyTimeOfShell: a job that was started in a shell keeps its GPU when the time of the shell's lease is over, until its own is.
func TestPolicyTimeOfShell(t *testing.T) {
	t.Parallel()
	g := govern(t, "rules:\n- name: short\n  users: ["+strconv.Itoa(alice)+"]\n  time: 4s\n")
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(open, 0o777), os.Chmod(filepath.Dir(open), 0o755)); err != nil {
		t.Fatal(err)
	}
	shell := g.by(alice, "run", "--", "true")
	shell.Path, shell.Args = "/bin/sh", []string{"sh", "-c", `eval "$(surveyed reserve --shell --device 2)" && sleep 2 && surveyed run -q -- sh -c 'trap "rmdir $0/used; exit" TERM; mkdir $0/used; echo on; while :; do sleep 0.05; done' ` + open}
	same(t, "the job", begin(t, shell), "on")
	bobs := g.by(bob, "run", "-q", "--wait=60s", "--device", "2", "--", "sh", "-c", `mkdir "$0/used" && echo alone`, open)
	same(t, "the next job on that GPU", run(t, bobs).out, "alone\n")
	_ = shell.Wait()
	g.freed()
}
