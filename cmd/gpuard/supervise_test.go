package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/gate"
	"gpuard/internal/host/proc"
)

// processFamilyScript is a command whose children leave their parent, process group and session in every way; it records its
// members.
const processFamilyScript = `note() { echo $1 >>pids; }
note $$
(setsid sh -c 'echo $$ >>pids; trap "" TERM; while :; do sleep 1; done' &)
setsid sh -c 'echo $$ >>pids; sleep 1000 & echo $! >>pids; wait' &
sh -c '(sleep 1001 & echo $! >>pids)'
(kill -STOP $(sh -c 'echo $PPID')) & note $!
while [ $(wc -l <pids) -lt 6 ]; do sleep 0.1; done
echo on
`

// waitForFamily waits until the family is complete, and returns it.
func waitForFamily(t *testing.T, dir string, n int) (pids []int) {
	t.Helper()
	waitUntil(t, "the family is complete", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "pids"))
		pids = nil
		for word := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		return len(pids) >= n
	})
	return pids
}

// TestTimeoutEndsTheTree: --timeout ends whatever the command started, also what left it or does not want to end.
func TestTimeoutEndsTheTree(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ flags, tail string }{
		"polite": {"--timeout 4s --grace 300ms", "sleep 1003"},
		"deaf":   {"--timeout 4s --grace 300ms", "trap '' TERM; while :; do sleep 0.1; done"},
		"the command is gone, its children are not": {"--timeout 4s --grace 300ms --stop-signal INT", "exec sleep 1004"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDemoMachine(t, "demo:1xL4")
			cmd := gpuardCommand(t, r.state, nil, append(append([]string{"run", "-q", "--machine", r.machine}, strings.Fields(c.flags)...), "--", "sh", "-c", processFamilyScript+c.tail)...)
			cmd.Dir = t.TempDir()
			began := time.Now()
			got := runCommand(t, cmd)
			if got.code != 124 {
				t.Errorf("exit %d: %s", got.code, got.err)
			}
			if spent := time.Since(began); spent < 4*time.Second || spent > 30*time.Second {
				t.Errorf("it took %v", spent)
			}
			for _, pid := range waitForFamily(t, cmd.Dir, 6) {
				if !isProcessGone(strconv.Itoa(pid)) {
					t.Errorf("process %d lives", pid)
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
			r.waitUntilFreed()
		})
	}
}

// TestTimeoutOtherNamespace: with cgroups, a process in another PID namespace is ended too: its parent is the first
// process there. Processes that live on when the command ends by itself may stay.
func TestTimeoutOtherNamespace(t *testing.T) {
	gate.Need(t, "cgroup2", "pidns")
	t.Parallel()
	other := exec.Command("sleep", "1000")
	other.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	})
	for tail, code := range map[string]int{"exec sleep 1006": 124, "exit 3": 3} {
		r := newDemoMachine(t, "demo:1xL4")
		script := fmt.Sprintf(`nsenter --pid --target %d sh -c "(setsid sleep 1007.$$ >/dev/null 2>&1 &)"
until [ "$found" ]; do found=$(grep -lsz "^1007[.]$$" /proc/[0-9]*/cmdline); done
echo $found | cut -d/ -f3 >pids; cat /proc/self/cgroup >cgroup
`, other.Process.Pid)
		cmd := gpuardCommand(t, r.state, nil, "run", "-q", "--machine", r.machine, "--timeout", "1s", "--grace", "300ms", "--", "sh", "-c", script+tail)
		cmd.Dir = t.TempDir()
		checkEqual(t, "exit of "+tail, runCommand(t, cmd).code, code)
		pid := waitForFamily(t, cmd.Dir, 1)[0]
		if lives := !isProcessGone(strconv.Itoa(pid)); lives != (code == 3) {
			t.Errorf("%q: process %d lives: %v", tail, pid, lives)
		}
		_ = unix.Kill(pid, unix.SIGKILL)
		b, _ := os.ReadFile(filepath.Join(cmd.Dir, "cgroup"))
		if name := fmt.Sprintf("gpuard-%d.", cmd.Process.Pid); !strings.Contains(string(b), name) {
			t.Errorf("%q ran in %s", tail, b)
		} else if left := runCommand(t, exec.Command("sh", "-c", "find $(awk '/ - cgroup2 /{print $5}' /proc/self/mountinfo) -name '"+name+"*'")).out; left != "" {
			t.Errorf("%s is left", left)
		}
		r.waitUntilFreed()
	}
}

