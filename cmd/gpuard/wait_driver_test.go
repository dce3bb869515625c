package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/test/fakegpu"
)

// waitForQueueLength waits until n requests wait.
func (r *fakeDriverMachine) waitForQueueLength(n int) {
	r.t.Helper()
	waitUntil(r.t, fmt.Sprint(n, " in the line"), func() bool {
		s, _ := r.readStatus()
		return len(s.Waiting) == n
	})
}

// backgroundRun is a run in the background with its standard error.
type backgroundRun struct {
	t    testing.TB
	cmd  *exec.Cmd
	said *outputBuffer
	over <-chan runResult
}

func (r *fakeDriverMachine) startRun(args ...string) *backgroundRun {
	return startBackgroundRun(r.t, r.cmd(args...))
}

func startBackgroundRun(t testing.TB, cmd *exec.Cmd) *backgroundRun {
	t.Helper()
	heard, over, out := &outputBuffer{}, make(chan runResult, 1), &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, heard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		over <- runResult{cmd.ProcessState.ExitCode(), out.String(), heard.String()}
	}()
	return &backgroundRun{t, cmd, heard, over}
}

// waitForText waits until it has said all of that.
func (a *backgroundRun) waitForText(parts ...string) {
	a.t.Helper()
	waitUntil(a.t, fmt.Sprintf("it says %q", parts), func() bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(a.said.String(), part) })
	})
}

// endRun ends it.
func (a *backgroundRun) endRun() {
	_ = a.cmd.Process.Signal(unix.SIGTERM)
	<-a.over
}

// runInBackground runs the program in the background.
func runInBackground(t testing.TB, cmd *exec.Cmd) <-chan runResult {
	out := make(chan runResult, 1)
	go func() { out <- runCommand(t, cmd) }()
	return out
}

// TestWaitForProcess: a request that waits for a process without a lease is woken by its end, and does not wait for the
// next slow reading.
func TestWaitForProcess(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	job := r.fakeJobCommand(0, "20G", fakegpu.Compute)
	startToFirstLine(t, job)
	waits := r.startRun("run", "--", "sh", "-c", "echo $GPUARD_GPUS")
	waits.waitForText("waiting for 1 GPU, 1st of 1; GPU 0: ")
	ended := time.Now()
	_, _ = job.Process.Kill(), job.Wait()
	got := <-waits.over
	checkEqual(t, "run", []any{got.code, strings.TrimSpace(got.out)}, []any{0, fakeUUID(0)})
	if spent := time.Since(ended); spent > 4500*time.Millisecond { // the slow reading comes after 5 s
		t.Errorf("it was woken only after %s", spent)
	}
}

// TestWaitBehindMask: a request that waits because of a mask says what the mask hides; other devices may be free.
func TestWaitBehindMask(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(4)...)
	startToFirstLine(t, r.cmd("run", "-q", "--device", "1", "--", "sh", "-c", "echo on; exec sleep 300"))
	r.env = []string{"CUDA_VISIBLE_DEVICES=1"}
	waits := r.startRun("run", "--", "true")
	waits.waitForText("waiting for 1 GPU, 1st of 1; GPU 1: sh of ", "; GPU 0, 2, 3: CUDA_VISIBLE_DEVICES=1 hides it")
	_ = waits.cmd.Process.Signal(unix.SIGTERM)
	<-waits.over
}

// TestWaitForHealth: a change without an event is found by slow polling.
func TestWaitForHealth(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	r.Fail("nvmlDeviceGetMemoryInfo", 0, 15) // NVML_ERROR_GPU_IS_LOST
	r.Fail("nvmlDeviceGetMemoryInfo_v2", 0, 15)
	waits := runInBackground(t, r.hastyCommand("run", "-q", "--", "sh", "-c", "echo $GPUARD_GPUS"))
	r.waitForQueueLength(1)
	r.RemoveFile("fail")
	got := <-waits
	checkEqual(t, "run", []any{got.code, strings.TrimSpace(got.out)}, []any{0, fakeUUID(0)})
}

// TestWaitLooksBeforeItTakes: a device that was free at the last reading, and was kept for an earlier request, may have
// been taken since by a process without a lease, which is in no record of changes.
func TestWaitLooksBeforeItTakes(t *testing.T) {
	t.Parallel()
	for range 20 {
		if checkLookBeforeTaking(t) {
			return
		}
	}
	t.Error("the machine was always too busy to put somebody on the device within two seconds")
}

// checkLookBeforeTaking says whether the stranger was on the device before the stopped one was passed over.
func checkLookBeforeTaking(t *testing.T) bool {
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	holder := r.cmd("run", "-q", "--", "sh", "-c", "echo on; exec sleep 60")
	startToFirstLine(t, holder)
	stopped := r.cmd("run", "-q", "--", "true")
	if err := stopped.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = stopped.Process.Kill(), stopped.Wait() })
	r.waitForQueueLength(1)
	stopWithoutLock(t, filepath.Join(r.state, "lock"), stopped.Process)
	_, _ = holder.Process.Kill(), holder.Wait()
	free := time.Now()
	second := runInBackground(t, r.cmd("run", "-q", "--", "true"))
	r.waitForQueueLength(2) // it has read the machine, and leaves the device to the stopped one for two seconds
	stranger := r.fakeJobCommand(0, "20G", fakegpu.Compute)
	startToFirstLine(t, stranger)
	if time.Since(free) > 1500*time.Millisecond {
		_, _ = stranger.Process.Kill(), stranger.Wait()
		<-second
		return false
	}
	select {
	case got := <-second:
		t.Fatalf("it took a device on which somebody is: exit %d, %s", got.code, got.err)
	case <-time.After(3 * time.Second):
	}
	_, _ = stranger.Process.Kill(), stranger.Wait()
	checkEqual(t, "exit", (<-second).code, 0)
	return true
}
