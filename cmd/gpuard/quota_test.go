package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
	"gpuard/test/fakegpu"
)

// outputBuffer collects what a program writes while it runs.
type outputBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *outputBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *outputBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// startShareJob is startJobWithShare 8 GiB.
func (r *fakeDriverMachine) startShareJob(memory string, args ...string) (cmd *exec.Cmd, heard *outputBuffer, over chan struct{}) {
	r.t.Helper()
	return r.startJobWithShare("8G", memory, args...)
}

// startJobWithShare starts a job of that much memory with a share, and returns when it is on its GPU. what it and gpuard say is kept; over is
// closed at its end.
func (r *fakeDriverMachine) startJobWithShare(share, memory string, args ...string) (cmd *exec.Cmd, heard *outputBuffer, over chan struct{}) {
	r.t.Helper()
	args = append(append([]string{"run", "--no-wait", "--share", share}, args...), "--", "fakegpu-job", "--gpu", "0", "--mem", memory)
	cmd, heard, over = r.cmd(args...), &outputBuffer{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr = heard, heard
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); <-over })
	go func() { _ = cmd.Wait(); close(over) }()
	waitUntil(r.t, "the job is on its GPU: "+memory, func() bool { return strings.Contains(heard.String(), "ready") || isClosed(over) })
	return cmd, heard, over
}

func isClosed(over chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// TestQuota: a program that takes twice its share is told how much, of what, and what to ask for next time, and is
// ended within 10 s, with the intervals that people have; its neighbour on the same card is untouched.
func TestQuota(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	neighbour, quiet, alive := r.startShareJob("6G")
	checkTookAtMost(t, 10*time.Second, func() time.Duration {
		began := time.Now()
		greedy, heard, over := r.startShareJob("16G")
		<-over
		took := time.Since(began)
		checkEqual(t, "how it ended", greedy.ProcessState.String(), "signal: terminated")
		checkContains(t, heard.String(), fmt.Sprintf("fakegpu-job (process %d) uses 16 GiB on GPU 0, and the share of lease ", greedy.Process.Pid), " is 8 GiB; give memory back",
			"gpuard: asking fakegpu-job (process ", ") to end (SIGTERM): ", "Next time ask for --share 18G")
		return took
	})
	if isClosed(alive) || strings.Contains(quiet.String(), "Next time") {
		t.Errorf("the neighbour: ended %v\n%s", isClosed(alive), quiet)
	}
	_ = neighbour
}

// TestQuotaTwoFit: two shares of 8 GiB fit a card of 24 GiB, and a third waits until one of them is given back.
func TestQuotaTwoFit(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	_, _, first := r.startShareJob("6G")
	second, _, gone := r.startShareJob("6G")
	refusal := mustRefuse(t, r.cmd("run", "--json", "--no-wait", "--share", "8G", "--", "true"), 120)
	checkContains(t, refusal.Reasons[0].Text, "8 GiB")

	third, heard, over := r.cmd("run", "--share", "8G", "--", "sh", "-c", "echo given $GPUARD_GPUS"), &outputBuffer{}, make(chan struct{})
	third.Stdout, third.Stderr = heard, heard
	if err := third.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = third.Process.Kill(); <-over })
	go func() { _ = third.Wait(); close(over) }()
	waitUntil(t, "the third waits", func() bool { return r.countWaiting() == 1 })
	if isClosed(over) || isClosed(first) || isClosed(gone) {
		t.Fatalf("somebody has ended:\n%s", heard)
	}
	_ = second.Process.Kill()
	waitUntil(t, "the third is served", func() bool { return isClosed(over) })
	checkContains(t, heard.String(), "a share of 8 GiB (watch)", "given "+fakeUUID(0))
	if isClosed(first) {
		t.Error("the first has ended")
	}
}

// countWaiting counts the requests in line.
func (r *fakeDriverMachine) countWaiting() int {
	r.t.Helper()
	s, _ := r.readStatus()
	return len(s.Waiting)
}

// TestQuotaUnmeasured: if the driver does not report the memory of a process, no process is ended; that is reported
// once, and the lease records that its share is not enforced.
func TestQuotaUnmeasured(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	_, heard, over := r.startShareJob("-")
	waitUntil(t, "it is said", func() bool { return strings.Contains(heard.String(), "cannot measure lease ") })
	checkContains(t, heard.String(), "on GPU 0: the driver does not say how much memory each process uses; nothing is ended")
	waitUntil(t, "the lease says so too", func() bool { return r.leaseQuota() == job.NoQuota })
	time.Sleep(3 * time.Second) // a few more readings change nothing
	if isClosed(over) || strings.Count(heard.String(), "cannot measure") != 1 {
		t.Errorf("ended %v:\n%s", isClosed(over), heard)
	}
}

// leaseQuota is how hard the only lease says that its share is kept.
func (r *fakeDriverMachine) leaseQuota() job.Quota {
	r.t.Helper()
	s, _ := r.readStatus()
	if len(s.Devices[0].Leases) != 1 {
		r.t.Fatalf("leases: %+v", s.Devices[0].Leases)
	}
	return s.Devices[0].Leases[0].Quota
}

