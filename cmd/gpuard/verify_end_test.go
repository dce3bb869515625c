package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"gpuard/internal/app/verify"
	"gpuard/internal/core/proof"
	"gpuard/test/fakegpu"
)

// TestVerifyInterrupted: a job that a signal ended says nothing about where it would have been.
func TestVerifyInterrupted(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	for _, c := range []struct{ end, says string }{
		{"kill -INT $$", "was ended by signal (SIGINT) after "},
		{"exit 143", "was ended by signal (SIGTERM) after "},
	} {
		got := r.verifyLongEnough(func(seconds int) runResult {
			return r.run("verify", "--", "sh", "-c", fmt.Sprintf("sleep %d; %s", seconds, c.end))
		})
		checkEqual(t, "exit after "+c.end, got.code, 123)
		checkContains(t, got.err, "gpuard: too early to say: sh (process ", c.says, "gpuard: to do: let it run until it computes")
	}
	got := r.verifyLongEnough(func(seconds int) runResult {
		return r.run("verify", "--", "sh", "-c", fmt.Sprintf("sleep %d; exit 3", seconds))
	})
	checkEqual(t, "exit of one that ended by itself", got.code, 1)
	checkContains(t, got.err, "gpuard: not on any GPU (CPU fallback): ")
}

// verifyLongEnough verifies a job of so many seconds, and a longer one where a busy machine came too late to watch it.
func (r *fakeDriverMachine) verifyLongEnough(verified func(seconds int) runResult) (got runResult) {
	r.t.Helper()
	for seconds := 1; seconds <= 16; seconds *= 2 {
		if got = verified(seconds); !strings.Contains(got.out+got.err, "before it could be watched") {
			return got
		}
	}
	return got
}

// TestVerifyInterruptedByHand: a signal that verify passes on is known, whatever the command makes of it.
func TestVerifyInterruptedByHand(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	cmd := r.cmd("verify", "--json", "--", "sh", "-c", `trap 'exit 0' TERM; sleep 1; echo; while :; do sleep 0.1; done`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	startToFirstLine(t, cmd)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	errs := fmt.Sprint(cmd.Stderr)
	var v verify.Verification
	if err := json.Unmarshal([]byte(errs), &v); err != nil || v.Verdict == proof.CPU || cmd.ProcessState.ExitCode() != 123 {
		t.Errorf("%v, %v\n%s", cmd.ProcessState, err, errs)
	}
}

// TestVerifyKilled: the end of another process's child is known where the kernel reports it, and is no proof elsewhere.
func TestVerifyKilled(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	got := r.verifyLongEnough(func(seconds int) runResult {
		return r.run("verify", fmt.Sprint(r.startUnleased(nil, fmt.Sprintf("echo; sleep %d; kill -KILL $$", 1+seconds))))
	})
	checkEqual(t, "exit", got.code, 123)
	if !strings.Contains(got.out, "ended by signal (SIGKILL)") && !strings.Contains(got.out, "it is unknown how") {
		t.Error(got.out)
	}
	got = r.verifyLongEnough(func(seconds int) runResult {
		return r.run("run", "-q", "--verify=20s,stop", "--", "sh", "-c", fmt.Sprintf("sleep %d; kill -INT $$", 1+seconds))
	})
	checkContains(t, got.err, "gpuard: too early to say: ", "and was on no GPU until then")
	if strings.Contains(got.err, "WARNING") {
		t.Errorf("a job that was interrupted is accused:\n%s", got.err)
	}
}

// TestVerifyGuess: if a machine's indices are a guess, a job on another GPU than the guessed one is not accused.
func TestVerifyGuess(t *testing.T) {
	t.Parallel()
	gpus := makeA100s(2)
	gpus[1] = fakegpu.H100(1)
	r := newFakeDriverMachine(t, gpus...)
	guess := r.startUnleased([]string{"CUDA_VISIBLE_DEVICES=0"}, "exec fakegpu-job --gpu 0")
	v := r.mustVerify(proof.NotMeasurable, 123, fmt.Sprint(guess))
	checkContains(t, v.Text, "is on GPU 0", "its environment (CUDA_VISIBLE_DEVICES=0) shows it is a guess: most likely GPU 1")
	certain := r.startUnleased([]string{"CUDA_VISIBLE_DEVICES=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}, "exec fakegpu-job --gpu 0")
	r.mustVerify(proof.WrongDevice, 1, fmt.Sprint(certain))
	lease, _ := r.startLeasedScript(1, "unset CUDA_DEVICE_ORDER; fakegpu-job --gpu 1; true")
	child := r.mustVerify(proof.Proven, 0, lease).Sightings[0].PID
	v = r.mustVerify(proof.Proven, 0, fmt.Sprint(child)) // its own variables are a guess, its lease is not
	checkEqual(t, "lease and guess", []any{v.Lease, v.Variable, v.Promised[0].Index}, []any{lease, "CUDA_VISIBLE_DEVICES=1", 0})
}
