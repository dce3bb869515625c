package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/test/fakegpu"
)

// runShellScript runs a shell script in which gpuard and fakegpu-job work on this machine.
func (r *fakeDriverMachine) runShellScript(text string) runResult {
	r.t.Helper()
	cmd := r.cmd()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", text}
	return runCommand(r.t, cmd)
}

// TestQuotaNested: what runs in a lease of its own does not count against the share around it, whatever its environment
// says; a part of a share does, and has a share of its own to keep.
func TestQuotaNested(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	r.Delay("nvmlDeviceGetComputeRunningProcesses_v3", 0, 400) // a lease may begin while the driver lists the processes
	got := r.runShellScript(`eval "$(gpuard reserve $PRIVATE --shell --share 8G)" || exit 9
fakegpu-job --gpu 0 --mem 6G --seconds 7 & one=$!
gpuard run $PRIVATE --no-wait -q --any --share 8G -- env -u GPUARD_LEASE fakegpu-job --gpu 0 --mem 7G --seconds 6; echo other ended with $?
wait $one; echo mine ended with $?
gpuard run $PRIVATE --no-wait -q --share 4G -- fakegpu-job --gpu 0 --mem 6G --seconds 20; echo part ended with $?`)
	checkContains(t, got.out, "other ended with 0\n", "mine ended with 0\n", "part ended with 143\n")
	checkContains(t, got.err, "uses 6 GiB on GPU 0, and the share of lease ", " is 4 GiB; ")
	if strings.Contains(got.err, "is 8 GiB; give") {
		t.Errorf("the outer share was charged:\n%s", got.err)
	}
}

// TestQuotaPartKeeps: a part that keeps to its share is not ended for the other parts.
func TestQuotaPartKeeps(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	got := r.runShellScript("on=" + filepath.Join(t.TempDir(), "on") + `; eval "$(gpuard reserve $PRIVATE --shell --share 8G)" || exit 9
gpuard run $PRIVATE --no-wait -q --share 4G -- fakegpu-job --gpu 0 --mem 3G --seconds 9 >$on & part=$!
until grep -q ready $on; do sleep 0.1; done
fakegpu-job --gpu 0 --mem 6G --seconds 20; echo beside ended with $?
wait $part; echo part ended with $?`)
	checkContains(t, got.out, "beside ended with 143\n", "part ended with 0\n")
	checkContains(t, got.err, "and 1 more use 9 GiB on GPU 0", "asking fakegpu-job (process ")
}

// TestQuotaNeedsProof: a process of the lease that the driver lists above the share, but that does not have the device
// open, is not ended: the driver may mean another one by that number.
func TestQuotaNeedsProof(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	cmd, heard := r.cmd("run", "--no-wait", "-q", "--share", "8G", "--", "sh", "-c", "echo started; exec sleep 100"), &outputBuffer{}
	cmd.Args[0], cmd.Stdout, cmd.Stderr = "strict", heard, heard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	waitUntil(t, "it has begun", func() bool { return strings.Contains(heard.String(), "started") })
	r.TrackProcess(0, cmd.Process.Pid, 16<<30, fakegpu.Compute)
	waitUntil(t, "it is said that it cannot be ended, or it is", func() bool {
		return strings.Contains(heard.String(), "has not opened the GPU") || !isProcessAlive(cmd.Process.Pid)
	})
	if !isProcessAlive(cmd.Process.Pid) || strings.Contains(heard.String(), "to end (SIGTERM)") {
		t.Errorf("it was ended:\n%s", heard.String())
	}
}

// TestQuotaTogether: the processes of a job count together, also one that has left its tree.
func TestQuotaTogether(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	checkTookAtMost(t, 15*time.Second, func() time.Duration {
		began := time.Now()
		got := r.runShellScript(`gpuard run $PRIVATE --no-wait -q --share 8G -- sh -c '
(setsid fakegpu-job --gpu 0 --mem 5G &)
fakegpu-job --gpu 0 --mem 5G; echo ended with $?'`)
		took := time.Since(began)
		checkContains(t, got.out, "ended with 143\n")
		checkContains(t, got.err, "and 1 more use 10 GiB on GPU 0", "and 1 more to end (SIGTERM)")
		r.waitForNoLeases()
		return took
	})
}

