package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

// TestStuckDriver: a thread inside a driver call that hangs would keep this process from becoming the command for ever.
// So the command runs as a child, with the same exit status, and only the command has the lease.
func TestStuckDriver(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.Hang("nvmlDeviceGetMemoryInfo_v2", 1)
	for _, c := range []struct {
		command string
		code    int
		signal  syscall.Signal
	}{
		{"exit 0", 0, 0}, {"exit 7", 7, 0}, {"kill -TERM $$", -1, unix.SIGTERM}, {"kill -KILL $$", -1, unix.SIGKILL},
	} {
		cmd := r.hastyCommand("run", "--", "sh", "-c", "echo $GPUARD_GPUS $PPID; "+c.command)
		got := runCommand(t, cmd)
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if got.code != c.code || c.signal != 0 && status.Signal() != c.signal {
			t.Errorf("%q ended as %v\n%s", c.command, cmd.ProcessState, got.err)
		}
		checkEqual(t, c.command, got.out, fmt.Sprintf("%s %d\n", fakeUUID(0), cmd.Process.Pid))
		checkContains(t, got.err, "a driver call hangs, so the command runs as process")
	}
	t.Run("nobody verifies it, and that is said", func(t *testing.T) {
		got := runCommand(t, r.hastyCommand("run", "-q", "--verify", "--", "sh", "-c", "exit 7"))
		checkEqual(t, "exit", got.code, 7)
		checkContains(t, got.err, "gpuard: not measurable: a driver call hangs, so sh (process ", ") is not watched; ", "when the driver answers again: gpuard verify ")
	})
	t.Run("a signal is passed on", func(t *testing.T) {
		cmd := r.hastyCommand("run", "-q", "--", "sh", "-c", "trap 'exit 9' TERM; echo on; while :; do sleep 0.1; done")
		startToFirstLine(t, cmd)
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
		checkEqual(t, "exit", cmd.ProcessState.ExitCode(), 9)
	})
	t.Run("the lease outlives gpuard and ends with the command", func(t *testing.T) {
		cmd := r.hastyCommand("run", "-q", "--", "sh", "-c", "echo $$; exec sleep 60")
		pid := startToFirstLine(t, cmd)
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait() // not for its streams, which the command has too
		mustRefuse(t, r.hastyCommand("run", "--json", "--", "true"), 120)
		var command int
		if _, err := fmt.Sscan(pid, &command); err != nil {
			t.Fatal(err)
		}
		_ = unix.Kill(command, unix.SIGKILL)
		waitUntil(t, "the device is free again", func() bool { return runCommand(t, r.hastyCommand("run", "-q", "--", "true")).code == 0 })
	})
}

// TestOtherNamespace: the PID of a command in another PID namespace is another process's here. Its lease is not
// released, and the device counts as busy without waiting for an end.
func TestOtherNamespace(t *testing.T) {
	gate.Need(t, "pidns")
	r := newDemoMachine(t, "demo:1xL4")
	r.waitUntilFreed()
	inner := r.jobCommand("sh", "-c", "echo $GPUARD_LEASE; exec sleep 60")
	cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", `"$@"; exit $?`, "sh", "gpuard"}, inner.Args[1:]...)...)
	cmd.Env = inner.Env
	lease := startToFirstLine(t, cmd)
	release := gpuardCommand(t, r.state, nil, "release", "--machine", r.machine, lease)
	if got := runCommand(t, release); got.code != 1 || !strings.Contains(got.err, "another PID namespace") {
		t.Errorf("release ended with %d: %s%s", got.code, got.out, got.err)
	}
	began := time.Now()
	if got := runCommand(t, r.jobCommand("true")); got.code != 120 {
		t.Errorf("the device was given away: exit %d", got.code)
	}
	if spent := time.Since(began); spent > 5*time.Second {
		t.Errorf("the refusal took %s", spent)
	}
}