// TestTimeoutOutlivesItsParent: the time limit of a job holds when its gpuard is killed: its holder ends it, with what it started.
func TestTimeoutOutlivesItsParent(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	cmd := gpuardCommand(t, r.state, nil, "run", "-q", "--machine", r.machine, "--timeout", "3s", "--grace", "300ms", "--", "sh", "-c", "setsid sleep 1008 & echo $! $$ >pids; wait")
	cmd.Dir = t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pids := waitForFamily(t, cmd.Dir, 2)
	waitUntil(t, "its holder is there", func() bool { return len(holdersOf(r.leaseFolder())) == 1 }) // it may begin after the command
	killProcess(t, cmd.Process.Pid)
	_ = cmd.Wait()
	if isProcessGone(strconv.Itoa(pids[0])) || isProcessGone(strconv.Itoa(pids[1])) || r.countLeases() != 1 {
		t.Error("the job has ended with its gpuard")
	}
	waitUntil(t, "its time is over", func() bool { return isProcessGone(strconv.Itoa(pids[0])) && isProcessGone(strconv.Itoa(pids[1])) })
	r.waitUntilFreed()
}

// TestParentKilled: a gpuard that is killed leaves its job running, with its lease and its log, and without a helper of
// its own; the device is free when the job has ended.
func TestParentKilled(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	cmd := gpuardCommand(t, r.state, nil, "run", "--machine", r.machine, "--timeout", "1h", "--log", log, "--", "sh", "-c", "echo $$; while [ ! -e "+dir+"/end ]; do sleep 0.1; done; echo last words; exit 3")
	text := startToFirstLine(t, cmd)
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the holder is there", func() bool { return len(holdersOf(r.leaseFolder())) == 1 }) // it comes last
	_ = cmd.Process.Kill()
	_, _ = cmd.Process.Wait()
	if got := runCommand(t, r.jobCommand("true")); got.code != 120 || !strings.Contains(got.err, "sh") {
		t.Errorf("exit %d: %s", got.code, got.err)
	}
	status := readRecordedLeases(t, r)
	if len(status) != 1 || status[0].PID != pid {
		t.Errorf("the lease is not the command's: %+v", status)
	}
	end := watchProcessEnd(t, pid)
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	end()
	r.waitUntilFreed()
	waitUntil(t, "the log is complete", func() bool {
		b, _ := os.ReadFile(log)
		return strings.HasSuffix(string(b), "last words\n")
	})
}

// readRecordedLeases reads the leases as they are recorded.
func readRecordedLeases(t *testing.T, r *demoMachine) (leases []job.Lease) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(r.leaseFolder(), "leases", "*", "[^.]*.json")) // .new-* is still being written
	for _, f := range files {
		b, err := os.ReadFile(f)
		if errors.Is(err, os.ErrNotExist) {
			continue // of a lease that just ended
		}
		var l job.Lease
		if err == nil {
			err = json.Unmarshal(b, &l)
		}
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l)
	}
	return leases
}

// TestUntil: the lease of a command with a limit says when it ends at the latest; without one it says nothing.
func TestUntil(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:2xL4")
	for flags, want := range map[string]time.Duration{"--timeout 1h --grace 1m": time.Hour + time.Minute, "--retry 1": 0} {
		args := append([]string{"run", "-q", "--machine", r.machine}, strings.Fields(flags)...)
		cmd := gpuardCommand(t, r.state, nil, append(args, "--", "sh", "-c", "echo on; exec sleep 60")...)
		startToFirstLine(t, cmd)
		var l job.Lease
		waitUntil(t, "the lease is the command's", func() bool {
			for _, l = range readRecordedLeases(t, r) {
				if stat, err := proc.New("/proc").Stat(l.PID); err == nil && stat.PPID == cmd.Process.Pid && stat.Start == l.Start {
					return true
				}
			}
			return false
		})
		span := time.Duration(l.Until - l.SinceBoot)
		if want == 0 && l.Until != 0 || want > 0 && (span < want || span > want+time.Minute) {
			t.Errorf("%s: it ends %v after its claim", flags, span)
		}
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
		r.waitUntilFreed()
	}
}

