package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

// stopProcess stops a process, and returns when it is. It is continued at the end of the test.
func stopProcess(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGCONT) })
	waitUntil(t, "the process is stopped", func() bool { return processState(pid) == "T" })
}

// makeStuckLease is a lease whose command was killed while its holder was stopped.
func makeStuckLease(t *testing.T, r *demoMachine, uid uint32) (id string, holder int) {
	t.Helper()
	cmd := r.jobCommand("sh", "-c", `echo "$GPUARD_LEASE"; exec sleep 60`)
	if uid != uint32(os.Geteuid()) {
		asUser(uid, cmd)
	}
	id = startToFirstLine(t, cmd)
	waitUntil(t, "its holder is there", func() bool { return len(holdersOf(r.leaseFolder())) == 1 })
	holder = holdersOf(r.leaseFolder())[0]
	stopProcess(t, holder)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return id, holder
}

// TestStoppedHolder: if a lease stays because its holder is stopped, all explanations name the holder and what to type,
// not only the dead command. The continued holder frees the lease.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	id, holder := makeStuckLease(t, r, uint32(os.Geteuid()))
	named, remedy := fmt.Sprintf("PID %d (", holder), fmt.Sprintf("kill -CONT %d", holder)
	refused := runCommand(t, r.jobCommand("true"))
	if refused.code != 120 {
		t.Errorf("exit %d, %s", refused.code, refused.err)
	}
	checkContains(t, joinLines(refused.err), "whose command has ended but which is still held by "+named, "stopped", remedy, "gpuard release "+id)
	status := gpuardCommand(t, r.state, nil, "status", "--machine", r.machine)
	checkContains(t, joinLines(runCommand(t, status).out), fmt.Sprintf("still held by pid %d gpuard (stopped); continue that: %s", holder, remedy))
	var answer struct {
		Devices []struct {
			Leases []struct {
				Ended  bool
				HeldBy []struct {
					PID     int
					Stopped bool
				} `json:"held_by"`
			}
		}
	}
	out := runCommand(t, gpuardCommand(t, r.state, nil, "status", "--json", "--machine", r.machine)).out
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err)
	}
	lease := answer.Devices[0].Leases[0]
	if !lease.Ended || len(lease.HeldBy) != 1 || lease.HeldBy[0].PID != holder || !lease.HeldBy[0].Stopped {
		t.Errorf("%+v", lease)
	}
	waiter := r.waitingCommand("true")
	waiter.Args = slices.DeleteFunc(waiter.Args, func(word string) bool { return word == "-q" })
	log := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	waiter.Stderr = file
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = waiter.Process.Kill() }()
	waitUntil(t, "the waiter says for whom it waits", func() bool {
		text, _ := os.ReadFile(log)
		return strings.Contains(string(text), "still held by "+named+"gpuard, stopped: "+remedy)
	})
	_ = unix.Kill(holder, unix.SIGCONT)
	if err := waiter.Wait(); err != nil {
		t.Errorf("the waiter: %v", err)
	}
	waitUntil(t, "the lease is gone", func() bool { return r.countLeases() == 0 })
}

// TestStoppedHolderReleased: such a lease can be given back, and that the holder is still there is said.
func TestStoppedHolderReleased(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	id, holder := makeStuckLease(t, r, uint32(os.Geteuid()))
	got := runCommand(t, r.releaseCommand(id))
	want := fmt.Sprintf("released %s; process %d, which held it, is stopped: kill -CONT %d continues it\n", id, holder, holder)
	if got.code != 0 || got.out != want {
		t.Errorf("exit %d, %q%q, want %q", got.code, got.out, got.err, want)
	}
	if got := runCommand(t, r.jobCommand("true")); got.code != 0 {
		t.Errorf("the device was not given: exit %d, %s", got.code, got.err)
	}
}

// TestStoppedHolderOfAnother: other users are told too, though they cannot see what the holder has open.
func TestStoppedHolderOfAnother(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	r := newSharedDemoMachine(t, "demo:1xL4")
	id, holder := makeStuckLease(t, r, aliceUID)
	got := runCommand(t, asUser(bobUID, r.jobCommand("true")))
	if got.code != 120 {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
	checkContains(t, joinLines(got.err), fmt.Sprintf("still held by PID %d (gpuard, stopped)", holder),
		fmt.Sprintf("to continue process %d (kill -CONT %d), or end lease %s (gpuard release %s)", holder, holder, id, id))
}

// TestStoppedWithTheLock: a process that was stopped while it had the folder lock does not end by kill PID, so that is
// not the advice.
func TestStoppedWithTheLock(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	keeper := gpuardCommand(t, r.state, nil, filepath.Join(r.leaseFolder(), "lock"))
	keeper.Args[0] = "keeplock"
	in, err := keeper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if said := startToFirstLine(t, keeper); said != "locked <nil>" {
		t.Fatal(said)
	}
	stopProcess(t, keeper.Process.Pid)
	cmd := r.jobCommand("true")
	cmd.Args[0] = "hasty"
	got := runAndKill(t, cmd, time.Minute)
	if got.code != 125 {
		t.Errorf("exit %d, %s", got.code, got.err)
	}
	checkContains(t, got.err, fmt.Sprintf("which is stopped; continue it (kill -CONT %d)", keeper.Process.Pid))
	_ = keeper.Process.Signal(syscall.SIGCONT)
}

// joinLines undoes how lines are broken.
func joinLines(text string) string { return strings.Join(strings.Fields(text), " ") }