// TestReleaseUnreadable: unreadable content says nothing about the command, so the processes that hold the lock
// count.
func TestReleaseUnreadable(t *testing.T) {
	r := newDemoMachine(t, "demo:1xL4")
	r.waitUntilFreed()
	cmd := r.startJob("exec sleep 60")
	files, _ := filepath.Glob(filepath.Join(r.leaseFolder(), "leases", "*", "*.json"))
	if len(files) != 1 {
		t.Fatalf("the leases are %v", files)
	}
	if err := os.WriteFile(files[0], []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	lease, _, _ := strings.Cut(filepath.Base(files[0]), "-")
	release := func() runResult {
		return runCommand(t, gpuardCommand(t, r.state, nil, "release", "--machine", r.machine, lease))
	}
	if got := release(); got.code != 1 || !strings.Contains(got.err, "end that first: kill") {
		t.Errorf("release ended with %d: %s%s", got.code, got.out, got.err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	r.waitUntilFreed()
}

// TestUnattended: a lease whose process is gone, and whose holder is too, belongs to the processes that have it open. A
// process with the command's name may be the command, so release refuses: a supervising gpuard may have been killed
// before it recorded the command's PID.
func TestUnattended(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		child, says string
		code        int
	}{
		"the command": {"sh -c 'while :; do read x </dev/zero; done' &", "its command sh (process PID) is running; to end it: gpuard cancel ", 1},
		"a helper":    {`sleep 1000 & until tr '\0' ' ' </proc/$!/cmdline | grep -q ^sleep; do :; done;`, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDemoMachine(t, "demo:1xL4")
			r.waitUntilFreed()
			cmd := r.jobCommand("sh", "-c", c.child+" echo $GPUARD_LEASE $!; wait")
			var lease string
			var pid int
			if _, err := fmt.Sscan(startToFirstLine(t, cmd), &lease, &pid); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
			waitUntil(t, "the holder is there", func() bool { return len(holdersOf(r.leaseFolder())) == 1 })
			_ = unix.Kill(holdersOf(r.leaseFolder())[0], unix.SIGKILL)
			_ = cmd.Process.Kill()
			_, _ = cmd.Process.Wait()
			checkEqual(t, "exit of a run", runCommand(t, r.jobCommand("true")).code, 120)
			status := runCommand(t, gpuardCommand(t, r.state, nil, "status", "--machine", r.machine, "--json")).out
			checkContains(t, status, fmt.Sprintf("PID %d", pid), fmt.Sprintf(`"ended": %v`, c.code == 0))
			got := runCommand(t, gpuardCommand(t, r.state, nil, "release", "--machine", r.machine, lease))
			checkEqual(t, "exit of release", got.code, c.code)
			checkContains(t, got.err, strings.ReplaceAll(c.says, "PID", fmt.Sprint(pid)))
			_ = unix.Kill(pid, unix.SIGKILL)
			r.waitUntilFreed()
		})
	}
}

// TestDryRunAgrees: what --dry-run says is what run does, also where only the device of the last time decides.
func TestDryRunAgrees(t *testing.T) {
	r := newDemoMachine(t, "demo")
	on := func(args ...string) string {
		cmd := gpuardCommand(t, r.state, nil, append([]string{"run", "--machine", r.machine}, args...)...)
		got := runCommand(t, cmd)
		if got.code != 0 {
			t.Fatalf("%q ended with %d: %s", args, got.code, got.err)
		}
		r.waitUntilFreed()
		return got.out + got.err
	}
	on("-q", "--device", "1", "--", "true")
	if dry := on("--dry-run"); !strings.Contains(dry, "GPU 1 (NVIDIA A100-SXM4-80GB) would be cuda:0") {
		t.Errorf("the dry run says:\n%s", dry)
	}
	if live := on("--", "true"); !strings.Contains(live, "GPU 1 (NVIDIA A100-SXM4-80GB) is cuda:0") {
		t.Errorf("the run says:\n%s", live)
	}
}