// TestReaper: gpuard buries what its command leaves, as the first process of a PID namespace too, and does not wait for
// what lives on.
func TestReaper(t *testing.T) {
	t.Parallel()
	const script = `(sleep 0.1 & echo $! >first); (sleep 0.2 & echo $! >second)
for i in $(seq 1000); do test -e /proc/$(cat first) || test -e /proc/$(cat second) || { (sleep 30 >/dev/null 2>&1 &); exit 5; }; sleep 0.01; done; echo unburied`
	t.Run("subreaper", func(t *testing.T) {
		cmd := gpuardCommand(t, stateFolder(t), nil, "run", "-q", "--machine", "demo", "--timeout", "1h", "--", "sh", "-c",
			`(sleep 0.1 & echo $! >orphan); for i in $(seq 1000); do test -e /proc/$(cat orphan) || exit 5; sleep 0.01; done; echo unburied`)
		cmd.Dir = t.TempDir()
		if got := runCommand(t, cmd); got.code != 5 || got.out != "" {
			t.Errorf("exit %d: %s%s", got.code, got.out, got.err)
		}
	})
	t.Run("pidns", func(t *testing.T) {
		gate.Need(t, "pidns")
		inner := gpuardCommand(t, stateFolder(t), nil, "run", "-q", "--machine", "demo", "--private-state", "--timeout", "1h", "--", "sh", "-c", script)
		cmd := gpuardCommand(t, stateFolder(t), nil)
		cmd.Path = "/usr/bin/unshare"
		cmd.Args = append([]string{"unshare", "--pid", "--fork", "--mount-proc", "gpuard"}, inner.Args[1:]...)
		cmd.Env, cmd.Dir = inner.Env, t.TempDir()
		if got := runCommand(t, cmd); got.code != 5 || got.out != "" {
			t.Errorf("exit %d: %s%s", got.code, got.out, got.err)
		}
	})
}

// TestRetry: what is started again, how often, and what the command is told.
func TestRetry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags, script string
		out           string
		code          int
	}{
		"any failure":           {"--retry 2:any", "echo start ${GPUARD_RESTART-first}; exit 7", "start first\nstart 1\nstart 2\n", 7},
		"until it works":        {"--retry 5:any", `echo start ${GPUARD_RESTART-0}; test "$GPUARD_RESTART" = 2`, "start 0\nstart 1\nstart 2\n", 0},
		"its own fault":         {"--retry 2", "echo start; exit 7", "start\n", 7},
		"its own fault, said":   {"--retry 2:machine", "echo start; kill -SEGV $$", "start\n", -1},
		"a user's signal":       {"--retry 2:any", "echo start; kill -INT $$", "start\n", -1},
		"a success":             {"--retry 2:any", "echo start", "start\n", 0},
		"the one around it":     {"--retry 1:any", `test -n "$GPUARD_RESTART" && exit 1; GPUARD_RESTART=9 gpuard run -q --timeout 1h -- sh -c 'echo inner ${GPUARD_RESTART-none}'; exit 4`, "inner none\n", 1},
		"what it left is ended": {"--retry 1:any", `test -n "$GPUARD_RESTART" && { test -e /proc/$(cat left) && echo alive; exit 0; }; (setsid sleep 1005 & echo $! >left); exit 1`, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDemoMachine(t, "demo:2xL4")
			args := append([]string{"run", "-q", "--machine", r.machine}, strings.Fields(c.flags)...)
			cmd := gpuardCommand(t, r.state, []string{"GPUARD_MACHINE=" + r.machine}, append(args, "--", "sh", "-c", c.script)...)
			cmd.Dir = t.TempDir()
			got := runCommand(t, cmd)
			if got.code != c.code || got.out != c.out {
				t.Errorf("exit %d, printed %q, want %d, %q\n%s", got.code, got.out, c.code, c.out, got.err)
			}
			r.waitUntilFreed()
		})
	}
	t.Run("the time is for all", func(t *testing.T) {
		t.Parallel()
		got := runCommand(t, gpuardCommand(t, stateFolder(t), nil, "run", "-q", "--machine", "demo", "--retry", "9:any", "--timeout", "2s", "--grace", "0s", "--", "sh", "-c", "echo start; sleep 0.7; exit 1"))
		if starts := strings.Count(got.out, "start\n"); got.code != 124 || starts < 1 || starts > 4 {
			t.Errorf("exit %d after %d starts\n%s", got.code, starts, got.err)
		}
	})
}

