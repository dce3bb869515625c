package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/status"
)

// TestKeptLease: for a lease whose command is gone, status and the waiting line name the processes that keep it, and
// how to end them.
func TestKeptLease(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	r.waitUntilFreed()
	var lease string
	var pid int
	// The name is that of the moment in which the command's end is noticed.
	cmd := r.jobCommand("sh", "-c", `sleep 1000 & until tr '\0' ' ' </proc/$!/cmdline | grep -q ^sleep; do :; done; echo $GPUARD_LEASE $!; read end`)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(startToFirstLine(t, cmd), &lease, &pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	locks, _ := filepath.Glob(filepath.Join(r.leaseFolder(), "leases", "*", lease+"*.lock"))
	if len(locks) != 1 {
		t.Fatalf("the locks are %v", locks)
	}
	reader, err := os.Open(locks[0]) // as a gpuard status of that moment has it open
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	_ = input.Close()
	_, _ = cmd.Process.Wait()
	show := func(args ...string) string {
		return strings.Join(strings.Fields(runCommand(t, gpuardCommand(t, r.state, nil, append([]string{"status", "--machine", r.machine}, args...)...)).out), " ")
	}
	keeper := fmt.Sprintf("pid %d sleep", pid)
	shown := ""
	kept := func() bool {
		shown = show()
		return strings.Contains(shown, "held by "+keeper+"; end it")
	}
	if !pollUntil(2*time.Minute, kept) {
		t.Fatalf("who keeps it is not known: %s", shown)
	}
	checkContains(t, show(), "sh (ended)", "the lease "+lease+" is still held by "+keeper+"; end it: gpuard release "+lease)
	if out := show(); strings.Contains(out, fmt.Sprint(cmd.Process.Pid)) {
		t.Errorf("the process that is gone is shown:\n%s", out)
	}
	var s status.Report
	if err := json.Unmarshal([]byte(show("--json")), &s); err != nil {
		t.Fatal(err)
	}
	held := s.Devices[0].Leases[0]
	checkEqual(t, "lease", []any{fmt.Sprint(held.HeldBy), held.Remedy}, []any{fmt.Sprintf("[{%d sleep false}]", pid), "end it: gpuard release " + lease})

	got := runCommand(t, gpuardCommand(t, r.state, nil, "run", "--machine", r.machine, "--wait", "1s", "--", "true"))
	checkContains(t, got.err, fmt.Sprintf("GPU 0: sh of %s has ended, still held by PID %d (sleep)", s.Devices[0].Leases[0].User, pid))
}

// TestUsedShare: the use of a share is shown with its size, only on its own device.
func TestUsedShare(t *testing.T) {
	r := newFakeDriverMachine(t, makeA100s(2)...)
	startToFirstLine(t, r.cmd("run", "-q", "--share", "8G", "--device", "1", "--", r.Job, "--gpu", "1", "--mem", "2G"))
	checkContains(t, runCommand(t, r.cmd("status")).out, "2 of 8 GiB (watch)")
}

// TestStatusBesideASlowHolder: what is over is not shown, also where the holder gets no time to say so for a while. One
// time of many is enough, because this machine may be as busy as that.
func TestStatusBesideASlowHolder(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	var seen []string
	for range 30 {
		cmd := r.startJob("exec sleep 60")
		waitUntil(t, "the holder is there", func() bool { return len(holdersOf(r.leaseFolder())) == 1 })
		holder := holdersOf(r.leaseFolder())[0]
		_ = unix.Kill(holder, unix.SIGSTOP)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		again := time.AfterFunc(300*time.Millisecond, func() { _ = unix.Kill(holder, unix.SIGCONT) })
		s, _ := runStatus(t, gpuardCommand(t, r.state, nil, "status", "--machine", r.machine, "--json"))
		again.Stop()
		_ = unix.Kill(holder, unix.SIGCONT)
		if seen = append(seen, string(s.Devices[0].Use)); s.Devices[0].Use == status.Free {
			return
		}
		r.waitUntilFreed()
	}
	t.Errorf("shown as %q", seen)
}
