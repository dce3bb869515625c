package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/batch"
	"gpuard/internal/host/proc"
)

// sweepRunnerPID is the process that starts the runs of a sweep, a child of the visible one; 0 when there is none. It leads a
// session; one that it is just making, with its words still, does not, or has only one thread.
func sweepRunnerPID(visible int, dir string) int {
	for _, p := range batch.ListProcesses() {
		if words := proc.New("/proc").Arguments(p.PID); len(words) > 2 && words[1] == "__sweep" && words[2] == dir && !p.IsDead() && p.Session == p.PID && p.Parent == visible {
			if threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID)); len(threads) < 2 {
				continue
			}
			return p.PID
		}
	}
	return 0
}

// killedSweep is a sweep whose processes are killed repeatedly at random moments.
type killedSweep struct {
	*sweepFixture
	runs, jobs  int
	flags       []string
	numbers     string // file to which each run appends its number
	kills, both int
	errs        *os.File      // what the sweep says
	lingers     time.Duration // how long a lease may be there after the end
}

func newKilledSweep(t *testing.T, runs int) *killedSweep {
	errs, err := os.Create(filepath.Join(t.TempDir(), "errors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errs.Close() })
	return &killedSweep{sweepFixture: newSweepFixture(t, "demo:8xL4"), runs: runs, jobs: 8, numbers: filepath.Join(t.TempDir(), "numbers"), errs: errs}
}

func (k *killedSweep) startSweep() *exec.Cmd {
	k.t.Helper()
	// One write, so that it is there as a whole or not at all.
	cmd := k.sweepCommand(append(append([]string{"-q"}, k.flags...), "--jobs", fmt.Sprint(k.jobs), "--over", fmt.Sprintf("n=1..%d", k.runs), "--",
		"sh", "-c", "echo {{.n}} >>"+k.numbers+"; sleep 0.0$(({{.n}} % 8))")...)
	cmd.Stderr = k.errs // a file: the process that lives on would keep a pipe open
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	return cmd
}

// errorText is what the sweeps have said.
func (k *killedSweep) errorText() string {
	text, _ := os.ReadFile(k.errs.Name())
	return string(text)
}

// countNumbers is how many numbers there are.
func (k *killedSweep) countNumbers() int {
	text, _ := os.ReadFile(k.numbers)
	return strings.Count(string(text), "\n")
}

// attackUntilDead starts the sweep, or continues it, and kills after every few runs until the foreground process is dead. It
// reports whether there may be more to do.
func (k *killedSweep) attackUntilDead(kill func(visible, runner int)) (more bool) {
	k.t.Helper()
	cmd := k.startSweep()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		target := k.countNumbers() + 1 + rand.IntN(5)
		for end := time.Now().Add(50 * time.Second); k.countNumbers() < target; time.Sleep(time.Millisecond) {
			select {
			case err := <-ended:
				if err != nil && cmd.ProcessState.ExitCode() != -1 {
					k.t.Fatalf("it ended by itself: %v: %s", err, k.errorText())
				}
				return err != nil
			default:
			}
			if time.Now().After(end) {
				k.t.Fatalf("after %d of %d runs nothing goes on: %s", k.countNumbers(), k.runs, k.errorText())
			}
		}
		time.Sleep(rand.N(10 * time.Millisecond))
		if runner := sweepRunnerPID(cmd.Process.Pid, k.dir); runner != 0 {
			k.kills++
			kill(cmd.Process.Pid, runner)
		}
	}
}

func (k *killedSweep) checkSweep(twice int) {
	k.t.Helper()
	k.t.Logf("%d kills, %d of them of both; %d numbers for %d runs", k.kills, k.both, k.countNumbers(), k.runs)
	a, got := k.resumeSweep()
	if got.code != 0 || a.OK != k.runs {
		k.t.Errorf("at the end: exit %d, %+v\n%s%s", got.code, a, got.err, k.errorText())
	}
	checkExactlyOnce(k.t, k.numbers, 1, k.runs, twice)
	if journal, err := os.ReadFile(filepath.Join(k.dir, "journal")); err == nil && k.t.Failed() {
		numbers, _ := os.ReadFile(k.numbers)
		times := map[string]int{}
		for word := range strings.FieldsSeq(string(numbers)) {
			times[word]++
		}
		for line := range strings.Lines(string(journal)) { // of those that were not done once
			var e struct{ Run int }
			if json.Unmarshal([]byte(line), &e) == nil && times[fmt.Sprint(e.Run+1)] != 1 {
				k.t.Log(strings.TrimSpace(line))
			}
		}
	}
	for _, row := range k.readResults() {
		if row["state"] != "ok" {
			k.t.Errorf("run %s is %s", row["run"], row["state"])
		}
	}
	left := 0
	if !pollUntil(k.lingers, func() bool { left = (&demoMachine{t: k.t, state: k.state}).countLeases(); return left == 0 }) {
		k.t.Errorf("%d leases are left", left)
	}
}

func soakCount(large, usual int) int {
	if os.Getenv("GPUARD_SOAK") == "1" {
		return large
	}
	return usual
}

// TestSweepKilled: whichever of its two processes is killed, a sweep does each run exactly once.
func TestSweepKilled(t *testing.T) {
	t.Parallel()
	attackSweep(t, soakCount(10_000, 200), func(k *killedSweep, visible, runner int) {
		if rand.IntN(2) == 0 {
			_ = unix.Kill(visible, unix.SIGKILL)
			// Until its last thread is gone it has its child: a runner that is killed then is the second of the two.
			waitUntil(k.t, "it is dead", func() bool { return sweepRunnerPID(visible, k.dir) == 0 })
			return
		}
		_ = unix.Kill(runner, unix.SIGKILL)
		k.waitForNextRunner(visible, runner)
	})
}

// TestSweepKilledKeepers: a run whose keeper is killed goes on, and is done exactly once, whatever that one was just doing.
func TestSweepKilledKeepers(t *testing.T) {
	t.Parallel()
	attackSweep(t, soakCount(10_000, 100), func(k *killedSweep, _, _ int) {
		k.lingers = time.Minute // what holds a lease without a keeper lets go after the run is over
		for _, pid := range keepersOf(k.dir) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}, "--grace", "5s")
}

// attackSweep attacks a sweep of so many runs to its end, and another one where that was over before enough was killed, as
// happens when the machine has much else to do.
func attackSweep(t *testing.T, runs int, attack func(k *killedSweep, visible, runner int), flags ...string) {
	t.Helper()
	kills := 0
	for range 10 {
		k := newKilledSweep(t, runs)
		k.flags = flags
		for more := true; more; {
			more = k.attackUntilDead(func(visible, runner int) { attack(k, visible, runner) })
		}
		k.checkSweep(k.both * k.jobs)
		if kills += k.kills; kills >= 4 {
			return
		}
	}
	t.Errorf("only %d kills", kills)
}

// waitForNextRunner waits until the foreground process continues with another runner, for longer than a new run needs to start.
func (k *killedSweep) waitForNextRunner(visible, runner int) {
	k.t.Helper()
	seen := 0
	waitUntil(k.t, "another runner", func() bool {
		switch next := sweepRunnerPID(visible, k.dir); next {
		case 0, runner:
			seen = 0
		default:
			seen++
		}
		return seen > 4 || strings.Contains("XZ", processState(visible))
	})
}

// TestSweepKilledBoth: when both are killed no run is lost, and none is done twice but those that were running.
func TestSweepKilledBoth(t *testing.T) {
	t.Parallel()
	attackSweep(t, soakCount(10_000, 100), func(k *killedSweep, visible, runner int) {
		k.both++
		pids := []int{visible, runner}
		rand.Shuffle(2, func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
}

// TestSweepOutlives: runs go on when both processes are killed, a resumed sweep waits for them, and they are not done
// again where the kernel says how they ended. The lease is theirs all the while.
func TestSweepOutlives(t *testing.T) {
	t.Parallel()
	f := newSweepFixture(t, "demo:2xL4")
	began, go2 := filepath.Join(t.TempDir(), "began"), filepath.Join(t.TempDir(), "go")
	cmd := f.sweepCommand("-q", "--over", "x=1..3", "--", "sh", "-c", `echo {{.x}} >>"$0"; while ! [ -e "$1" ]; do sleep 0.1; done`, began, go2)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	two := func() bool {
		text, _ := os.ReadFile(began)
		return strings.Count(string(text), "\n") == 2
	}
	waitUntil(t, "two run", two)
	waitUntil(t, "that is written down", func() bool {
		text, _ := os.ReadFile(filepath.Join(f.dir, "journal"))
		return strings.Count(string(text), `"start"`) == 2
	})
	runner := sweepRunnerPID(cmd.Process.Pid, f.dir)
	for _, pid := range []int{cmd.Process.Pid, runner} {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	_ = cmd.Wait()
	checkEqual(t, "leases", (&demoMachine{t: t, state: f.state}).countLeases(), 2)
	again := f.plainSweepCommand("--resume", f.dir)
	errs, rest := startUntilSaid(t, again, "runs of before go on (2): waiting for them")
	if !two() {
		t.Error("more was started meanwhile")
	}
	if err := os.WriteFile(go2, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rest()
	if err := again.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs.String())
	}
	twice := 0
	if strings.Contains(errs.String(), "they are done again") { // Linux before 6.15
		twice = 2
	}
	checkExactlyOnce(t, began, 1, 3, twice)
}

// TestSweepAlone: when the process that people see is killed, nothing new is started, what runs ends by itself, and a
// resumed sweep waits for that.
func TestSweepAlone(t *testing.T) {
	t.Parallel()
	f := newSweepFixture(t, "demo:2xL4")
	began, go2 := filepath.Join(t.TempDir(), "began"), filepath.Join(t.TempDir(), "go")
	cmd := f.sweepCommand("-q", "--over", "x=1..6", "--", "sh", "-c", `echo {{.x}} >>"$0"; while ! [ -e "$1" ]; do sleep 0.1; done`, began, go2)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		text, _ := os.ReadFile(began)
		return strings.Count(string(text), "\n")
	}
	waitUntil(t, "two run", func() bool { return count() == 2 })
	runner := sweepRunnerPID(cmd.Process.Pid, f.dir)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if runner == 0 || strings.Contains("XZ", processState(runner)) {
		t.Fatal("the runner is gone with it")
	}
	again := f.plainSweepCommand("--resume", f.dir)
	errs, rest := startUntilSaid(t, again, "have not ended: waiting")
	checkEqual(t, "runs", count(), 2)
	if err := os.WriteFile(go2, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rest()
	if err := again.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs.String())
	}
	checkContains(t, errs.String(), "6 runs in "+f.dir+", 2 done before")
	checkExactlyOnce(t, began, 1, 6, 0)
}

// startUntilSaid starts a program, reads what it says on standard error until that has the text, and gives what reads the
// rest.
func startUntilSaid(t *testing.T, cmd *exec.Cmd, text string) (said *strings.Builder, rest func()) {
	t.Helper()
	said = &strings.Builder{}
	out, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	part := make([]byte, 4096)
	more := func() bool {
		n, err := out.Read(part)
		said.Write(part[:n])
		return err == nil
	}
	for !strings.Contains(said.String(), text) {
		if !more() {
			t.Fatalf("it said only %q", said)
		}
	}
	return said, func() {
		for more() {
		}
	}
}
