package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/leftover"
	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
)

// evictAnswer is what evict --json says.
type evictAnswer struct {
	Error     string
	Leftovers []leftover.Row
	Evicted   []leftover.Eviction
}

// runEvict runs gpuard evict, which must end with that code.
func (r *fakeDriverMachine) runEvict(code int, args ...string) evictAnswer {
	r.t.Helper()
	cmd := r.cmd(append([]string{"evict", "--json"}, args...)...)
	got := runCommand(r.t, cmd)
	var a evictAnswer
	if err := json.Unmarshal([]byte(got.out), &a); err != nil || got.code != code {
		r.t.Fatalf("evict %q ended with %d, not %d: %v\n%s%s", args, got.code, code, err, got.out, got.err)
	}
	return a
}

func (a evictAnswer) leftoverPIDs() []int {
	pids := []int{}
	for _, r := range a.Leftovers {
		pids = append(pids, r.PID)
	}
	return pids
}

// TestEvict: what has no lease is listed and can be ended; what has one is neither.
func TestEvict(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(3)...)
	left := r.startFakeJob(1, "3G", "C")
	r.SetValue(2, "memory_used", "2G")
	leased := r.cmd("run", "-q", "--device", "0", "--", r.Job, "--gpu", "0", "--mem", "4G")
	startToFirstLine(t, leased)
	a := r.runEvict(0)
	checkEqual(t, "leftovers", a.leftoverPIDs(), []int{left, 0})
	if row := a.Leftovers[0]; row.Memory == nil || *row.Memory != 3<<30 || row.Index != 1 || row.User == "" || row.Since == nil || row.Idle != nil {
		t.Errorf("%+v", row)
	}
	checkContains(t, r.runEvict(2, strconv.Itoa(leased.Process.Pid)).Error, "living lease")
	checkContains(t, r.runEvict(2, "0").Error, `cannot end "0"`)
	checkContains(t, r.runEvict(2, "--force").Error, "without a process id")
	ended := r.runEvict(0, strconv.Itoa(left)).Evicted
	if len(ended) != 1 || !ended[0].Gone || ended[0].PID != left {
		t.Errorf("%+v", ended)
	}
	checkEqual(t, "what is left", r.runEvict(0).leftoverPIDs(), []int{0})
	if unix.Kill(leased.Process.Pid, 0) != nil {
		t.Error("the leased job is gone too")
	}
}

// TestEvictStubborn: what ignores the request stays and makes the answer no; --force ends it.
func TestEvictStubborn(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	cmd := exec.Command("sh", "-c", `trap "" TERM; exec "$0" --gpu 0 --mem 1G`, r.Job) //nolint:gosec // ours
	cmd.Env = append(os.Environ(), r.Env()...)
	startToFirstLine(t, cmd) // the job inherits the ignored signal
	pid := r.runEvict(0).leftoverPIDs()[0]
	a := r.runEvict(1, "--grace", "200ms", strconv.Itoa(pid))
	if a.Evicted[0].Gone || !strings.Contains(a.Evicted[0].Why, "--force") {
		t.Errorf("%+v", a.Evicted)
	}
	if a := r.runEvict(0, "--grace", "200ms", "--force", strconv.Itoa(pid)); !a.Evicted[0].Gone {
		t.Errorf("%+v", a.Evicted)
	}
}