// TestQuotaStubborn: a job that ignores SIGTERM is killed within the same 10 s.
func TestQuotaStubborn(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	checkTookAtMost(t, 10*time.Second, func() time.Duration {
		began := time.Now()
		got := r.runShellScript(`gpuard run $PRIVATE --no-wait -q --share 8G -- sh -c 'trap "" TERM; exec fakegpu-job --gpu 0 --mem 16G'; echo ended with $?`)
		took := time.Since(began)
		checkContains(t, got.out, "ended with 137\n")
		checkContains(t, got.err, "to end (SIGTERM)", "gpuard: ending fakegpu-job (process ", " (SIGKILL): ")
		r.waitForNoLeases()
		return took
	})
}

// TestQuotaSupervised: a supervised command is measured as well.
func TestQuotaSupervised(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	got := r.runShellScript(`gpuard run $PRIVATE --no-wait --timeout 30s --share 8G -- fakegpu-job --gpu 0 --mem 16G; echo ended with $?`)
	checkContains(t, got.out, "ended with 143\n")
	checkContains(t, got.err, "uses 16 GiB on GPU 0", "Next time ask for --share 18G")
	r.waitForNoLeases()
}

// TestQuotaBesideHanging: a device that does not answer delays nothing for a share on another one.
func TestQuotaBesideHanging(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0), fakegpu.GeForce(1))
	r.Hang("nvmlDeviceGetComputeRunningProcesses_v3", 1)
	checkTookAtMost(t, 10*time.Second+5*time.Second, func() time.Duration { // the driver has its time once
		_, heard, over := r.startShareJob("16G", "--device", "0")
		on := time.Now()
		<-over
		took := time.Since(on)
		checkContains(t, heard.String(), "uses 16 GiB on GPU 0", "to end (SIGTERM)")
		waitUntil(t, "no holder is left", func() bool { return len(holdersOf(r.state)) == 0 })
		return took
	})
}

// TestQuotaDriverHangs: what cannot be measured is said, and neither the job nor its lease depend on an answer.
func TestQuotaDriverHangs(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	cmd, heard, over := r.startShareJob("6G")
	waitUntil(t, "something measures", func() bool { return len(measurersOf(r.state)) == 1 })
	r.Hang("*", 0)
	waitUntil(t, "it is said", func() bool { return strings.Contains(heard.String(), "cannot measure lease ") })
	checkContains(t, heard.String(), "no answer within")
	if isClosed(over) {
		t.Fatal("the job has ended")
	}
	_ = cmd.Process.Kill()
	waitUntil(t, "the lease is gone", func() bool { return len(holdersOf(r.state)) == 0 })
	r.Answer()
	r.waitForNoLeases()
	waitUntil(t, "nothing measures any more", func() bool { return len(measurersOf(r.state)) == 0 })
}

// TestQuotaTerminal: on a terminal the lines come between the command's output, and the shell continues.
func TestQuotaTerminal(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	s := startOnTerminal(t, r.cmd("run", "--no-wait", "--share", "8G", "--", "fakegpu-job", "--gpu", "0", "--mem", "16G"))
	s.waitForScreen(`a share of 8 GiB \(watch\)`)
	s.waitForScreen(`gpuard: fakegpu-job \(process \d+\) uses 16 GiB on GPU 0, and the share of lease \w+ is 8 GiB`)
	s.waitForScreen(`to end \(SIGTERM\).*Next time ask for --share 18G`)
	_ = s.cmd.Wait()
	checkEqual(t, "how it ended", s.cmd.ProcessState.String(), "signal: terminated")
}

// TestQuotaHoldMPS: a program that runs already cannot be led through MPS.
func TestQuotaHoldMPS(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	pid := r.startFakeJob(0, "1G", fakegpu.Compute)
	got := r.run(r.reserveArgs("--share", "8G", "--quota", "mps", "--pid", fmt.Sprint(pid))...)
	checkEqual(t, "exit", got.code, 125)
	checkContains(t, got.err, "through MPS: a program connects to it at its start")
	r.waitForNoLeases()
}
