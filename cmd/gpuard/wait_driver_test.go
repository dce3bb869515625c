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

// inLine waits until n requests wait.
func (r *rack) inLine(n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprint(n, " in the line"), func() bool {
		s, _ := r.status()
		return len(s.Waiting) == n
	})
}

// asked is a run in the background with its standard error.
type asked struct {
	t    testing.TB
	cmd  *exec.Cmd
	said *said
	over <-chan result
}

func (r *rack) asks(args ...string) *asked { return asks(r.t, r.cmd(args...)) }

func asks(t testing.TB, cmd *exec.Cmd) *asked {
	t.Helper()
	heard, over, out := &said{}, make(chan result, 1), &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, heard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		over <- result{cmd.ProcessState.ExitCode(), out.String(), heard.String()}
	}()
	return &asked{t, cmd, heard, over}
}

// until waits until it has said all of that.
func (a *asked) until(parts ...string) {
	a.t.Helper()
	eventually(a.t, fmt.Sprintf("it says %q", parts), func() bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(a.said.String(), part) })
	})
}

// withdraw ends it.
func (a *asked) withdraw() {
	_ = a.cmd.Process.Signal(unix.SIGTERM)
	<-a.over
}

// later runs the program in the background.
func later(t testing.TB, cmd *exec.Cmd) <-chan result {
	out := make(chan result, 1)
	go func() { out <- run(t, cmd) }()
	return out
}

// TestWaitForProcess: a request that waits for a process without a lease is woken by its end, and does not wait for the
// next slow reading.
func TestWaitForProcess(t *testing.T) {
	t.Parallel()
	r := newRack(t, fakegpu.A100(0))
	job := r.job(0, "20G", fakegpu.Compute)
	begin(t, job)
	waits := r.asks("run", "--", "sh", "-c", "echo $GPUARD_GPUS")
	waits.until("waiting for 1 GPU, 1st of 1; GPU 0: ")
	ended := time.Now()
	_, _ = job.Process.Kill(), job.Wait()
	got := <-waits.over
	same(t, "run", []any{got.code, strings.TrimSpace(got.out)}, []any{0, uuid(0)})
	if spent := time.Since(ended); spent > 4500*time.Millisecond { // the slow reading comes after 5 s
		t.Errorf("it was woken only after %s", spent)
	}
}

// TestWaitBehindMask: a request that waits because of a mask says what the mask hides; other devices may be free.
func TestWaitBehindMask(t *testing.T) {
	t.Parallel()
	r := newRack(t, a100s(4)...)
	begin(t, r.cmd("run", "-q", "--device", "1", "--", "sh", "-c", "echo on; exec sleep 300"))
	r.env = []string{"CUDA_VISIBLE_DEVICES=1"}
	waits := r.asks("run", "--", "true")
	waits.until("waiting for 1 GPU, 1st of 1; GPU 1: sh of ", "; GPU 0, 2, 3: CUDA_VISIBLE_DEVICES=1 hides it")
	_ = waits.cmd.Process.Signal(unix.SIGTERM)
	<-waits.over
}

// TestWaitForHealth: a change without an event is found by slow polling.
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

// TestWaitLooksBeforeItTakes: a device that was free at the last reading, and was kept for an earlier request, may have
// been taken since by a process without a lease, which is in no record of changes.
func TestWaitLooksBeforeItTakes(t *testing.T) {
	t.Parallel()
	for range 20 {
		if looksBeforeItTakes(t) {
			return
		}
	}
	t.Error("the machine was always too busy to put somebody on the device within two seconds")
}

// looksBeforeItTakes says whether the stranger was on the device before the stopped one was passed over.
func looksBeforeItTakes(t *testing.T) bool {
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
	free := time.Now()
	second := later(t, r.cmd("run", "-q", "--", "true"))
	r.inLine(2) // it has read the machine, and leaves the device to the stopped one for two seconds
	stranger := r.job(0, "20G", fakegpu.Compute)
	begin(t, stranger)
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
	same(t, "exit", (<-second).code, 0)
	return true
}