// TestEvictSleeping: --idle names a sleeping notebook with its lease, and not one at work.
func TestEvictSleeping(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	notebook, training := r.cmd("run", "-q", "--", r.Job, "--gpu", "0", "--mem", "4G"), r.cmd("run", "-q", "--", "sh", "-c",
		`echo "1G C" > "$FAKEGPU_DIR/gpus/1/procs.d/$$"; echo ready; while :; do :; done`)
	startToFirstLine(t, notebook)
	startToFirstLine(t, training)
	held := strings.TrimSpace(runCommand(t, r.cmd("evict", strconv.Itoa(training.Process.Pid))).err)
	if !strings.Contains(held, "belongs to the living lease ") {
		t.Errorf("a process with a lease: %s", held)
	}
	loose := r.startFakeJob(0, "1G", "C")
	checkContains(t, runCommand(t, r.cmd("evict", "--idle", "1h", strconv.Itoa(loose))).err, "not known to have slept", "leave out --idle")
	offered := runCommand(t, r.cmd("__complete", "evict", "")).out
	checkContains(t, offered, fmt.Sprintf("%d\t", loose))
	if strings.Contains(offered, strconv.Itoa(training.Process.Pid)) {
		t.Errorf("a process with a lease is offered:\n%s", offered)
	}
	_ = unix.Kill(loose, unix.SIGKILL)
	if got := r.runEvict(0, "--idle", "5m").Leftovers; len(got) != 0 {
		t.Errorf("one look says who sleeps: %+v", got)
	}
	waitUntil(t, "the notebook has slept for a second", func() bool { return len(r.runEvict(0, "--idle", "1s").Leftovers) > 0 })
	rows := r.runEvict(0, "--idle", "1s").Leftovers
	if len(rows) != 1 || rows[0].PID != notebook.Process.Pid || rows[0].Lease == "" || rows[0].Idle == nil || *rows[0].Idle < time.Second {
		t.Errorf("%+v", rows)
	}
	if info, err := os.Stat(filepath.Join(homeStatePath(r.state+".home", "seen"), "seen.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("what was seen: %v %v", info, err)
	}
}

// TestEvictOthers: users cannot end other users' processes; root can.
func TestEvictOthers(t *testing.T) {
	gate.Need(t, "root")
	r := newFakeDriverMachine(t, makeA100s(1)...)
	pid := r.startFakeJob(0, "3G", "C")
	cmd := asUser(aliceUID, r.cmd("evict", "--json", strconv.Itoa(pid)))
	cmd.Args[0] = "gpuard"
	got := runCommand(t, cmd)
	if got.code != 1 {
		t.Errorf("exit %d: %s%s", got.code, got.out, got.err)
	}
	checkContains(t, got.out, "ask them, or root")
	if unix.Kill(pid, 0) != nil {
		t.Fatal("it is gone")
	}
	if a := r.runEvict(0, strconv.Itoa(pid)); !a.Evicted[0].Gone {
		t.Errorf("%+v", a.Evicted)
	}
}

// TestEvictContainer: a process of another PID namespace is left alone, by root too.
func TestEvictContainer(t *testing.T) {
	gate.Need(t, "pidns")
	r := newFakeDriverMachine(t, makeA100s(1)...)
	cmd := exec.Command("unshare", "--pid", "--fork", "--kill-child", "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	var pid int
	waitUntil(t, "the process in the namespace runs", func() bool {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		_, _ = fmt.Sscan(string(children), &pid)
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return strings.HasPrefix(string(line), "sleep\x00")
	})
	r.WriteFile(fmt.Sprintf("gpus/0/procs.d/%d", pid), "3G C\n")
	checkContains(t, r.runEvict(1, strconv.Itoa(pid)).Error, "another PID namespace")
	if unix.Kill(pid, 0) != nil {
		t.Error("it is gone")
	}
}

// TestEvictNeedsProof: a process that the driver lists, but that does not have the device open, is not ended, by root
// either: the driver may mean another one by that number.
func TestEvictNeedsProof(t *testing.T) {
	r := newFakeDriverMachine(t, makeA100s(2)...)
	bystander := startSleep(t).Process.Pid
	r.TrackProcess(0, bystander, 3<<30, fakegpu.Compute)
	checkContains(t, r.runEvict(1, "--force", strconv.Itoa(bystander)).Error, "it has not opened GPU 0 (/dev/nvidia0), so the driver may mean another process")
	other := r.startFakeJob(1, "1G", fakegpu.Compute) // it has GPU 1 open
	r.TrackProcess(0, other, 3<<30, fakegpu.Compute)
	checkContains(t, r.runEvict(1, strconv.Itoa(other)).Error, "it has not opened GPU 0")
	for _, pid := range []int{bystander, other} {
		if !isProcessAlive(pid) {
			t.Errorf("process %d was ended", pid)
		}
	}
}

// TestEvictNamespace: in a PID namespace of its own the driver's numbers may be those of other processes. None of them is
// named, nothing says how to end it, and none can be ended; what has the device open can.
func TestEvictNamespace(t *testing.T) {
	gate.Need(t, "pidns")
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.AddProcess(0, 8123, 1<<30, fakegpu.Compute)
	got := r.runInNamespaces(`exec 2>&1
sleep 100 & bystander=$!
echo "20G C" >"$FAKEGPU_DIR/gpus/0/procs.d/$bystander"
echo "== $bystander"
gpuard status
gpuard run --private-state --no-wait --device 0 -- true
gpuard __complete evict ""
gpuard evict
echo "== evict"
gpuard evict --force $bystander
kill -0 $bystander && echo it lives
mkfifo "$FAKEGPU_DIR/ready"
fakegpu-job --gpu 1 --mem 2G >"$FAKEGPU_DIR/ready" & job=$!
read ready <"$FAKEGPU_DIR/ready"
gpuard run --private-state --no-wait --device 1 -- true
gpuard evict $job
kill $bystander
`)
	_, rest, _ := strings.Cut(got.out, "== ")
	bystander, rest, _ := strings.Cut(rest, "\n")
	said, ended, _ := strings.Cut(rest, "== evict\n")
	for _, bad := range []string{"sleep", "kill", "process " + bystander, "PID " + bystander + " of", "pid " + bystander + "\n", "end it: "} {
		if strings.Contains(said, bad) {
			t.Errorf("it says %q:\n%s", bad, said)
		}
	}
	checkContains(t, said, "(another PID namespace)", "pid 8123 there", "by a process outside of this PID namespace (PID "+bystander+" there, 20 GiB)", "find outside of this PID namespace what uses it")
	checkContains(t, ended, "cannot end process "+bystander+": by that number the driver means a process outside of this PID namespace", "it lives", "(fakegpu-job", "end what runs there (kill ", "ended process ")
}

// TestEvictOtherProcfs: where /proc is that of another PID namespace, a signal would go to another process than the one
// whose files prove that it uses the device. Nothing is signalled.
func TestEvictOtherProcfs(t *testing.T) {
	gate.Need(t, "pidns")
	if _, err := os.Stat("/proc/sys/kernel/ns_last_pid"); err != nil {
		t.Skip("this kernel does not let a test choose a process id") // CONFIG_CHECKPOINT_RESTORE
	}
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	job := r.startFakeJob(0, "2G", fakegpu.Compute)
	cmd := r.cmd()
	cmd.Path = must(exec.LookPath("unshare"))
	cmd.Args = []string{"unshare", "--pid", "--fork", "sh", "-c", fmt.Sprintf(`exec 2>&1
echo %d >/proc/sys/kernel/ns_last_pid
sleep 100 & bystander=$!
echo "bystander $bystander"
gpuard evict --force %d
kill -0 $bystander && echo it lives
kill $bystander
`, job-1, job)}
	got := runCommand(t, cmd)
	if !strings.Contains(got.out, fmt.Sprintf("bystander %d\n", job)) {
		t.Skipf("the process has another id than was asked for: %s", got.out)
	}
	checkContains(t, got.out, fmt.Sprintf("cannot end process %d", job), "it lives")
	if !isProcessAlive(job) {
		t.Error("the job is gone")
	}
}
