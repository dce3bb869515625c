package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startRetriedRun begins a run of the program of that name, which fails when dir/go is there and notes the lease of each start
// in dir/leases. It returns the run when its first start is on, and what it says so far.
func startRetriedRun(t *testing.T, r *demoMachine, name, dir string) (wait func() int, pid int, said func() string) {
	t.Helper()
	errs, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errs.Close() })
	cmd := gpuardCommand(t, r.state, nil, "run", "--machine", r.machine, "--retry", "1:any", "--", "sh", "-c",
		`echo $GPUARD_LEASE >>leases; test "$GPUARD_RESTART" && exit 0; while [ -e leases ] && [ ! -e go ]; do sleep 0.1; done; exit 7`)
	cmd.Dir, cmd.Stderr = dir, errs
	cmd.Args[0] = name
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	waitUntil(t, "the command runs", func() bool { return len(readLeasesOfStarts(dir)) == 1 })
	return func() int {
			_ = cmd.Wait()
			return cmd.ProcessState.ExitCode()
		}, cmd.Process.Pid, func() string {
			b, _ := os.ReadFile(errs.Name())
			return string(b)
		}
}

// readLeasesOfStarts are the leases of a run's starts.
func readLeasesOfStarts(dir string) []string {
	b, _ := os.ReadFile(filepath.Join(dir, "leases"))
	return strings.Fields(string(b))
}

func writeGoFile(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRetryKeepsItsLease: a command that fails without a fault of the machine is started again with its lease, even if
// other requests wait for the GPU.
func TestRetryKeepsItsLease(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	dir := t.TempDir()
	wait, _, said := startRetriedRun(t, r, "gpuard", dir)
	waiter := gpuardCommand(t, r.state, nil, "run", "-q", "--machine", r.machine, "--", "sh", "-c", "wc -l <"+dir+"/leases")
	over := make(chan runResult, 1)
	go func() { over <- runCommand(t, waiter) }()
	waitUntil(t, "somebody waits", func() bool {
		found, _ := filepath.Glob(filepath.Join(r.leaseFolder(), "tickets", "*", "[^.]*"))
		return len(found) > 0
	})
	writeGoFile(t, dir)
	checkEqual(t, "exit", wait(), 0)
	if on := readLeasesOfStarts(dir); len(on) != 2 || on[0] != on[1] {
		t.Errorf("it ran with the leases %v\n%s", on, said())
	}
	checkContains(t, said(), "the command ended (exit 7): starting it again in 0.5 s, start 2 of 2\n")
	if got := <-over; strings.TrimSpace(got.out) != "2" {
		t.Errorf("the one who waited: %+v", got)
	}
	r.waitUntilFreed()
}

// TestRetryKilledBetween: a gpuard that is killed between two starts leaves no lease behind.
func TestRetryKilledBetween(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	dir := t.TempDir()
	wait, pid, said := startRetriedRun(t, r, "pausing", dir)
	writeGoFile(t, dir)
	waitUntil(t, "the first start is over", func() bool { return strings.Contains(said(), "starting it again") })
	waitUntil(t, "gpuard itself has the lease", func() bool {
		held := readRecordedLeases(t, r)
		return len(held) == 1 && held[0].PID == pid && !held[0].Ended
	})
	checkEqual(t, "another's exit", runCommand(t, r.jobCommand("true")).code, 120)
	_ = unix.Kill(pid, unix.SIGKILL)
	wait()
	r.waitUntilFreed()
	checkEqual(t, "another's exit afterwards", runCommand(t, r.jobCommand("true")).code, 0)
	checkEqual(t, "starts", len(readLeasesOfStarts(dir)), 1)
}

// TestRetryGivesBack: a drained GPU, or one whose lease is gone, is not used again, with a message.
func TestRetryGivesBack(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{"drained": " is drained: ", "removed": " was released: "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDemoMachine(t, "demo:2xL4")
			dir := t.TempDir()
			wait, _, said := startRetriedRun(t, r, "gpuard", dir)
			gpu := strings.Fields(said())[2]
			if name == "drained" {
				if got := runCommand(t, gpuardCommand(t, r.state, nil, "drain", gpu, "--machine", r.machine)); got.code != 0 {
					t.Fatalf("%+v", got)
				}
			} else {
				files, _ := filepath.Glob(filepath.Join(r.leaseFolder(), "leases", "*", readLeasesOfStarts(dir)[0]+"*"))
				for _, f := range files {
					_ = os.Remove(f)
				}
			}
			writeGoFile(t, dir)
			checkEqual(t, "exit", wait(), 0)
			if on := readLeasesOfStarts(dir); len(on) != 2 || on[0] == on[1] {
				t.Errorf("it ran with the leases %v", on)
			}
			checkContains(t, said(), says, "gave GPU "+gpu+" (NVIDIA L4) back; in line again\n")
			r.waitUntilFreed()
		})
	}
}

// TestEndNamesHolders: processes that a command leaves behind keep its lease, and the last line says so.
func TestEndNamesHolders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ flag, want string }{
		"text": {"--retry=1", "processes of the command still hold lease "}, "json": {"--json", `"held_by":[{"pid":`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDemoMachine(t, "demo:1xL4")
			cmd := gpuardCommand(t, r.state, nil, "run", "--machine", r.machine, "--timeout", "1h", c.flag, "--", "sh", "-c", `sleep 1008 >/dev/null 2>&1 & until tr '\0' ' ' </proc/$!/cmdline | grep -q ^sleep; do :; done; echo $!`)
			got := runCommand(t, cmd)
			pid, err := strconv.Atoi(strings.TrimSpace(got.out))
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // it may be gone
			checkContains(t, got.err, c.want, fmt.Sprint(pid), "sleep")
			if name == "text" {
				checkContains(t, got.err, fmt.Sprintf(": PID %d (sleep); end them, or type: gpuard release ", pid))
			}
			_ = unix.Kill(pid, unix.SIGKILL)
			r.waitUntilFreed()
		})
	}
}

