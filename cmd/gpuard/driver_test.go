package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/core/status"
	"gpuard/internal/host/proc"
	"gpuard/test/fakegpu"
)

// runHasty is the program with less patience than people need. SITE may name another root.
func runHasty() {
	os.Exit(start(cmp.Or(os.Getenv("SITE"), "/"), shortTimes()))
}

// runSampling is the hasty program that measures at once what leases use.
func runSampling() {
	w := shortTimes()
	w.Sample = 40 * time.Millisecond
	os.Exit(start("/", w))
}

// runShortFirstMinute is the program in which the first minute of a job lasts six seconds.
func runShortFirstMinute() {
	w := shortTimes()
	w.Sample, w.Glance = 100*time.Millisecond, 2*time.Second
	os.Exit(start("/", w))
}

func shortTimes() machine.Times {
	const moment = 20 * time.Millisecond
	return machine.Times{Driver: time.Second, Fading: 1500 * time.Millisecond, Lock: 300 * time.Millisecond, Touch: moment, Retry: 10 * moment,
		Drift: 4 * moment, Minute: driftMinute, Reach: 500 * time.Millisecond, Pause: moment, Overdue: 300 * time.Millisecond, Slow: 10 * moment, Again: 75 * moment, Join: 1500 * time.Millisecond, Poll: 5 * moment}
}

// runHastyInOrder is the hasty program for tests of the order: on a busy machine the first in line may get no processor for a while, and
// is not passed over for that.
func runHastyInOrder() {
	w := shortTimes()
	w.Overdue = time.Minute
	os.Exit(start("/", w))
}

// runSlowToPassOver is the program that passes the first in line over only after a minute.
func runSlowToPassOver() {
	var w machine.Times
	w.Overdue = time.Minute
	os.Exit(start("/", w))
}

// runHastyQuota is the program that soon does what a share asks for.
func runHastyQuota() {
	w := shortTimes()
	w.Grace, w.Measure = 100*time.Millisecond, 50*time.Millisecond
	os.Exit(start("/", w))
}

// runKeepingLeaseLong is the program that keeps leases for a next start ten minutes long.
func runKeepingLeaseLong() {
	var w machine.Times
	w.Again = 10 * time.Minute
	os.Exit(start("/", w))
}

// runPausingLong is the program with all the time in the world before a command that failed is started again, and between two
// measurements of a share.
func runPausingLong() {
	var w machine.Times
	w.Pause, w.Measure = time.Hour, time.Hour
	os.Exit(start("/", w))
}

// runPatientWithDriver is the hasty program with all the patience for a driver that answers when the test lets it.
func runPatientWithDriver() {
	w := shortTimes()
	w.Driver = time.Minute
	os.Exit(start("/", w))
}

// fakeDriverMachine is the program on a fake machine, with a state folder of its own.
type fakeDriverMachine struct {
	*fakegpu.Driver
	t     testing.TB
	state string
	env   []string // besides the driver's
}

func newFakeDriverMachine(t testing.TB, gpus ...fakegpu.GPU) *fakeDriverMachine {
	t.Helper()
	return &fakeDriverMachine{fakegpu.New(t, gpus...), t, stateFolder(t), nil}
}

func makeA100s(n int) []fakegpu.GPU {
	gpus := make([]fakegpu.GPU, n)
	for i := range gpus {
		gpus[i] = fakegpu.A100(i)
	}
	return gpus
}

func fakeUUID(i int) string { return fmt.Sprintf("GPU-fa4e0000-0000-4000-8000-%012x", i) }

// isContained reports whether the tests run where leases need not be seen by the rest of the machine.
func isContained() bool {
	processes := proc.New("/proc")
	pids, err := processes.InitialPIDNamespace()
	mounts, merr := processes.InitialMountNamespace()
	return err != nil || merr != nil || !pids || !mounts
}

