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

// hasty is the program with less patience than people need. SITE may name another root.
func hasty() {
	os.Exit(start(cmp.Or(os.Getenv("SITE"), "/"), haste()))
}

// sampling is the hasty program that measures at once what leases use.
func sampling() {
	w := haste()
	w.Sample = 40 * time.Millisecond
	os.Exit(start("/", w))
}

// glancing is the program in which the first minute of a job lasts six seconds.
func glancing() {
	w := haste()
	w.Sample, w.Glance = 100*time.Millisecond, 2*time.Second
	os.Exit(start("/", w))
}

func haste() machine.Times {
	const moment = 20 * time.Millisecond
	return machine.Times{Driver: time.Second, Fading: 1500 * time.Millisecond, Lock: 300 * time.Millisecond, Touch: moment, Retry: 10 * moment,
		Drift: 4 * moment, Minute: driftMinute, Reach: 500 * time.Millisecond, Pause: moment, Overdue: 300 * time.Millisecond, Slow: 10 * moment, Again: 75 * moment, Join: 1500 * time.Millisecond, Poll: 5 * moment}
}

// orderly is the hasty program for tests of the order: on a busy machine the first in line may get no processor for a while, and
// is not passed over for that.
func orderly() {
	w := haste()
	w.Overdue = time.Minute
	os.Exit(start("/", w))
}

// polite is the program that passes the first in line over only after a minute.
func polite() {
	var w machine.Times
	w.Overdue = time.Minute
	os.Exit(start("/", w))
}

// strict is the program that soon does what a share asks for.
func strict() {
	w := haste()
	w.Grace, w.Measure = 100*time.Millisecond, 50*time.Millisecond
	os.Exit(start("/", w))
}

// lastingly is the program that keeps leases for a next start ten minutes long.
func lastingly() {
	var w machine.Times
	w.Again = 10 * time.Minute
	os.Exit(start("/", w))
}

// pausing is the program with all the time in the world before a command that failed is started again, and between two
// measurements of a share.
func pausing() {
	var w machine.Times
	w.Pause, w.Measure = time.Hour, time.Hour
	os.Exit(start("/", w))
}

// trusting is the hasty program with all the patience for a driver that answers when the test lets it.
func trusting() {
	w := haste()
	w.Driver = time.Minute
	os.Exit(start("/", w))
}

// rack is the program on a fake machine, with a state folder of its own.
type rack struct {
	*fakegpu.Driver
	t     testing.TB
	state string
	env   []string // besides the driver's
}

func newRack(t testing.TB, gpus ...fakegpu.GPU) *rack {
	t.Helper()
	return &rack{fakegpu.New(t, gpus...), t, stateFolder(t), nil}
}

func a100s(n int) []fakegpu.GPU {
	gpus := make([]fakegpu.GPU, n)
	for i := range gpus {
		gpus[i] = fakegpu.A100(i)
	}
	return gpus
}

func uuid(i int) string { return fmt.Sprintf("GPU-fa4e0000-0000-4000-8000-%012x", i) }

// contained reports whether the tests run where leases need not be seen by the rest of the machine.
func contained() bool {
	processes := proc.New("/proc")
	pids, err := processes.InitialPIDNamespace()
	mounts, merr := processes.InitialMountNamespace()
	return err != nil || merr != nil || !pids || !mounts
}

// cmd prepares the program on this machine. $PRIVATE is what a nested run needs where the tests run in a container.
func (r *rack) cmd(args ...string) *exec.Cmd {
	r.t.Helper()
	env := append(r.Env(), r.env...)
	if contained() {
		env = append(env, "PRIVATE=--private-state")
		if len(args) > 0 && args[0] == "run" {
			args = append([]string{"run", "--private-state"}, args[1:]...)
		}
	}
	return program(r.t, r.state, env, args...)
}

// hasty is cmd with short waits.
func (r *rack) hasty(args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := r.cmd(args...)
	cmd.Args[0] = "hasty"
	return cmd
}

// trusting is hasty with a driver that always answers in the end.
func (r *rack) trusting(args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := r.cmd(args...)
	cmd.Args[0] = "trusting"
	return cmd
}

func (r *rack) run(args ...string) result {
	r.t.Helper()
	return run(r.t, r.cmd(args...))
}

// given runs a command that says which devices it was given.
func (r *rack) given(args ...string) string {
	r.t.Helper()
	got := r.run(append(append([]string{"run", "-q"}, args...), "--", "sh", "-c", "echo $GPUARD_GPUS")...)
	if got.code != 0 {
		r.t.Fatalf("run %q ended with %d:\n%s", args, got.code, got.err)
	}
	return strings.TrimSpace(got.out)
}

// status is the answer of status --json, and its exit code.
func (r *rack) status() (status.Report, int) {
	r.t.Helper()
	return statusOf(r.t, r.cmd("status", "--json"))
}

func statusOf(t testing.TB, cmd *exec.Cmd) (s status.Report, code int) {
	t.Helper()
	got := run(t, cmd)
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

// refused runs the program, which must answer with that code, and returns its reasons. It does not wait for a device.
func refused(t testing.TB, cmd *exec.Cmd, code int) (answer refusal) {
	t.Helper()
	if cmd.Args[1] == "run" && !slices.Contains(cmd.Args, "--no-wait") {
		cmd.Args = slices.Insert(cmd.Args, 2, "--no-wait")
	}
	got := run(t, cmd)
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

// begin starts a command and returns when it has written its first line, which is the answer.
func begin(t testing.TB, cmd *exec.Cmd) string {
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

// eventually waits until ok, or fails after a time that only a broken program needs.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !polled(2*time.Minute, ok) {
		t.Fatalf("still not so after 2 minutes: %s", what)
	}
}

// polled asks until the answer is yes, or the time is over. What takes long to ask, such as a program or all of /proc, is
// asked less often: many tests wait at the same time, and what they ask takes the processors from what they wait for.
func polled(most time.Duration, ok func() bool) bool {
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

func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %#v, want %#v", what, got, want)
	}
}