// TestQuotaMeasurerKilled: the death of the measuring process is noticed without delay, reported, and another one is
// started; if its holder is gone too, status reports that the share is not measured.
func TestQuotaMeasurerKilled(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	_, heard, over := r.startShareJob("6G")
	checkEqual(t, "level", r.leaseQuota(), job.Watch)
	first := r.waitForMeasurer(0)
	killProcess(t, first)
	waitUntil(t, "it is said", func() bool {
		return strings.Contains(heard.String(), "has ended (signal: killed); started another one")
	})
	second := r.waitForMeasurer(first)
	for _, holder := range holdersOf(r.state) {
		killProcess(t, holder)
	}
	killProcess(t, second)
	waitUntil(t, "status says it", func() bool { return strings.Contains(r.run("status").out, "no process enforces the share of lease") })
	checkEqual(t, "level", r.leaseQuota(), job.NoQuota)
	if isClosed(over) {
		t.Errorf("the job has ended:\n%s", heard)
	}
}

// waitForMeasurer waits for the process that measures, another one than the last.
func (r *fakeDriverMachine) waitForMeasurer(last int) (pid int) {
	r.t.Helper()
	waitUntil(r.t, "something measures", func() bool {
		list := measurersOf(r.state)
		if len(list) == 1 && list[0] != last {
			pid = list[0]
		}
		return pid != 0
	})
	return pid
}

// TestQuotaOverWithItsCommand: however long it is until the next measurement, what measures is gone with its command.
func TestQuotaOverWithItsCommand(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	job := r.cmd("run", "-q", "--share", "8G", "--", "sh", "-c", "echo on; exec sleep 600")
	job.Args[0] = "pausing"
	startToFirstLine(t, job)
	pid := r.waitForMeasurer(0)
	asleep := 0
	waitUntil(t, "it has measured, and sleeps", func() bool {
		asleep++
		s, err := proc.New("/proc").Stat(pid)
		if err != nil || s.State != "S" {
			asleep = 0
		}
		return asleep == 10
	})
	killProcess(t, job.Process.Pid)
	waitUntil(t, "what measures is gone", func() bool { return len(measurersOf(r.state)) == 0 })
}

func killProcess(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestQuotaHold: a share that a running shell holds is measured with all that the shell starts, and the shell itself
// stays.
func TestQuotaHold(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	shell := exec.Command("sh", "-c", `echo on; while read -r line; do eval "$line"; done`)
	shell.Env = r.cmd().Env
	heard := &outputBuffer{}
	shell.Stdout, shell.Stderr = heard, heard
	in, err := shell.StdinPipe()
	if err == nil {
		err = shell.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = in.Close(), shell.Process.Kill(), shell.Wait() })
	waitUntil(t, "the shell is up", func() bool { return strings.Contains(heard.String(), "on\n") })
	got := r.run(r.reserveArgs("--share", "8G", "--pid", fmt.Sprint(shell.Process.Pid))...)
	checkEqual(t, "reserve", got.code, 0)
	checkContains(t, got.out, "a share of 8 GiB (watch)")
	_, _ = fmt.Fprintln(in, "fakegpu-job --gpu 0 --mem 9G; echo ended with $?")
	waitUntil(t, "the job was ended", func() bool { return strings.Contains(heard.String(), "ended with 143") })
	checkContains(t, heard.String(), "uses 9 GiB on GPU 0", "Next time ask for --share 10G")
}

// reserveArgs makes the arguments, in a container too.
func (r *fakeDriverMachine) reserveArgs(args ...string) []string {
	if isContained() {
		args = append([]string{"--private-state"}, args...)
	}
	return append([]string{"reserve"}, args...)
}

// TestQuotaEnv: the same for a shell that evaluates the variables, which carry the settings of frameworks.
func TestQuotaEnv(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0), fakegpu.GeForce(1))
	script := `eval "$(gpuard reserve $PRIVATE --shell --share 8G)" || exit 9
echo "$XLA_PYTHON_CLIENT_MEM_FRACTION $CUPY_GPU_MEMORY_LIMIT $TF_FORCE_GPU_ALLOW_GROWTH"
gpuard run $PRIVATE -q --any --device 1 -- sh -c 'echo "whole: ${XLA_PYTHON_CLIENT_MEM_FRACTION-none} ${GPUARD_LIMITS-none}"'
fakegpu-job --gpu 0 --mem 9G; echo ended with $?`
	cmd := r.cmd()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", script}
	got := runCommand(t, cmd)
	checkContains(t, got.out, "0.312 8053063680 true\n", "whole: none none\n", "ended with 143")
	checkContains(t, got.err, "uses 9 GiB on GPU 0", "Next time ask for --share 10G")
}

// measurersOf lists the processes that measure leases in that folder.
func measurersOf(folder string) (pids []int) {
	fs := proc.New("/proc")
	for _, pid := range fs.ProcessesOfUser(uint32(os.Geteuid())) {
		if line := fs.DescribeProcess(pid).Command; strings.Contains(line, " __measure ") && strings.Contains(line, folder) {
			pids = append(pids, pid)
		}
	}
	return pids
}
