package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
)

// startSleepWithEnv starts a process with these variables, and returns its PID.
func startSleepWithEnv(t *testing.T, env ...string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd.Process.Pid
}

// TestHoldTwice: a process that holds a lease keeps that one.
func TestHoldTwice(t *testing.T) {
	r := newDemoMachine(t, "demo")
	r.waitUntilFreed()
	pid := startSleepWithEnv(t)
	var first, second struct {
		Lease   string
		Already bool
		Devices []struct{ Index int }
	}
	for _, answer := range []any{&first, &second} {
		if got := r.reserveForPID(pid, "--json"); got.code != 0 || json.Unmarshal([]byte(got.out), answer) != nil {
			t.Fatalf("exit %d, %s%s", got.code, got.out, got.err)
		}
	}
	if first.Already || !second.Already || first.Lease != second.Lease || r.countLeases() != 1 {
		t.Errorf("%+v, then %+v, and %d leases", first, second, r.countLeases())
	}
	given := first.Devices[0].Index
	want := fmt.Sprintf("process %d already holds lease %s (GPU %d), until process %[1]d ends\n", pid, first.Lease, given)
	for _, flags := range [][]string{nil, {"--device", fmt.Sprint(given)}, {"--gpus", "1"}, {"--model", "*A100*", "--mem", "1G"}} {
		if got := r.reserveForPID(pid, flags...); got.code != 0 || got.out != want {
			t.Errorf("%q: exit %d, %q, %s", flags, got.code, got.out, got.err)
		}
	}
	remedy := fmt.Sprintf("cannot lease for process %d: it already holds lease %s (GPU %d), and something else is asked for; give that back first: gpuard release %[2]s", pid, first.Lease, given)
	for _, flags := range [][]string{{"--device", fmt.Sprint((given + 1) % 4)}, {"--gpus", "2"}, {"--model", "*H100*"}, {"--exclude", fmt.Sprint(given)}} {
		if got := r.reserveForPID(pid, flags...); got.code != 125 || !strings.Contains(got.err, remedy) {
			t.Errorf("%q: exit %d, %s", flags, got.code, got.err)
		}
	}
	if r.countLeases() != 1 {
		t.Errorf("%d leases", r.countLeases())
	}
}

