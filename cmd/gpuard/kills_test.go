package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
)

// claimsToWin is how many claims TestClaims wins.
func claimsToWin() int64 { return int64(soakCount(10_000, 100)) }

// claimStep is how far a run had come when it was killed.
type claimStep int

const (
	stepBeforeOpen claimStep = iota // it had not opened the state folder
	stepClaiming                    // it had, and had no lease
	stepLeased                      // its lease was in the folder
	stepEnded                       // it had ended by itself
)

// claimAttack counts what the sides of TestClaims did.
type claimAttack struct {
	*demoMachine
	spread                time.Duration // kills come so long after the start, at most
	won, refused, holders atomic.Int64
	met                   [stepEnded + 1]atomic.Int64
	cut                   atomic.Int64 // kills in the middle of writing a lease
}

func (a *claimAttack) countKills() int64 {
	return a.met[stepBeforeOpen].Load() + a.met[stepClaiming].Load() + a.met[stepLeased].Load()
}

// hasMissedStep reports whether a step of a run was not yet met by as many kills as it must be. How many of them meet it is a matter of the
// machine: an attacker that gets little of the processor finds a run further than it was.
func (a *claimAttack) hasMissedStep() bool {
	return min(a.met[stepClaiming].Load(), a.met[stepLeased].Load()) < claimsToWin()/20
}

// countClaims counts claims that were won, also by runs that were killed later.
func (a *claimAttack) countClaims() int64 { return a.won.Load() + a.met[stepLeased].Load() }

// TestClaims: claims from more sides than there are devices, while claimers, commands and holders are killed at random
// moments. A claimer and its command are one process, so kills meet the steps of both.
func TestClaims(t *testing.T) {
	const devices, sides = 8, 16
	a := &claimAttack{demoMachine: newDemoMachine(t, fmt.Sprintf("demo:%dxA100-80GB", devices))}
	a.spread = 2 * a.timeToLease(sides)
	stop := make(chan struct{})
	var reaper sync.WaitGroup
	reaper.Go(func() { a.holders.Store(killHolders(stop, a.leaseFolder())) })
	var wg sync.WaitGroup
	for range sides {
		wg.Go(func() {
			for i := rand.IntN(6); (a.countClaims() < claimsToWin() || a.hasMissedStep() && a.countClaims() < 20*claimsToWin()) && !t.Failed(); i++ {
				a.makeRun(i % 6)
			}
		})
	}
	wg.Wait()
	close(stop)
	reaper.Wait()
	a.checkViolations()
	a.checkAttack()
	a.claimAll(devices)
	if rest, _ := filepath.Glob(filepath.Join(a.leaseFolder(), "leases", "*", ".new-*")); len(rest) != 0 {
		t.Errorf("interrupted writes are left: %v", rest)
	}
}

// checkAttack holds the attack to what it promises: claims that were won, contention, and kills that met every step.
func (a *claimAttack) checkAttack() {
	a.t.Logf("%d claims: %d ended by themselves, %d were killed; %d refused; kills within %s: %d early, %d while claiming (%d while writing), %d with a lease; %d holders killed",
		a.countClaims(), a.won.Load(), a.met[stepLeased].Load(), a.refused.Load(), a.spread,
		a.met[stepBeforeOpen].Load(), a.met[stepClaiming].Load(), a.cut.Load(), a.met[stepLeased].Load(), a.holders.Load())
	if a.won.Load() == 0 || a.refused.Load() == 0 || a.holders.Load() == 0 {
		a.t.Error("this test has attacked nothing")
	}
	if a.hasMissedStep() {
		a.t.Errorf("%d kills have missed a step: each should be met by %d", a.countKills(), claimsToWin()/20)
	}
}

