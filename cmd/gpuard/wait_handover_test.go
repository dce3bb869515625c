package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The limits here are ratios to what the same machine takes at the same moment for the same without waiting. The
// figures themselves are for `make bench`.

// startFIFO is a FIFO into which commands write their PIDs when they start.
type startFIFO struct {
	t     testing.TB
	path  string
	lines *bufio.Reader
}

func newStartFIFO(t testing.TB) *startFIFO {
	t.Helper()
	path := filepath.Join(t.TempDir(), "started")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return &startFIFO{t, path, bufio.NewReader(file)}
}

// writePIDWords is a command that is heard, and stays.
func (e *startFIFO) writePIDWords() []string {
	return []string{"sh", "-c", "echo $$ >" + e.path + "; exec sleep 60"}
}

func (e *startFIFO) nextPID() int {
	e.t.Helper()
	line, err := e.lines.ReadString('\n')
	if err != nil {
		e.t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(line))
	return pid
}

// TestWaitHandover: a waiter's command begins about as soon after a kill -9 of the command that has the device as a
// command begins that gpuard starts on a free device.
func TestWaitHandover(t *testing.T) {
	r, free := newDemoMachine(t, "demo:1xL4"), newDemoMachine(t, "demo:1xL4")
	heard := newStartFIFO(t)
	start := func(cmd *exec.Cmd) *exec.Cmd {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		return cmd
	}
	var wake, begin time.Duration
	for try := 1; try <= 3; try++ {
		var wakes, begins []time.Duration
		has := start(r.jobCommand(heard.writePIDWords()...))
		heard.nextPID()
		for range 25 {
			waiter := start(r.waitingCommand(heard.writePIDWords()...))
			waitUntil(t, "it stands in the line", func() bool { return len(r.waitingTickets()) == 1 })
			time.Sleep(10 * time.Millisecond) // it falls asleep
			at := time.Now()
			_ = has.Process.Kill()
			heard.nextPID()
			wakes = append(wakes, time.Since(at))
			_ = has.Wait()
			has = waiter
			at = time.Now()
			alone := start(free.jobCommand(heard.writePIDWords()...))
			heard.nextPID()
			begins = append(begins, time.Since(at))
			_, _ = alone.Process.Kill(), alone.Wait()
			free.waitUntilFreed()
		}
		_, _ = has.Process.Kill(), has.Wait()
		r.waitUntilFreed()
		wake, begin = medianDuration(wakes), medianDuration(begins)
		t.Logf("a waiter's command began after p50 %s, one on a free device after %s", wake, begin)
		if wake <= begin*3/2+3*time.Millisecond || raceEnabled { // the race detector makes every step as slow as it likes
			return
		}
	}
	t.Errorf("a waiter's command began %s after the end of the one before, and one on a free device %s after its start", wake, begin)
}

func medianDuration(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// TestWaitCrowd: many starters on a few devices take hardly longer than their jobs, and each decides a few times only.
func TestWaitCrowd(t *testing.T) {
	const starters, devices, lasts = 48, 4, "0.1"
	crowd := func(atATime int, start func() *exec.Cmd) time.Duration {
		t.Helper()
		began, room := time.Now(), make(chan struct{}, atATime)
		var wg sync.WaitGroup
		for range starters {
			wg.Go(func() {
				room <- struct{}{}
				defer func() { <-room }()
				if out, err := start().CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
		wg.Wait()
		return time.Since(began)
	}
	r, wide := newDemoMachine(t, "demo"), newDemoMachine(t, "demo:48xL4")
	var most time.Duration
	for try := 1; try <= 3; try++ {
		trace := filepath.Join(t.TempDir(), "trace"+strconv.Itoa(try))
		ideal := crowd(devices, func() *exec.Cmd { return exec.Command("env", "X=1", "sleep", lasts) })
		starting := crowd(starters, func() *exec.Cmd { return wide.jobCommand("true") })
		wide.waitUntilFreed()
		spent := crowd(starters, func() *exec.Cmd { return withEnv(r.waitingCommand("sleep", lasts), "GPUARD_TRACE="+trace) })
		r.waitUntilFreed()
		all := 0
		for _, n := range countDecisions(trace) {
			all += n
		}
		t.Logf("%d jobs of %s s on %d devices took %s; the jobs alone %s, to start them all at once %s; %d decisions",
			starters, lasts, devices, spent, ideal, starting, all)
		if all > 8*starters {
			t.Errorf("%d starters made %d decisions", starters, all)
		}
		most = ideal + 3*starting + time.Duration(starters/devices)*60*time.Millisecond
		if spent <= most || raceEnabled {
			return
		}
	}
	t.Errorf("the crowd takes longer than %s", most)
}
