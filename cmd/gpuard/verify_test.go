package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gpuard/internal/app/verify"
	"gpuard/internal/core/proof"
	"gpuard/internal/gate"
	"gpuard/test/executable"
	"gpuard/test/fakegpu"
)

// startUnleased starts a process without gpuard on this machine; its first line says that it is there.
func (r *fakeDriverMachine) startUnleased(env []string, script string) int {
	r.t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(append(os.Environ(), r.Env()...), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	startToFirstLine(r.t, cmd)
	r.t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	return cmd.Process.Pid
}

// startLeasedScript starts a script inside a lease of a device; the script's first line must be its lease.
func (r *fakeDriverMachine) startLeasedScript(device int, script string, flags ...string) (lease string, pid int) {
	r.t.Helper()
	cmd := r.cmd(append(append([]string{"run", "-q", "--device", fmt.Sprint(device)}, flags...), "--", "sh", "-c", "echo $GPUARD_LEASE; "+script)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	lease = startToFirstLine(r.t, cmd)
	r.t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	return lease, cmd.Process.Pid
}

// mustVerify runs verify, which must end with that verdict and exit code.
func (r *fakeDriverMachine) mustVerify(want proof.Verdict, code int, args ...string) (v verify.Verification) {
	r.t.Helper()
	got := runCommand(r.t, r.cmd(append([]string{"verify", "--json"}, args...)...))
	if err := json.Unmarshal([]byte(got.out), &v); err != nil {
		r.t.Fatalf("%v\n%s%s", err, got.out, got.err)
	}
	if v.Verdict != want || got.code != code || v.Schema != "gpuard.verify/1" {
		r.t.Fatalf("exit %d, want %s and %d:\n%s", got.code, want, code, got.out)
	}
	return v
}

func TestVerifyProven(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(3)...)
	lease, pid := r.startLeasedScript(1, "exec fakegpu-job --gpu 1 --mem 3G")
	r.startFakeJob(2, "1G", fakegpu.Compute) // another user's
	for _, target := range []string{lease, fmt.Sprint(pid)} {
		v := r.mustVerify(proof.Proven, 0, target)
		place := "GPU 1 (NVIDIA A100-SXM4-80GB, " + fakeUUID(1) + ")"
		checkEqual(t, "text", v.Text, fmt.Sprintf("fakegpu-job (process %d) is on %s, 3 GiB", pid, place))
		checkEqual(t, "witnesses", []any{v.Variable, v.Promised[0].Index, v.Lease, v.Leased[0].Index, len(v.Sightings)}, []any{"CUDA_VISIBLE_DEVICES=1", 1, lease, 1, 1})
		text := r.run("verify", target)
		checkContains(t, strings.Join(strings.Fields(text.out), " "), "proven: fakegpu-job", "environment CUDA_VISIBLE_DEVICES=1 shows "+place, "lease "+lease+" has "+place, "driver fakegpu-job")
	}
}

func TestVerifyWithoutALease(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	pid := r.startUnleased([]string{"CUDA_VISIBLE_DEVICES=0"}, "CUDA_VISIBLE_DEVICES=1 fakegpu-job --gpu 1; true")
	v := r.mustVerify(proof.WrongDevice, 1, fmt.Sprint(pid))
	checkContains(t, v.Text, "is on GPU 1", "its environment (CUDA_VISIBLE_DEVICES=0) shows it only GPU 0")
	checkContains(t, v.Remedy, fmt.Sprintf("kill %d", v.Sightings[0].PID))
	if v.Sightings[0].PID == pid {
		t.Error("the child was not told from its parent")
	}
	right := r.startUnleased([]string{"CUDA_VISIBLE_DEVICES=0"}, "exec fakegpu-job --gpu 0")
	checkEqual(t, "lease", r.mustVerify(proof.Proven, 0, fmt.Sprint(right)).Lease, "")
}

// TestVerifyOutsideTheLease: a program rewrites the variable itself and lands on a device that is not its own.
func TestVerifyOutsideTheLease(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	program := filepath.Join(t.TempDir(), "train")
	text := `#!/bin/sh
export CUDA_VISIBLE_DEVICES=1
fakegpu-job --gpu "$CUDA_VISIBLE_DEVICES"
exit
`
	executable.Write(t, program, []byte(text))
	lease, pid := r.startLeasedScript(0, "echo $CUDA_VISIBLE_DEVICES; exec "+program)
	v := r.mustVerify(proof.OutsideLease, 1, lease)
	checkContains(t, v.Text, "is on GPU 1", "which is not in lease "+lease+": it has GPU 0")
	checkEqual(t, "what it was started with", v.Variable, "CUDA_VISIBLE_DEVICES=0")
	checkEqual(t, "by the process", r.mustVerify(proof.OutsideLease, 1, fmt.Sprint(pid)).Lease, lease)
	got := r.run("verify", lease)
	checkContains(t, got.out, "outside the lease: ", "to do: ")
}

// TestVerifyLeaseInside: of a script that starts a job with a lease of its own, the job is judged by that one.
func TestVerifyLeaseInside(t *testing.T) {
	t.Parallel()
	for gpu, want := range map[string]proof.Verdict{"0": proof.Proven, "1": proof.OutsideLease} {
		r := newFakeDriverMachine(t, makeA100s(2)...)
		cmd := exec.Command("sh", "-c", "gpuard run -q $PRIVATE --device 0 -- fakegpu-job --gpu "+gpu+"; true")
		cmd.Env, cmd.SysProcAttr = r.cmd("run").Env, &syscall.SysProcAttr{Setpgid: true}
		startToFirstLine(t, cmd)
		t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		v := r.mustVerify(want, map[proof.Verdict]int{proof.OutsideLease: 1}[want], fmt.Sprint(cmd.Process.Pid))
		if want == proof.OutsideLease {
			checkContains(t, v.Text, "is on GPU 1", "which is not in lease ", ": it has GPU 0")
		}
	}
}

// TestVerifyAfterTheParent: a process that has left the tree still belongs to the job that has its lease.
func TestVerifyAfterTheParent(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	lease, pid := r.startLeasedScript(0, "fakegpu-job --gpu 1 --fork-child 60 --close-fds; exec sleep 60")
	waitUntil(t, "the child is on the GPU", func() bool {
		s, _ := r.readStatus()
		return len(s.Devices[1].Processes) == 1
	})
	v := r.mustVerify(proof.OutsideLease, 1, lease)
	if v.Sightings[0].PID == pid {
		t.Errorf("seen: %+v", v.Sightings)
	}
	_ = syscall.Kill(v.Sightings[0].PID, syscall.SIGKILL)
}

func TestVerifyNowhere(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	idle := r.startUnleased(nil, "echo; exec sleep 60")
	v := r.mustVerify(proof.TooEarly, 123, "--for", "300ms", fmt.Sprint(idle))
	checkContains(t, v.Text, "is on no GPU yet")
	busy := r.startUnleased(nil, "for i in 1 2 3 4; do while :; do :; done & done; echo; wait")
	waitUntil(t, "a job that computes is told", func() bool { // it has computed when it got its part of a busy machine
		got := r.run("verify", "--json", "--for", "1s", fmt.Sprint(busy))
		if err := json.Unmarshal([]byte(got.out), &v); err != nil || v.Verdict != proof.TooEarly && v.Verdict != proof.CPU {
			t.Fatalf("%v, exit %d:\n%s%s", err, got.code, got.out, got.err)
		}
		return v.Verdict == proof.CPU && got.code == 1
	})
	_ = syscall.Kill(-busy, syscall.SIGKILL)
	checkContains(t, v.Text, "of CPU time in", "was never seen on a GPU")
	blind := r.startUnleased([]string{"CUDA_VISIBLE_DEVICES=-1"}, "echo; exec sleep 60")
	v = r.mustVerify(proof.CPU, 1, "--for", "500ms", fmt.Sprint(blind))
	checkContains(t, v.Text, "its environment shows it none: CUDA_VISIBLE_DEVICES=-1")
	r.Fail("nvmlDeviceGetComputeRunningProcesses_v3", fakegpu.AnyGPU, 4)
	r.Fail("nvmlDeviceGetComputeRunningProcesses_v2", fakegpu.AnyGPU, 4)
	v = r.mustVerify(proof.NotMeasurable, 123, fmt.Sprint(idle))
	checkContains(t, v.Text, "cannot list its processes: Insufficient Permissions")
	r.FailInit(9)
	v = r.mustVerify(proof.NotMeasurable, 123, fmt.Sprint(idle))
	checkContains(t, v.Text, "cannot be looked for on the GPUs")
	text := r.run("verify", fmt.Sprint(idle))
	checkContains(t, text.out, "not measurable: ", "environment  not known", "driver       not known", "to do: ")
}

func TestVerifyCommand(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	cmd := r.cmd("verify", "--", "sh", "-c", "read line; echo said $line; fakegpu-job --gpu 1 --seconds 2; exit 3")
	cmd.Stdin = strings.NewReader("hello\n")
	got := runCommand(t, cmd)
	checkEqual(t, "exit and output", []any{got.code, got.out}, []any{0, "said hello\nready\n"})
	checkContains(t, got.err, "gpuard: proven: fakegpu-job", "s on GPU 1 (", "gpuard: sh ended with exit status 3")

	cmd = r.cmd("verify", "--json", "--", "sh", "-c", "CUDA_VISIBLE_DEVICES=1 fakegpu-job --gpu 1 --seconds 2; true")
	cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES=0")
	got = runCommand(t, cmd)
	var v verify.Verification
	if err := json.Unmarshal([]byte(got.err), &v); err != nil || v.Verdict != proof.WrongDevice || got.code != 1 {
		t.Errorf("exit %d, %v\n%s", got.code, err, got.err)
	}

	got = r.verifyLongEnough(func(seconds int) runResult { return r.run("verify", "--", "sleep", fmt.Sprint(seconds)) })
	checkEqual(t, "exit of a job that was nowhere", got.code, 1)
	checkContains(t, got.err, "gpuard: not on any GPU (CPU fallback): sleep (process ", "ended after ")
	waitUntil(t, "a job is too short to be seen", func() bool { // a busy machine may make any job long
		got = r.run("verify", "--", "true")
		return got.code == 123
	})
}

// TestVerifyCommandSignals: what is sent to verify alone reaches the command, once, and the verdict still counts.
func TestVerifyCommandSignals(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		out := filepath.Join(t.TempDir(), "out")
		script := fmt.Sprintf(`trap 'echo caught >> %s; kill $job; exit 0' TERM INT QUIT HUP; fakegpu-job --gpu 0 & job=$!; echo; while :; do wait; done`, out)
		cmd := r.cmd("verify", "--", "sh", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		errs := &outputBuffer{}
		cmd.Stderr = errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "it is proven", func() bool { return strings.Contains(errs.String(), "gpuard: proven: ") })
		_ = cmd.Process.Signal(sig)
		_ = cmd.Wait()
		said, _ := os.ReadFile(out)
		checkEqual(t, "caught after "+sig.String(), string(said), "caught\n")
		if cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("after %s: %v\n%s", sig, cmd.ProcessState, errs.String())
		}
	}
}