// TestTimeoutIsSaid: the end of a run by its limit is said also with -q, and the end line has the exit code that a
// shell sees.
func TestTimeoutIsSaid(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	got := runCommand(t, gpuardCommand(t, r.state, nil, "run", "-q", "--machine", r.machine, "--timeout", "100ms", "--", "sleep", "60"))
	if got != (runResult{124, "", "gpuard: the time is over (--timeout 100ms): ending the command\n"}) {
		t.Errorf("%+v", got)
	}
	r.waitUntilFreed()
	got = runCommand(t, gpuardCommand(t, r.state, nil, "run", "--machine", r.machine, "--timeout", "3s", "--", "sh", "-c", "trap 'exit 143' TERM; while :; do sleep 0.1; done"))
	checkContains(t, got.err, "; exit 124, ended by --timeout; the command itself: exit 143")
	r.waitUntilFreed()
}

// TestEmptyCare: the error for an empty value shows one that can be typed.
func TestEmptyCare(t *testing.T) {
	t.Parallel()
	for flag, says := range map[string]string{"--retry": "--retry 3", "--log": "--log run.log", "--grace": "--grace 30s", "--drift": "--drift=hot,sick"} {
		got := runCommand(t, gpuardCommand(t, stateFolder(t), nil, "run", "--machine", "demo", flag+"=", "--", "true"))
		checkEqual(t, "exit of "+flag, got.code, 125)
		checkContains(t, got.err, "cannot read "+flag, says)
	}
}

// TestRetryNotWanted: a command that a user has ended is not started again, with a message.
func TestRetryNotWanted(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	got := runCommand(t, gpuardCommand(t, r.state, nil, "run", "--machine", r.machine, "--retry", "2:any", "--", "sh", "-c", "kill -TERM $$"))
	checkContains(t, got.err, "the command was ended by SIGTERM and is not started again: a user ended it\n")
	r.waitUntilFreed()
	got = runCommand(t, gpuardCommand(t, r.state, nil, "run", "--machine", r.machine, "--share", "8G", "--retry", "2:any", "--", "sh", "-c", "kill -TERM $$"))
	checkContains(t, got.err, "is not started again: either a user ended it, or it used more than its share of 8 GiB, ")
	r.waitUntilFreed()
}

// TestLogTells: a log that cannot be written is refused before the request waits, and gpuard's messages about the run
// are in the log too.
func TestLogTells(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	dir := t.TempDir()
	start := func(words ...string) runResult {
		cmd := gpuardCommand(t, r.state, nil, append([]string{"run", "--machine", r.machine}, words...)...)
		cmd.Dir = dir
		return runCommand(t, cmd)
	}
	got := start("--log", "log", "--timeout", "3s", "--retry", "1:any", "--", "sh", "-c", `test "$GPUARD_RESTART" || exit 7; exec sleep 60`)
	checkEqual(t, "exit", got.code, 124)
	b, _ := os.ReadFile(filepath.Join(dir, "log"))
	checkContains(t, string(b), ": the command ended (exit 7): starting it again in ", ": the time is over (--timeout 3s): ", "; exit 124, ended by ")
	r.waitUntilFreed()
	got = start("--log", "/dev/full", "--", "true")
	if checkEqual(t, "exit", got.code, 125); strings.Contains(got.err, "cuda:0") {
		t.Errorf("said %s", got.err)
	}
	r.waitUntilFreed()
	checkEqual(t, "exit", start("--log", "-", "--", "true").code, 125)
	got = start("--log", "a", "--log", "b", "--", "true")
	checkEqual(t, "exit", got.code, 125)
	checkContains(t, got.err, "--log", "can be given once")

	dir = t.TempDir()
	wait, _, _ := startRetriedRun(t, r, "gpuard", dir)
	got = start("--log", "none/log", "--wait=20s", "--", "true") // the only GPU is taken
	if checkEqual(t, "exit", got.code, 125); strings.Contains(got.err, "waiting") || !strings.Contains(got.err, "cannot log to none/log: ") {
		t.Errorf("said %s", got.err)
	}
	writeGoFile(t, dir)
	checkEqual(t, "exit", wait(), 0)
	r.waitUntilFreed()
}

// TestEndedBeforeItIsRecorded: a command that ends before its lease is recorded as its own keeps its exit status. No
// other process reaps it meanwhile.
func TestEndedBeforeItIsRecorded(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	r.waitUntilFreed()
	said, errs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close() //nolint:errcheck // read to its end
	if _, err = unix.FcntlInt(errs.Fd(), unix.F_SETPIPE_SZ, 4096); err == nil {
		_, err = errs.Write(make([]byte, 4096)) // so that gpuard stays where it says what it has leased
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := gpuardCommand(t, r.state, nil, "run", "--machine", r.machine, "--timeout", "1h", "--", "sh", "-c", "echo on; exit 7")
	cmd.Stderr = errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = errs.Close()
	waitUntil(t, "it has leased", func() bool { return r.countLeases() == 1 })
	lock, err := os.OpenFile(filepath.Join(r.leaseFolder(), "lock"), os.O_RDWR, 0)
	if err == nil {
		err = unix.FcntlFlock(lock.Fd(), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, said) //nolint:errcheck // what it says is not asked
	_, _ = out.Read(make([]byte, 3))
	time.Sleep(time.Second) // it has ended, and an orphan would have been buried
	_ = lock.Close()
	_ = cmd.Wait()
	checkEqual(t, "exit", cmd.ProcessState.ExitCode(), 7)
	r.waitUntilFreed()
}