// TestHoldOfARun: gpuard run has leased for its command already.
func TestHoldOfARun(t *testing.T) {
	r := newDemoMachine(t, "demo")
	r.waitUntilFreed()
	cmd := r.jobCommand("sh", "-c", "echo $GPUARD_LEASE; exec sleep 60")
	lease := startToFirstLine(t, cmd)
	got := r.reserveForPID(cmd.Process.Pid)
	if got.code != 0 || !strings.Contains(got.out, "already holds lease "+lease) || r.countLeases() != 1 {
		t.Errorf("exit %d, %s%s", got.code, got.out, got.err)
	}
	if got := r.reserveForPID(cmd.Process.Pid, "--gpus", "2"); got.code != 125 || strings.Contains(got.err, "release") {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
}

// TestHoldWhatItSees: the process's own variables decide, not those of the shell in which hold is typed.
func TestHoldWhatItSees(t *testing.T) {
	r := newDemoMachine(t, "demo")
	r.waitUntilFreed()
	pid := startSleepWithEnv(t, "CUDA_VISIBLE_DEVICES=1")
	cmd := gpuardCommand(t, r.state, []string{"CUDA_VISIBLE_DEVICES=2"}, "reserve", "--machine", "demo", "--pid", fmt.Sprint(pid))
	if got := runCommand(t, cmd); got.code != 0 || !strings.HasPrefix(got.out, "GPU 1 ") {
		t.Errorf("exit %d, %s%s", got.code, got.out, got.err)
	}
	blind := startSleepWithEnv(t, "CUDA_VISIBLE_DEVICES=1") // and that one is taken
	if got := r.reserveForPID(blind); got.code != 120 && got.code != 122 || !strings.Contains(got.err, fmt.Sprintf("process %d does not see it: CUDA_VISIBLE_DEVICES=1", blind)) {
		t.Errorf("exit %d, %s", got.code, got.err)
	} else if strings.Contains(got.err, "--any") {
		t.Errorf("a running process cannot look past its mask:\n%s", got.err)
	}
	none := startSleepWithEnv(t, "CUDA_VISIBLE_DEVICES=-1")
	if got := r.reserveForPID(none); got.code != 122 || !strings.Contains(got.err, fmt.Sprintf("start process %d again without that", none)) {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
	if got := r.reserveForPID(none, "--device", "3", "--any"); got.code != 0 || !strings.Contains(got.err, "does not see GPU 3") {
		t.Errorf("--any: exit %d, %s%s", got.code, got.out, got.err)
	}
}

// TestHoldWhereItIs: a process that is on a device that its first environment hid is held for there.
func TestHoldWhereItIs(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	cmd := r.fakeJobCommand(1, "2G", fakegpu.Compute)
	cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES=0")
	startToFirstLine(t, cmd)
	got := runCommand(t, r.privateCommand("reserve", "--pid", fmt.Sprint(cmd.Process.Pid)))
	if got.code != 0 || !strings.HasPrefix(got.out, "GPU 1 ") {
		t.Errorf("exit %d, %s%s", got.code, got.out, got.err)
	}
}

// privateCommand is cmd with what a lease needs where the tests run in a container.
func (r *fakeDriverMachine) privateCommand(command string, args ...string) *exec.Cmd {
	r.t.Helper()
	return r.cmd(append([]string{command, "--private-state"}, args...)...)
}

// TestHoldFirstProcess: a lease for the system's first process would end with the machine.
func TestHoldFirstProcess(t *testing.T) {
	gate.Need(t, "root")
	r := newDemoMachine(t, "demo")
	r.waitUntilFreed()
	if got := r.reserveForPID(1); got.code != 125 || !strings.Contains(got.err, "cannot lease for process 1: everything here runs in it") {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
	r.waitUntilFreed()
}

// TestShellLeaseTwice: a start file that is read again does not take a second GPU.
func TestShellLeaseTwice(t *testing.T) {
	r := newDemoMachine(t, "demo")
	r.waitUntilFreed()
	got := r.runShellScript(`eval "$(gpuard reserve --shell)"; first=$GPUARD_LEASE; eval "$(gpuard reserve --shell)"
		[ "$first" = "$GPUARD_LEASE" ] && echo same; gpuard status --json | grep -c '"use": "leased"'
		eval "$(gpuard reserve --shell --gpus 2)" || echo failed
		gpuard release $GPUARD_LEASE >&2; unset CUDA_VISIBLE_DEVICES; eval "$(gpuard reserve --shell --gpus 2)"; echo $CUDA_VISIBLE_DEVICES`)
	if want := "same\n1\nfailed\n2,3\n"; got.out != want {
		t.Errorf("%q, want %q\n%s", got.out, want, got.err)
	}
	checkContains(t, got.err, "already holds lease", "give that back first: gpuard release")
}

// runShellScript runs a script in which gpuard is on this machine.
func (r *demoMachine) runShellScript(script string) runResult {
	r.t.Helper()
	cmd := gpuardCommand(r.t, r.state, []string{"GPUARD_MACHINE=" + r.machine})
	cmd.Path, _ = exec.LookPath("bash")
	cmd.Args = []string{"bash", "-c", script}
	return runCommand(r.t, cmd)
}

// TestUndelivered: an answer that cannot be written leases nothing, for a full disk as for a closed pipe.
func TestUndelivered(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo")
	r.waitUntilFreed()
	for _, script := range []string{
		"gpuard reserve --shell >/dev/full; gpuard status --json | grep -c leased",
		"gpuard reserve --for 1h --json >/dev/full; gpuard status --json | grep -c leased",
		"gpuard reserve --pid $$ >/dev/full; gpuard status --json | grep -c leased",
		"gpuard reserve --pid $$ --json >/dev/full; gpuard status --json | grep -c leased",
		"{ while ! [ -e read ]; do :; done; gpuard reserve --shell; } | { exec <&-; >read; wait; }; gpuard status --json | grep -c leased",
	} {
		cmd := gpuardCommand(t, r.state, []string{"GPUARD_MACHINE=demo"})
		cmd.Path, _ = exec.LookPath("bash")
		cmd.Args, cmd.Dir = []string{"bash", "-c", script}, t.TempDir()
		if got := runCommand(t, cmd); got.out != "0\n" {
			t.Errorf("%s:\n%s%s", script, got.out, got.err)
		}
	}
}

// TestShellLeaseOnATerminal: typed without eval, the shell would have a lease and no variables.
func TestShellLeaseOnATerminal(t *testing.T) {
	gate.Need(t, "python3")
	r := newDemoMachine(t, "demo")
	r.waitUntilFreed()
	for flags, want := range map[string]string{"": `type: eval "$(gpuard reserve --shell)"`, "=fish": "type: gpuard reserve --shell=fish | source"} {
		got := r.runShellScript(fmt.Sprintf(`python3 -c 'import pty, sys; sys.exit(pty.spawn(["gpuard", "reserve", "--shell" + %q]) >> 8)'`, flags) + "; echo code $?")
		checkContains(t, got.out, want, "code 125")
		if r.countLeases() != 0 {
			t.Errorf("%d leases", r.countLeases())
		}
	}
}