// TestVerifyCommandKeys: the keys of a terminal reach verify and the command; the command alone acts on them, and once.
func TestVerifyCommandKeys(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	s := startOnTerminal(t, r.cmd("verify", "--for", "500ms", "--", "sh", "-c",
		`trap 'echo got INT' INT; trap 'echo got QUIT' QUIT; (trap '' INT QUIT; exec fakegpu-job --gpu 0) & while :; do read line && break; done; kill $!; echo over; exit 4`))
	s.waitForScreen("ready\n", "gpuard: proven: fakegpu-job")
	s.typeKeys("\x03")
	s.waitForScreen("got INT\n")
	s.typeKeys("\x1c")
	s.waitForScreen("got QUIT\n")
	s.typeKeys("\n")
	if text := s.waitForScreen("gpuard: sh ended with exit status 4\n"); strings.Contains(text, "got") {
		t.Errorf("a key came twice:\n%s", text)
	}
	_ = s.cmd.Wait()
	checkEqual(t, "exit", s.cmd.ProcessState.ExitCode(), 0)
}

func TestVerifyMistakes(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"verify"}, 2, "cannot verify: no command given"},
		{[]string{"verify", "--"}, 2, "after --"},
		{[]string{"verify", "python", "train.py"}, 2, "gpuard verify -- python train.py"},
		{[]string{"verify", "zzzz"}, 2, "neither a process id nor a live lease"},
		{[]string{"verify", fmt.Sprint(gone.Process.Pid)}, 2, "there is no such process"},
		{[]string{"verify", "--for", "soon", "1"}, 2, "--for=90s"},
		{[]string{"verify", "--for", "0s", "1"}, 2, "--for=90s"},
		{[]string{"verify", "--for", "2", "1"}, 2, "the unit is missing; write --for=2s"},
		{[]string{"verify", "--machine", "demo", "1"}, 2, "cannot verify on an invented machine"},
		{[]string{"verify", "--", "/no/such/thing"}, 127, "no such file"},
		{[]string{"verify", "--", "/etc"}, 126, "cannot run"},
		{[]string{"verify", "--json", "--", "/no/such/thing"}, 127, `{"schema":"gpuard.verify/1","error":"cannot run`},
		{[]string{"reserve", "--shell", "--bogus"}, 125, "no such flag"},
		{[]string{"reserve", "--shell", "--gpus", "x"}, 125, "--gpus 1"},
		{[]string{"env", "--bogus"}, 2, "no such flag"},
		{[]string{"run", "--verify", "--machine", "demo", "--", "true"}, 125, "cannot verify on an invented machine"},
		{[]string{"run", "--verify=never", "--", "true"}, 125, "--verify=90s"},
		{[]string{"run", "--verify=foo", "--machine", "demo", "--", "true"}, 125, `cannot read --verify "foo"`},
		{[]string{"run", "--dry-run", "--verify=foo"}, 125, `cannot read --verify "foo"`},
		{[]string{"run", "--verify", "5s", "--", "true"}, 125, "write --verify=5s;"},
		{[]string{"run", "--verify", "30", "--", "true"}, 125, "write --verify=30s;"},
		{[]string{"run", "--verify=5s,halt", "--", "true"}, 125, "only stop can follow the comma"},
		{[]string{"run", "--verify", "--cpu", "--", "true"}, 125, "--cpu asks for no GPU"},
	} {
		got := r.run(c.args...)
		if got.code != c.code || !strings.Contains(got.err, c.says) {
			t.Errorf("%q: exit %d, want %d and %q:\n%s", c.args, got.code, c.code, c.says, got.err)
		}
	}
	if s, _ := r.readStatus(); len(s.Devices[0].Leases) != 0 {
		t.Error("a mistake has leased something")
	}
}

// TestVerifyTorch: Debian's PyTorch is built for the CPU, and says so itself.
func TestVerifyTorch(t *testing.T) {
	t.Parallel()
	gate.Need(t, "torch")
	if raceEnabled {
		t.Skip("nearly all of its time is PyTorch's, of which the race detector sees nothing")
	}
	r := newFakeDriverMachine(t, makeA100s(1)...)
	lease, pid := r.startLeasedScript(0, `exec /usr/bin/python3 -c "
import torch, time
print('ready', flush=True)
time.sleep(120)"`)
	v := r.mustVerify(proof.CPU, 1, lease)
	if len(v.Frameworks) != 1 || v.Frameworks[0].PID != pid || v.Frameworks[0].Name != "PyTorch" || v.Frameworks[0].GPU != proof.No {
		t.Fatalf("frameworks: %+v", v.Frameworks)
	}
	checkContains(t, v.Text, "PyTorch "+v.Frameworks[0].Version+" is built for the CPU alone")
	checkContains(t, v.Remedy, "install a PyTorch")
}