// TestRetryMachine: a GPU that fell off the bus during the run, or for which the driver reported an error that is not
// the program's, is a reason to start again on another one; an error of the program, and one from before, is not.
func TestRetryMachine(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(3)...)
	fail := func(flag string, damage func(gpu int), says string) (runResult, []string) {
		dir := t.TempDir()
		errs, err := os.Create(filepath.Join(dir, "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		defer errs.Close() //nolint:errcheck // the program's
		cmd := r.hastyCommand("run", "--retry", "3"+flag, "--", "sh", "-c", "echo $GPUARD_GPUS >>gpus; while [ ! -e go ]; do sleep 0.1; done; test $(wc -l <gpus) -gt 1 || exit 7")
		cmd.Dir = dir
		cmd.Stderr = errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := func() string {
			b, _ := os.ReadFile(errs.Name())
			return string(b)
		}
		on := ""
		waitUntil(t, "the command runs", func() bool {
			b, _ := os.ReadFile(filepath.Join(dir, "gpus"))
			on = strings.TrimSpace(string(b))
			return on != ""
		})
		waitUntil(t, "gpuard says "+says, func() bool {
			for i := range 3 {
				if on == fakeUUID(i) {
					damage(i) // a later listener gets no earlier errors
				}
			}
			return strings.Contains(said(), says)
		})
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		b, _ := os.ReadFile(filepath.Join(dir, "gpus"))
		return runResult{code: cmd.ProcessState.ExitCode(), err: said()}, strings.Fields(string(b))
	}
	got, on := fail("", func(int) {}, "")
	checkEqual(t, "exit", got.code, 7)
	checkEqual(t, "starts", len(on), 1)
	checkContains(t, got.err, "nothing says that it was the machine's fault (--retry 3:any")

	got, on = fail("", func(i int) { r.XID(i, 31) }, "reported XID 31: ")
	checkEqual(t, "exit", got.code, 7)
	checkEqual(t, "starts", len(on), 1)

	got, on = fail("", func(i int) { r.XID(i, 79) }, "reported XID 79: ")
	checkEqual(t, "exit", got.code, 0)
	if len(on) != 2 || on[0] == on[1] {
		t.Errorf("it ran on %v\n%s", on, got.err)
	}
	checkContains(t, got.err, "the command ended (exit 7), and GPU", ": XID 79: ", "starting it again elsewhere, start 2 of 4")

	got, on = fail(":machine", r.LoseGPU, "")
	checkEqual(t, "exit", got.code, 0)
	if len(on) != 2 || on[0] == on[1] {
		t.Errorf("it ran on %v\n%s", on, got.err)
	}
	checkContains(t, got.err, "the command ended (exit 7), and GPU", "starting it again elsewhere, start 2 of 4", "; 2 starts")
}

// TestLogOfBytes: the path of a log need not be UTF-8.
func TestLogOfBytes(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	dir := filepath.Join(t.TempDir(), "caf\xe9")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "lo\xffg")
	got := runCommand(t, gpuardCommand(t, r.state, nil, "run", "-q", "--machine", r.machine, "--log", path, "--", "echo", "hello"))
	text, err := os.ReadFile(path)
	entries, _ := os.ReadDir(dir)
	if got.code != 0 || got.err != "" || err != nil || !strings.Contains(string(text), "\nhello\n") || len(entries) != 1 {
		t.Errorf("%+v, %v: %q in %v", got, err, text, entries)
	}
}

// TestKeeperByHand: a helper that a person calls refuses, whatever it is given.
func TestKeeperByHand(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	for _, input := range []string{"", "{}", "no JSON", `{"run": 1}`} {
		cmd := gpuardCommand(t, r.state, nil, "__keep", filepath.Join(t.TempDir(), "journal"))
		cmd.Stdin = strings.NewReader(input)
		if got := runCommand(t, cmd); got.code != 2 && got.code != 125 || !strings.Contains(got.err, "by hand") || strings.Contains(got.err, "goroutine") {
			t.Errorf("%q: %+v", input, got)
		}
	}
}

