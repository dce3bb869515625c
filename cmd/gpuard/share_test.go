package main

import (
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/status"
	"gpuard/test/fakegpu"
)

// TestShareUsesItsPromise: what the process tree of a share uses is paid for by its promise, and is not foreign; what
// it uses beyond its promise is missing to others, and so is what a stranger uses.
func TestShareUsesItsPromise(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0)) // 80 GiB, of which 4 stay aside
	startToFirstLine(t, r.cmd("run", "-q", "--share", "20G", "--", r.Job, "--gpu", "0", "--mem", "18G"))
	waitUntil(t, "the job is on the GPU", func() bool {
		s, _ := r.readStatus()
		return len(s.Devices[0].Processes) == 1
	})
	s, _ := r.readStatus()
	checkEqual(t, "use", s.Devices[0].Use, status.Shared)
	checkEqual(t, "beside it", r.givenDevices("--no-wait", "--share", "50G"), fakeUUID(0))
	waitUntil(t, "the holder of that one has let go too", func() bool {
		s, _ := r.readStatus()
		return len(s.Devices[0].Leases) == 1
	})
	stranger := r.startFakeJob(0, "30G", fakegpu.Compute)
	refusal := mustRefuse(t, r.cmd("run", "--no-wait", "--json", "--share", "50G", "--", "true"), 120)
	checkContains(t, refusal.Reasons[0].Text, "left for shares, less than 50 GiB: shared with ", "share of 20 GiB", fmt.Sprintf("used without a lease by PID %d", stranger), "30 GiB")
	checkContains(t, refusal.Remedy, "ask for a smaller share (--share 2", fmt.Sprintf("kill %d", stranger))
	checkEqual(t, "a smaller one", r.givenDevices("--no-wait", "--share", "20G"), fakeUUID(0))
}

// TestSharesAtOnce: many ask for a share at the same time, and no more are promised than the device holds.
func TestSharesAtOnce(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	var group sync.WaitGroup
	var lock sync.Mutex
	codes := map[int]int{}
	release := make(chan struct{})
	for range 12 {
		cmd := r.cmd("run", "-q", "--no-wait", "--share", "15G", "--", "cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		group.Add(1)
		go func() {
			<-release
			_ = in.Close()
		}()
		go func() {
			defer group.Done()
			_ = cmd.Wait()
			lock.Lock()
			defer lock.Unlock()
			codes[cmd.ProcessState.ExitCode()]++
		}()
	}
	refused := func() int {
		lock.Lock()
		defer lock.Unlock()
		return codes[120]
	}
	waitUntil(t, "whoever does not fit has been told", func() bool { return refused() >= 7 })
	s, _ := r.readStatus()
	checkEqual(t, "leases", len(s.Devices[0].Leases), 5)
	close(release)
	group.Wait()
	checkEqual(t, "exit codes", codes, map[int]int{0: 5, 120: 7})
}

// TestShareAboutToEnd: a share whose command is gone and whose holder is about to free it is no reason to refuse
// another.
func TestShareAboutToEnd(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xA100-80GB")
	share := func(size string, command ...string) *exec.Cmd {
		return gpuardCommand(t, r.state, nil, append([]string{"run", "-q", "--no-wait", "--share", size, "--machine", r.machine, "--"}, command...)...)
	}
	startToFirstLine(t, share("20G", "sh", "-c", "echo on; exec sleep 60")) // stays
	var stays, holders []int                                                // a holder comes after the command
	waitUntil(t, "the holder is there", func() bool { stays = holdersOf(r.leaseFolder()); return len(stays) == 1 })
	first := share("50G", "sh", "-c", "echo on; exec sleep 60")
	startToFirstLine(t, first)
	waitUntil(t, "the second one too", func() bool {
		holders = slices.DeleteFunc(holdersOf(r.leaseFolder()), func(pid int) bool { return slices.Contains(stays, pid) })
		return len(holders) == 1
	})
	_ = unix.Kill(holders[0], unix.SIGSTOP)
	_, _ = first.Process.Kill(), first.Wait()
	time.AfterFunc(300*time.Millisecond, func() { _ = unix.Kill(holders[0], unix.SIGCONT) })
	if got := runCommand(t, share("50G", "true")); got.code != 0 {
		t.Errorf("exit %d: %s", got.code, got.err)
	}
}
