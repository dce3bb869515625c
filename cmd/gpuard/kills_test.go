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

// claims is how many claims TestClaims wins.
func claims() int64 { return int64(soaked(10_000, 100)) }

// step is how far a run had come when it was killed.
type step int

const (
	early    step = iota // it had not opened the state folder
	claiming             // it had, and had no lease
	leased               // its lease was in the folder
	over                 // it had ended by itself
)

// attack counts what the sides of TestClaims did.
type attack struct {
	*rig
	spread                time.Duration // kills come so long after the start, at most
	won, refused, holders atomic.Int64
	met                   [over + 1]atomic.Int64
	cut                   atomic.Int64 // kills in the middle of writing a lease
}

func (a *attack) kills() int64 {
	return a.met[early].Load() + a.met[claiming].Load() + a.met[leased].Load()
}

// missed reports whether a step of a run was not yet met by as many kills as it must be. How many of them meet it is a matter of the
// machine: an attacker that gets little of the processor finds a run further than it was.
func (a *attack) missed() bool {
	return min(a.met[claiming].Load(), a.met[leased].Load()) < claims()/20
}

// claimed counts claims that were won, also by runs that were killed later.
func (a *attack) claimed() int64 { return a.won.Load() + a.met[leased].Load() }

// TestClaims: claims from more sides than there are devices, while claimers, commands and holders are killed at random
// moments. A claimer and its command are one process, so kills meet the steps of both.
func TestClaims(t *testing.T) {
	const devices, sides = 8, 16
	a := &attack{rig: newRig(t, fmt.Sprintf("demo:%dxA100-80GB", devices))}
	a.spread = 2 * a.untilLease(sides)
	stop := make(chan struct{})
	var reaper sync.WaitGroup
	reaper.Go(func() { a.holders.Store(killHolders(stop, a.folder())) })
	var wg sync.WaitGroup
	for range sides {
		wg.Go(func() {
			for i := rand.IntN(6); (a.claimed() < claims() || a.missed() && a.claimed() < 20*claims()) && !t.Failed(); i++ {
				a.one(i % 6)
			}
		})
	}
	wg.Wait()
	close(stop)
	reaper.Wait()
	a.check()
	a.verdict()
	a.all(devices)
	if rest, _ := filepath.Glob(filepath.Join(a.folder(), "leases", "*", ".new-*")); len(rest) != 0 {
		t.Errorf("interrupted writes are left: %v", rest)
	}
}

// verdict holds the attack to what it promises: claims that were won, contention, and kills that met every step.
func (a *attack) verdict() {
	a.t.Logf("%d claims: %d ended by themselves, %d were killed; %d refused; kills within %s: %d early, %d while claiming (%d while writing), %d with a lease; %d holders killed",
		a.claimed(), a.won.Load(), a.met[leased].Load(), a.refused.Load(), a.spread,
		a.met[early].Load(), a.met[claiming].Load(), a.cut.Load(), a.met[leased].Load(), a.holders.Load())
	if a.won.Load() == 0 || a.refused.Load() == 0 || a.holders.Load() == 0 {
		a.t.Error("this test has attacked nothing")
	}
	if a.missed() {
		a.t.Errorf("%d kills have missed a step: each should be met by %d", a.kills(), claims()/20)
	}
}

// untilLease is how long a run needs from its start to its lease while as many as in the test start together.
func (a *attack) untilLease(sides int) time.Duration {
	a.t.Helper()
	var mu sync.Mutex
	var spent []time.Duration
	for range 2 {
		var wg sync.WaitGroup
		for range sides {
			wg.Go(func() {
				cmd := a.job("sleep", "0.05")
				started := time.Now()
				if err := cmd.Start(); err != nil {
					a.t.Error(err)
					return
				}
				a.await(cmd, leased)
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

// one makes a run. Of six, one is killed after a random time, one in the middle of its claim, one soon after it, and
// the others are left alone.
func (a *attack) one(kind int) {
	cmd := with(a.job("occupy"), "LINGER="+(a.spread/2+60*time.Millisecond).String()) // so long that others find no device
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		a.t.Error(err)
		return
	}
	switch kind {
	case 0:
		time.Sleep(rand.N(a.spread))
		a.kill(cmd)
	case 1:
		a.await(cmd, claiming)
		if rand.IntN(2) > 0 { // without a pause it is in the middle of the claim, however fast the others are
			time.Sleep(rand.N(a.spread / 4))
		}
		a.kill(cmd)
	case 2:
		a.await(cmd, leased)
		time.Sleep(rand.N(a.spread / 4))
		a.kill(cmd)
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

// await returns when a run has come so far, or is over.
func (a *attack) await(cmd *exec.Cmd, far step) {
	for a.where(cmd.Process.Pid) < far {
		time.Sleep(100 * time.Microsecond)
	}
}

// kill notes how far the run has come and kills it there. It is stopped in between: a process that is dead already has
// no lease for long, because others remove it.
func (a *attack) kill(cmd *exec.Cmd) {
	pid := cmd.Process.Pid
	_ = unix.Kill(pid, unix.SIGSTOP)
	for !strings.ContainsAny(state(pid), "TtZX") {
		time.Sleep(20 * time.Microsecond)
	}
	met := a.where(pid)
	a.met[met].Add(1)
	if met == claiming && a.entryOf(pid, ".new-*.json") != "" {
		a.cut.Add(1)
	}
	_ = unix.Kill(pid, unix.SIGKILL)
}

// state is the letter of proc_pid_stat(5), "X" when there is no such process.
func state(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, found := bytes.Cut(text, []byte(") "))
	if !found || len(rest) == 0 {
		return "X"
	}
	return string(rest[:1])
}

// where says how far a run has come, by its entry and by what it has open.
func (a *attack) where(pid int) step {
	if entry := a.entryOf(pid, "[^.]*.json"); entry != "" {
		if _, err := os.Lstat(strings.TrimSuffix(entry, "json") + "lock"); err == nil { // the locked file comes last: it is the lease
			return leased
		}
	}
	if strings.ContainsAny(state(pid), "ZX") {
		return over
	}
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range open {
		if target, _ := os.Readlink(fd); target == filepath.Join(a.folder(), "lock") {
			return claiming
		}
	}
	return early
}

// entryOf finds the content that this process has written, under such a name.
func (a *attack) entryOf(pid int, names string) string {
	found, _ := filepath.Glob(filepath.Join(a.folder(), "leases", "*", names))
	for _, path := range found {
		var l job.Lease
		text, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(text, &l) == nil && l.PID == pid {
			return path
		}
	}
	return ""
}