// TestLog: the output goes where it would have gone and into the file, which begins with the device and does not grow
// for ever.
func TestLog(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	dir := t.TempDir()
	logged := func(flags, script string) (runResult, string) {
		args := append([]string{"run", "-q", "--machine", r.machine, "--log", "log"}, strings.Fields(flags)...)
		cmd := gpuardCommand(t, r.state, nil, append(args, "--", "sh", "-c", script)...)
		cmd.Dir = dir
		got := runCommand(t, cmd)
		r.waitUntilFreed()
		b, err := os.ReadFile(filepath.Join(dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		return got, string(b)
	}
	got, text := logged("", "echo out; echo err >&2; exit 3")
	if got != (runResult{3, "out\n", "err\n"}) {
		t.Errorf("%+v", got)
	}
	first, rest, _ := strings.Cut(text, "\n")
	checkContains(t, first, "# gpuard: ", "GPU 0 (NVIDIA L4) is cuda:0, lease ", ": sh -c 'echo out; echo err >&2; exit 3'")
	rest, end, _ := strings.Cut(rest, "# gpuard: ")
	checkContains(t, end, ": GPU 0 (NVIDIA L4); ran ", " s; exit 3")
	if rest != "out\nerr\n" && rest != "err\nout\n" {
		t.Errorf("the log has %q", rest)
	}
	_, text = logged("", "echo second")
	checkEqual(t, "device lines", strings.Count(text, " is cuda:0, lease "), 2)
	got, text = logged("--log-limit 8K", "seq 3000")
	checkEqual(t, "what was shown", strings.Count(got.out, "\n"), 3000)
	old, err := os.ReadFile(filepath.Join(dir, "log.1"))
	if err != nil || len(text) > 8<<10 || !strings.Contains(text, "\n3000\n# gpuard: ") || len(old) == 0 {
		t.Errorf("%v: %d and %d bytes: %.40q", err, len(text), len(old), text)
	}
	t.Run("nobody reads what it prints", func(t *testing.T) {
		cmd := gpuardCommand(t, r.state, nil, "run", "-q", "--machine", r.machine, "--log", filepath.Join(dir, "log"), "--", "yes")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = out.Read(make([]byte, 10))
		_ = out.Close()
		if err := cmd.Wait(); err == nil || err.Error() != "signal: broken pipe" {
			t.Errorf("it ended with %v", err)
		}
		r.waitUntilFreed()
	})
	t.Run("a file that cannot be written", func(t *testing.T) {
		got := runCommand(t, gpuardCommand(t, r.state, nil, "run", "--machine", r.machine, "--log", "/proc/none", "--", "echo", "started"))
		if got.code != 125 || got.out != "" || !strings.Contains(got.err, "cannot log to /proc/none: ") {
			t.Errorf("%+v", got)
		}
		r.waitUntilFreed()
	})
}

// TestEndLine: where, how long, how it ended, and how much memory if that is known; as JSON on request.
func TestEndLine(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	got := runCommand(t, gpuardCommand(t, r.state, nil, "run", "--machine", r.machine, "--retry", "1", "--", "sh", "-c", "head -c 300000000 /dev/zero | tail -c 300000000 >/dev/null; exit 3"))
	checkEqual(t, "exit", got.code, 3)
	checkContains(t, got.err, "gpuard: GPU 0 (NVIDIA L4); ran ", " s; exit 3; at most ", " MiB of host memory in one process\n")
	r.waitUntilFreed()
	got = runCommand(t, gpuardCommand(t, r.state, nil, "run", "--json", "--machine", r.machine, "--timeout", "200ms", "--", "sleep", "60"))
	checkEqual(t, "exit", got.code, 124)
	lines := strings.Split(strings.TrimSpace(got.err), "\n")
	var begun struct {
		Schema string
		PID    int
	}
	var over struct {
		Schema   string
		Signal   string
		Exit     int
		TimedOut bool       `json:"timed_out"`
		Peak     *gpu.Bytes `json:"host_memory_peak"`
	}
	if len(lines) != 2 || json.Unmarshal([]byte(lines[0]), &begun) != nil || json.Unmarshal([]byte(lines[1]), &over) != nil {
		t.Fatalf("%q", lines)
	}
	if begun.Schema != "gpuard.run/1" || begun.PID == 0 || over.Schema != "gpuard.run-end/1" || over.Signal != "SIGTERM" || over.Exit != -1 || !over.TimedOut || over.Peak != nil { // sleep uses less than gpuard, which it was until its exec
		t.Errorf("%+v %+v", begun, over)
	}
	r.waitUntilFreed()
}
