package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/test/fakegpu"
)

// inLine waits until n requests wait.
func (r *rack) inLine(n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprint(n, " in the line"), func() bool {
		s, _ := r.status()
		return len(s.Waiting) == n
	})
}

// later runs the program in the background.
func later(t testing.TB, cmd *exec.Cmd) <-chan result {
	out := make(chan result, 1)
	go func() { out <- run(t, cmd) }()
	return out
}

// TestWaitForProcess: what waits for a process without a lease is woken by its end, and does not wait for the next slow look.
func TestWaitForProcess(t *testing.T) {
	t.Parallel()
	r := newRack(t, fakegpu.A100(0))
	job := r.job(0, "20G", fakegpu.Compute)
	begin(t, job)
	waits := later(t, r.cmd("run", "--", "sh", "-c", "echo $GPUARD_GPUS"))
	r.inLine(1)
	time.Sleep(600 * time.Millisecond) // it has looked and said so, and sleeps
	ended := time.Now()
	_, _ = job.Process.Kill(), job.Wait()
	got := <-waits
	same(t, "run", []any{got.code, strings.TrimSpace(got.out)}, []any{0, uuid(0)})
	contains(t, got.err, "waiting for 1 GPU, 1st of 1; GPU 0: ")
	if spent := time.Since(ended); spent > 3*time.Second {
		t.Errorf("it was woken only after %s", spent)
	}
}

// TestWaitForHealth: what nobody tells is looked at slowly.
func TestWaitForHealth(t *testing.T) {
	t.Parallel()
	r := newRack(t, fakegpu.A100(0))
	r.Fail("nvmlDeviceGetMemoryInfo", 0, 15) // NVML_ERROR_GPU_IS_LOST
	r.Fail("nvmlDeviceGetMemoryInfo_v2", 0, 15)
	waits := later(t, r.hasty("run", "-q", "--", "sh", "-c", "echo $GPUARD_GPUS"))
	r.inLine(1)
	r.Remove("fail")
	got := <-waits
	same(t, "run", []any{got.code, strings.TrimSpace(got.out)}, []any{0, uuid(0)})
}

// TestWaitLooksBeforeItTakes: a device that was free when the waiter last read the machine, and was kept for somebody before
// it, may have been taken since by a process without a lease, which is in no record of changes.
func TestWaitLooksBeforeItTakes(t *testing.T) {
	t.Parallel()
	r := newRack(t, fakegpu.A100(0))
	holder := r.cmd("run", "-q", "--", "sh", "-c", "echo on; exec sleep 60")
	begin(t, holder)
	stopped := r.cmd("run", "-q", "--", "true")
	if err := stopped.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = stopped.Process.Kill(), stopped.Wait() })
	r.inLine(1)
	halt(t, filepath.Join(r.state, "lock"), stopped.Process)
	_, _ = holder.Process.Kill(), holder.Wait()
	second := later(t, r.cmd("run", "-q", "--", "true"))
	r.inLine(2) // it has read the machine, and leaves the device to the stopped one for two seconds
	stranger := r.job(0, "20G", fakegpu.Compute)
	begin(t, stranger)
	select {
	case got := <-second:
		t.Fatalf("it took a device on which somebody is: exit %d, %s", got.code, got.err)
	case <-time.After(3 * time.Second):
	}
	_, _ = stranger.Process.Kill(), stranger.Wait()
	same(t, "exit", (<-second).code, 0)
}

// TestWaitForTwo: a request for several devices is not starved by those that need one.
func TestWaitForTwo(t *testing.T) {
	t.Parallel()
	r := newRack(t, a100s(2)...)
	hold := func(device string) *exec.Cmd {
		cmd := r.cmd("run", "-q", "--device", device, "--", "sh", "-c", "echo on; exec sleep 60")
		begin(t, cmd)
		return cmd
	}
	first, second := hold("0"), hold("1")
	both := later(t, r.cmd("run", "-q", "--gpus", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"))
	r.inLine(1)
	one := later(t, r.cmd("run", "-q", "--", "true"))
	r.inLine(2)
	_, _ = first.Process.Kill(), first.Wait()
	select {
	case got := <-one:
		t.Errorf("the later one took the first free device: exit %d, %s", got.code, got.err)
	case <-time.After(500 * time.Millisecond):
	}
	_, _ = second.Process.Kill(), second.Wait()
	if got := <-both; got.code != 0 || len(got.out) != 4 {
		t.Errorf("exit %d, %q, %s", got.code, got.out, got.err)
	}
	same(t, "the later one", (<-one).code, 0)
}