// cmd prepares the program on this machine. $PRIVATE is what a nested run needs where the tests run in a container.
func (r *fakeDriverMachine) cmd(args ...string) *exec.Cmd {
	r.t.Helper()
	env := append(r.Env(), r.env...)
	if isContained() {
		env = append(env, "PRIVATE=--private-state")
		if len(args) > 0 && args[0] == "run" {
			args = append([]string{"run", "--private-state"}, args[1:]...)
		}
	}
	return gpuardCommand(r.t, r.state, env, args...)
}

// hastyCommand is cmd with short waits.
func (r *fakeDriverMachine) hastyCommand(args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := r.cmd(args...)
	cmd.Args[0] = "hasty"
	return cmd
}

// patientCommand is hasty with a driver that always answers in the end.
func (r *fakeDriverMachine) patientCommand(args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := r.cmd(args...)
	cmd.Args[0] = "trusting"
	return cmd
}

func (r *fakeDriverMachine) run(args ...string) runResult {
	r.t.Helper()
	return runCommand(r.t, r.cmd(args...))
}

// givenDevices runs a command that says which devices it was given.
func (r *fakeDriverMachine) givenDevices(args ...string) string {
	r.t.Helper()
	got := r.run(append(append([]string{"run", "-q"}, args...), "--", "sh", "-c", "echo $GPUARD_GPUS")...)
	if got.code != 0 {
		r.t.Fatalf("run %q ended with %d:\n%s", args, got.code, got.err)
	}
	return strings.TrimSpace(got.out)
}

// readStatus is the answer of status --json, and its exit code.
func (r *fakeDriverMachine) readStatus() (status.Report, int) {
	r.t.Helper()
	return runStatus(r.t, r.cmd("status", "--json"))
}

func runStatus(t testing.TB, cmd *exec.Cmd) (s status.Report, code int) {
	t.Helper()
	got := runCommand(t, cmd)
	if err := json.Unmarshal([]byte(got.out), &s); err != nil {
		t.Fatalf("status --json: %v\n%s\n%s", err, got.out, got.err)
	}
	return s, got.code
}

// refusal is the JSON of one.
type refusal struct {
	Error, Remedy string
	Reasons       []job.Reason
}

// mustRefuse runs the program, which must answer with that code, and returns its reasons. It does not wait for a device.
func mustRefuse(t testing.TB, cmd *exec.Cmd, code int) (answer refusal) {
	t.Helper()
	if cmd.Args[1] == "run" && !slices.Contains(cmd.Args, "--no-wait") {
		cmd.Args = slices.Insert(cmd.Args, 2, "--no-wait")
	}
	got := runCommand(t, cmd)
	if got.code != code {
		t.Fatalf("%q ended with %d, not %d:\n%s%s", cmd.Args, got.code, code, got.out, got.err)
	}
	for line := range strings.Lines(got.err) { // notes of the program may come first
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), &answer); err != nil {
				t.Fatalf("%v\n%s", err, line)
			}
		}
	}
	if answer.Error == "" {
		t.Fatalf("no refusal is in the answer:\n%s", got.err)
	}
	return answer
}

// startToFirstLine starts a command and returns when it has written its first line, which is the answer.
func startToFirstLine(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("%q ended at once: %v\n%s", cmd.Args, cmd.ProcessState, errs.String())
	}
	return strings.TrimSpace(line)
}

// waitUntil waits until ok, or fails after a time that only a broken program needs.
func waitUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !pollUntil(2*time.Minute, ok) {
		t.Fatalf("still not so after 2 minutes: %s", what)
	}
}

// pollUntil asks until the answer is yes, or the time is over. What takes long to ask, such as a program or all of /proc, is
// asked less often: many tests wait at the same time, and what they ask takes the processors from what they wait for.
func pollUntil(most time.Duration, ok func() bool) bool {
	end := time.Now().Add(most)
	for {
		began := time.Now()
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}

		const least, rarest = 2 * time.Millisecond, 100 * time.Millisecond
		time.Sleep(min(max(least, 8*time.Since(began)), rarest))
	}
}

func checkContains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

func checkEqual(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %#v, want %#v", what, got, want)
	}
}
