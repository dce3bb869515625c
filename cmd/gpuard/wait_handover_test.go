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

// ear is a FIFO into which commands write their PIDs when they start.
type ear struct {
	t     testing.TB
	path  string
	lines *bufio.Reader
}

func newEar(t testing.TB) *ear {
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
	return &ear{t, path, bufio.NewReader(file)}
}

// says is a command that is heard, and stays.
func (e *ear) says() []string { return []string{"sh", "-c", "echo $$ >" + e.path + "; exec sleep 60"} }

func (e *ear) next() int {
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
	r, free := newRig(t, "demo:1xL4"), newRig(t, "demo:1xL4")
	heard := newEar(t)
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
		has := start(r.job(heard.says()...))
		heard.next()
		for range 25 {
			waiter := start(r.waiter(heard.says()...))
			eventually(t, "it stands in the line", func() bool { return len(r.tickets()) == 1 })
			time.Sleep(10 * time.Millisecond) // it falls asleep
			at := time.Now()
			_ = has.Process.Kill()
			heard.next()
			wakes = append(wakes, time.Since(at))
			_ = has.Wait()
			has = waiter
			at = time.Now()
			alone := start(free.job(heard.says()...))
			heard.next()
			begins = append(begins, time.Since(at))
			_, _ = alone.Process.Kill(), alone.Wait()
			free.freed()
		}
		_, _ = has.Process.Kill(), has.Wait()
		r.freed()
		wake, begin = median(wakes), median(begins)
		t.Logf("a waiter's command began after p50 %s, one on a free device after %s", wake, begin)
		if wake <= begin*3/2+3*time.Millisecond || raced { // the race detector makes every step as slow as it likes
			return
		}
	}
	t.Errorf("a waiter's command began %s after the end of the one before, and one on a free device %s after its start", wake, begin)
}

func median(all []time.Duration) time.Duration { return slices.Sorted(slices.Values(all))[len(all)/2] }

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
	r, wide := newRig(t, "demo"), newRig(t, "demo:48xL4")
	var most time.Duration
	for try := 1; try <= 3; try++ {
		trace := filepath.Join(t.TempDir(), "trace"+strconv.Itoa(try))
		ideal := crowd(devices, func() *exec.Cmd { return exec.Command("env", "X=1", "sleep", lasts) })
		starting := crowd(starters, func() *exec.Cmd { return wide.job("true") })
		wide.freed()
		spent := crowd(starters, func() *exec.Cmd { return with(r.waiter("sleep", lasts), "GPUARD_TRACE="+trace) })
		r.freed()
		all := 0
		for _, n := range decisions(trace) {
			all += n
		}
		t.Logf("%d jobs of %s s on %d devices took %s; the jobs alone %s, to start them all at once %s; %d decisions",
			starters, lasts, devices, spent, ideal, starting, all)
		if all > 8*starters {
			t.Errorf("%d starters made %d decisions", starters, all)
		}
		most = ideal + 3*starting + time.Duration(starters/devices)*60*time.Millisecond
		if spent <= most || raced {
			return
		}
	}
	t.Errorf("the crowd takes longer than %s", most)
}
