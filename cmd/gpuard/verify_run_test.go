package main

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRunVerify: the run is as without it, and one line says where it is.
func TestRunVerify(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	got := r.run("run", "-q", "--verify", "--device", "1", "--", "sh", "-c", "fakegpu-job --gpu 1 --mem 2G --seconds 2; exit 5")
	checkEqual(t, "exit and output", []any{got.code, got.out}, []any{5, "ready\n"})
	line := strings.TrimSpace(got.err)
	checkContains(t, line, "gpuard: proven: fakegpu-job (process ", " is on GPU 1 (NVIDIA A100-SXM4-80GB, "+fakeUUID(1)+"), 2 GiB")
	if strings.Contains(line, "\n") {
		t.Errorf("more than one line:\n%s", line)
	}
	r.waitForNoLeases()
}

// TestRunVerifyStops: a job outside its lease is told, and ended where that was asked for.
func TestRunVerifyStops(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	const script = `trap 'kill $!; exit 9' TERM; CUDA_VISIBLE_DEVICES=1 fakegpu-job --gpu 1 --seconds "$0" & wait; exit 0`
	got := r.run("run", "-q", "--verify=20s,stop", "--device", "0", "--anyway", "--", "sh", "-c", script, "50")
	checkEqual(t, "exit", got.code, 9)
	checkContains(t, got.err, "gpuard: WARNING: outside the lease: ", "is on GPU 1", "told it to end (SIGTERM)")
	got = r.run("run", "-q", "--verify=20s", "--device", "0", "--anyway", "--", "sh", "-c", script, "3")
	checkEqual(t, "exit without stop", got.code, 0)
	checkContains(t, got.err, "gpuard: WARNING: outside the lease: ")
	if strings.Contains(got.err, "SIGTERM") {
		t.Errorf("it was stopped unasked:\n%s", got.err)
	}
}

// TestRunVerifyShort: a command that ends immediately is reported too, and a reader of its standard error gets the end
// of file.
func TestRunVerifyShort(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	var got runResult
	waitUntil(t, "a command is too short to be seen", func() bool { // a busy machine may make any command long
		began := time.Now()
		got = r.run("run", "-q", "--verify", "--", "true")
		if spent := time.Since(began); spent > 30*time.Second { // verify's patience is three times as long
			t.Errorf("the pipe was open for %s", spent)
		}
		checkEqual(t, "exit", got.code, 0)
		return strings.Contains(got.err, "gpuard: too early to say: ")
	})
}

// TestRunVerifyDriverHangs: a driver that hangs keeps the verifier, and neither the command nor the lease.
func TestRunVerifyDriverHangs(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	cmd := r.cmd("run", "-q", "--verify=60s", "--", "sh", "-c", "echo on; exec sleep 60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	startToFirstLine(t, cmd)
	r.Hang("nvmlDeviceGetComputeRunningProcesses_v3", 0)
	_ = cmd.Process.Kill()
	waitUntil(t, "the lease is gone", func() bool { return len(holdersOf(r.state)) == 0 })
	r.Answer()
	r.waitForNoLeases()
}

// waitForNoLeases waits until no lease is left.
func (r *fakeDriverMachine) waitForNoLeases() {
	r.t.Helper()
	waitUntil(r.t, "no lease is left", func() bool {
		s, _ := r.readStatus()
		for _, d := range s.Devices {
			if len(d.Leases) > 0 {
				return false
			}
		}
		return true
	})
}