// timeToLease is how long a run needs from its start to its lease while as many as in the test start together.
func (a *claimAttack) timeToLease(sides int) time.Duration {
	a.t.Helper()
	var mu sync.Mutex
	var spent []time.Duration
	for range 2 {
		var wg sync.WaitGroup
		for range sides {
			wg.Go(func() {
				cmd := a.jobCommand("sleep", "0.05")
				started := time.Now()
				if err := cmd.Start(); err != nil {
					a.t.Error(err)
					return
				}
				a.waitForStep(cmd, stepLeased)
				took := time.Since(started)
				_ = cmd.Wait()
				if cmd.ProcessState.Success() {
					mu.Lock()
					defer mu.Unlock()
					spent = append(spent, took)
				}
			})
		}
		wg.Wait()
	}
	if len(spent) == 0 {
		a.t.Fatal("not one of the first runs got a lease")
	}
	slices.Sort(spent)
	return spent[len(spent)/2]
}

// makeRun makes a run. Of six, one is killed after a random time, one in the middle of its claim, one soon after it, and
// the others are left alone.
func (a *claimAttack) makeRun(kind int) {
	cmd := withEnv(a.jobCommand("occupy"), "LINGER="+(a.spread/2+60*time.Millisecond).String()) // so long that others find no device
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		a.t.Error(err)
		return
	}
	switch kind {
	case 0:
		time.Sleep(rand.N(a.spread))
		a.killAtStep(cmd)
	case 1:
		a.waitForStep(cmd, stepClaiming)
		if rand.IntN(2) > 0 { // without a pause it is in the middle of the claim, however fast the others are
			time.Sleep(rand.N(a.spread / 4))
		}
		a.killAtStep(cmd)
	case 2:
		a.waitForStep(cmd, stepLeased)
		time.Sleep(rand.N(a.spread / 4))
		a.killAtStep(cmd)
	}
	_ = cmd.Wait()
	switch code := cmd.ProcessState.ExitCode(); {
	case code == 0:
		a.won.Add(1)
	case code == 120:
		a.refused.Add(1)
	case code != -1 || kind > 2:
		a.t.Errorf("a run ended with %v: %s", cmd.ProcessState, errs.String())
	}
}

// waitForStep returns when a run has come so far, or is over.
func (a *claimAttack) waitForStep(cmd *exec.Cmd, far claimStep) {
	for a.stepOf(cmd.Process.Pid) < far {
		time.Sleep(100 * time.Microsecond)
	}
}

// killAtStep notes how far the run has come and kills it there. It is stopped in between: a process that is dead already has
// no lease for long, because others remove it.
func (a *claimAttack) killAtStep(cmd *exec.Cmd) {
	pid := cmd.Process.Pid
	_ = unix.Kill(pid, unix.SIGSTOP)
	for !strings.ContainsAny(processState(pid), "TtZX") {
		time.Sleep(20 * time.Microsecond)
	}
	met := a.stepOf(pid)
	a.met[met].Add(1)
	if met == stepClaiming && a.leaseFileOf(pid, ".new-*.json") != "" {
		a.cut.Add(1)
	}
	_ = unix.Kill(pid, unix.SIGKILL)
}

// processState is the letter of proc_pid_stat(5), "X" when there is no such process.
func processState(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, found := bytes.Cut(text, []byte(") "))
	if !found || len(rest) == 0 {
		return "X"
	}
	return string(rest[:1])
}

// stepOf says how far a run has come, by its entry and by what it has open.
func (a *claimAttack) stepOf(pid int) claimStep {
	if entry := a.leaseFileOf(pid, "[^.]*.json"); entry != "" {
		if _, err := os.Lstat(strings.TrimSuffix(entry, "json") + "lock"); err == nil { // the locked file comes last: it is the lease
			return stepLeased
		}
	}
	if strings.ContainsAny(processState(pid), "ZX") {
		return stepEnded
	}
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range open {
		if target, _ := os.Readlink(fd); target == filepath.Join(a.leaseFolder(), "lock") {
			return stepClaiming
		}
	}
	return stepBeforeOpen
}

// leaseFileOf finds the content that this process has written, under such a name.
func (a *claimAttack) leaseFileOf(pid int, names string) string {
	found, _ := filepath.Glob(filepath.Join(a.leaseFolder(), "leases", "*", names))
	for _, path := range found {
		var l job.Lease
		text, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(text, &l) == nil && l.PID == pid {
			return path
		}
	}
	return ""
}
