package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/gate"
)

// reserveForPID asks for a lease for the life of pid.
func (r *demoMachine) reserveForPID(pid int, flags ...string) runResult {
	r.t.Helper()
	args := append(append([]string{"reserve", "--no-wait", "--machine", r.machine}, flags...), "--pid", strconv.Itoa(pid))
	return runCommand(r.t, gpuardCommand(r.t, r.state, nil, args...))
}

// countLeases counts what is alive.
func (r *demoMachine) countLeases() int {
	r.t.Helper()
	return len(r.liveLeases())
}

// waitUntilFreed waits until no lease is alive and returns how long that took.
func (r *demoMachine) waitUntilFreed() time.Duration {
	r.t.Helper()
	started := time.Now()
	for r.countLeases() > 0 {
		if time.Since(started) > 20*time.Second {
			r.t.Fatal("the lease outlives its process")
		}
		time.Sleep(200 * time.Microsecond)
	}
	return time.Since(started)
}

func startSleep(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd
}

func TestHold(t *testing.T) {
	r := newDemoMachine(t, "demo:1xL4")
	checkFreedWithin50ms(t, func() time.Duration {
		cmd := startSleep(t)
		got := r.reserveForPID(cmd.Process.Pid)
		if want := fmt.Sprintf(`^GPU 0 \(NVIDIA L4\) is cuda:0, lease [a-z0-9]{4}, until process %d ends\n$`, cmd.Process.Pid); got.code != 0 || !regexp.MustCompile(want).MatchString(got.out) {
			t.Fatalf("exit %d, %q, %s", got.code, got.out, got.err)
		}
		if busy := runCommand(t, r.jobCommand("true")); busy.code != 120 || !strings.Contains(busy.err, "sleep") {
			t.Fatalf("a held device was given away: exit %d, %s", busy.code, busy.err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return r.waitUntilFreed()
	})
}

// TestHoldReusedPID: the lease is for a process, not for a number. The next process with that number does not keep it.
func TestHoldReusedPID(t *testing.T) {
	gate.Need(t, "privileged")
	r := newDemoMachine(t, "demo:1xL4")
	for range 20 { // another program may have the number for as long as it runs: then the next number
		if r.checkReusedPID() {
			return
		}
	}
	t.Fatal("could not get the number of an ended process again")
}

// checkReusedPID says whether a process got the number of one that had a lease, and then that it has none.
func (r *demoMachine) checkReusedPID() bool {
	t := r.t
	t.Helper()
	first := startSleep(t)
	pid := first.Process.Pid
	if got := r.reserveForPID(pid); got.code != 0 {
		t.Fatal(got.err)
	}
	_ = first.Process.Kill()
	_ = first.Wait()
	again := 0
	for range 200 { // other programs fork too, so the number may be taken before us
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Fatal(err)
		}
		cmd := startSleep(t)
		if again = cmd.Process.Pid; again == pid {
			break
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	r.waitUntilFreed()
	if again != pid {
		return false
	}
	if got := runCommand(t, r.jobCommand("true")); got.code != 0 {
		t.Errorf("a reused PID keeps the lease: exit %d, %s", got.code, got.err)
	}
	return true
}

func TestHoldRefuses(t *testing.T) {
	r := newDemoMachine(t, "demo:1xL4")
	ended := startSleep(t)
	_ = ended.Process.Kill()
	waitUntil(t, "it has ended", func() bool { return processState(ended.Process.Pid) == "Z" })
	if got := r.reserveForPID(ended.Process.Pid); got.code != 125 || !strings.Contains(got.err, "it has ended, and its parent, process "+strconv.Itoa(os.Getpid())+", has not collected it") {
		t.Errorf("a zombie: exit %d, %s", got.code, got.err)
	}
	_ = ended.Wait()
	if got := r.reserveForPID(ended.Process.Pid); got.code != 125 || !strings.Contains(got.err, "there is no such process") {
		t.Errorf("ended process: exit %d, %s", got.code, got.err)
	}
	if got := r.reserveForPID(os.Getpid(), "--gpus", "2"); got.code != 122 {
		t.Errorf("two of one: exit %d, %s", got.code, got.err)
	}
	if got := runCommand(t, gpuardCommand(t, r.state, nil, "reserve", "--machine", r.machine, "--pid", "notebook")); got.code != 125 || !strings.Contains(got.err, "--pid 4242") {
		t.Errorf("no number: exit %d, %s", got.code, got.err)
	}
	r.waitUntilFreed()
}

func TestHoldForSomebodyElse(t *testing.T) {
	gate.Need(t, "root")
	r := newDemoMachine(t, "demo:1xL4")
	if err := os.Chmod(r.state, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := gpuardCommand(t, r.state, nil, "reserve", "--machine", r.machine, "--pid", strconv.Itoa(os.Getpid()))
	cmd.Path, cmd.Dir = "/proc/self/exe", "/" // the test binary lies in a folder of root's
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if got := runCommand(t, cmd); got.code != 125 || !strings.Contains(got.err, "belongs to root, not to you") {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
}

// TestShellLease: the shell that evaluates the variables has the lease until it ends, and its prompt returns without
// delay.
func TestShellLease(t *testing.T) {
	t.Parallel()
	for _, shell := range []struct{ name, script string }{
		{"sh", `eval "$(gpuard reserve --shell)"`},
		{"bash", `eval "$(gpuard reserve --shell)"`},
		{"bash", `eval "$(gpuard reserve --shell || echo false)"`}, // the shell forks a copy of itself for a list
		{"zsh", `eval "$(gpuard reserve --shell)"`},
		{"fish", `gpuard reserve --shell=fish | source`},
	} {
		t.Run(shell.name, func(t *testing.T) {
			needShell(t, shell.name)
			r := newDemoMachine(t, "demo:1xL4")
			cmd := gpuardCommand(t, r.state, []string{"GPUARD_MACHINE=" + r.machine, "HOME=" + t.TempDir()})
			cmd.Path, _ = exec.LookPath(shell.name)
			cmd.Args = []string{shell.name, "-c", shell.script + "; echo got $CUDA_VISIBLE_DEVICES $GPUARD_LEASE; read line; true"}
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil || !regexp.MustCompile(`^got 0 [a-z0-9]{4}\n$`).MatchString(line) {
				t.Fatalf("the shell says %q (%v)", line, err)
			}
			if n := r.countLeases(); n != 1 {
				t.Errorf("%d leases while the shell runs", n)
			}
			_ = in.Close()
			_ = cmd.Wait()
			r.waitUntilFreed()
		})
	}
}

// TestShellLeaseAtOnce: leasing keeps the shell hardly longer than reading the variables does. What a busy machine
// adds, it adds to both, so they are measured side by side, in one shell.
func TestShellLeaseAtOnce(t *testing.T) {
	const rounds, more = 10, 300 * time.Millisecond
	var extra []time.Duration
	for range rounds {
		r := newDemoMachine(t, "demo:1xL4")
		cmd := gpuardCommand(t, r.state, []string{"GPUARD_MACHINE=" + r.machine})
		cmd.Path, _ = exec.LookPath("sh")
		cmd.Args = []string{"sh", "-c", `echo; x="$(gpuard env)"; echo; eval "$(gpuard reserve --shell)"; echo $GPUARD_LEASE`}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var at [3]time.Time
		var line string
		lines := bufio.NewReader(out)
		for i := range at {
			if line, err = lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			at[i] = time.Now()
		}
		_ = cmd.Wait()
		if len(line) != len("k3f9\n") {
			t.Fatalf("the shell's lease is %q", line)
		}
		r.waitUntilFreed()
		plain, leased := at[1].Sub(at[0]), at[2].Sub(at[1])
		if leased-plain <= more {
			return // a delay would come each time
		}
		extra = append(extra, leased-plain)
	}
	t.Errorf("a lease takes the shell longer than variables alone, each time by more than %s: %s", more, extra)
}
