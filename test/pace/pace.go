// Package pace is for tests that limit the time that something takes, of the processors or by the clock. A processor whose core, caches or
// host other programs use does less in the same time; such a limit grows as much as a known piece of work then takes
// longer.
//
//	p := pace.Start(t)
//	... // what is limited
//	if most := p.Scale(5 * time.Second); took > most { t.Errorf(…) }
package pace

import (
	"bytes"
	"encoding/json"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// usualWorkTime is what the known work takes of a processor that nothing else uses, on the machine on which the limits were set.
const usualWorkTime = workRounds * 30 * time.Millisecond

// maxSlowdown is how far a limit grows: a machine that is slower can show nothing about time.
const maxSlowdown = 20

// workRounds is how often it is done: a moment says little.
const workRounds = 3

// Pace is how fast the processors were at its beginning.
type Pace struct {
	t     testing.TB
	began workTime
}

// workTime is what the known work takes: of a processor, and by the clock, which also runs while others have the processors.
type workTime struct{ processor, clock time.Duration }

// Start does the known work once.
func Start(t testing.TB) *Pace { return &Pace{t, timeKnownWork(t)} }

// ScaleCPU returns a limit for the time of the processors that was spent since Start: never less than most.
func (p *Pace) ScaleCPU(most time.Duration) time.Duration {
	p.t.Helper()
	return p.scaleLimit(most, max(p.began.processor, timeKnownWork(p.t).processor))
}

// ScaleClock returns a limit for the time that has gone by since Start: never less than most.
func (p *Pace) ScaleClock(most time.Duration) time.Duration {
	p.t.Helper()
	return p.scaleLimit(most, max(p.began.clock, timeKnownWork(p.t).clock))
}

func (p *Pace) scaleLimit(most, took time.Duration) time.Duration {
	p.t.Helper()
	slower := min(took.Seconds()/usualWorkTime.Seconds(), maxSlowdown)
	if slower <= 1 {
		return most
	}
	p.t.Logf("the processors are %.2f times as slow as usual", slower)
	return time.Duration(slower * float64(most))
}

// timeKnownWork does the known work: what Go programs do, with more memory than the nearest caches have.
func timeKnownWork(t testing.TB) workTime {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, at := threadTime(t), time.Now()
	for range workRounds {
		doKnownWork(t)
	}
	return workTime{threadTime(t) - began, time.Since(at)}
}

func doKnownWork(t testing.TB) {
	t.Helper()
	numbers := make([]int, 200_000)
	x := uint32(1)
	for i := range numbers {
		x = x*1664525 + 1013904223
		numbers[i] = int(x >> 8)
	}
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(numbers[:50_000]); err != nil {
		t.Fatal(err)
	}
	var again []int
	if err := json.Unmarshal(text.Bytes(), &again); err != nil {
		t.Fatal(err)
	}
	slices.Sort(numbers)
	known := make(map[int]int, len(again))
	for i, n := range again {
		known[n] = i
	}
	runtime.KeepAlive(known)
}

// threadTime is what the calling thread has used of the processors.
func threadTime(t testing.TB) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
