package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/gate"
)

// TestSweepSpeed: a sweep of commands that do nothing is not much slower than GNU parallel, which leases nothing and
// remembers nothing. bench/sweep_test.go measures; this sees to it that nothing becomes slow unnoticed. Both take
// turns, and the best of each counts, so that a busy moment of the machine decides nothing.
func TestSweepSpeed(t *testing.T) {
	gate.Need(t, "parallel")
	if raceEnabled {
		t.Skip("the race detector makes one of them slower")
	}
	const runs, turns = 200, 3
	f := newSweepFixture(t, "demo:8xL4")
	var numbers strings.Builder
	for i := range runs {
		fmt.Fprintln(&numbers, i)
	}
	ours, theirs, home := time.Hour, time.Hour, t.TempDir()
	for turn := range turns {
		f.dir = filepath.Join(f.work, strconv.Itoa(turn))
		began := time.Now()
		if got := runCommand(t, f.sweepCommand("-q", "--over", fmt.Sprintf("n=1..%d", runs), "--", "true")); got.code != 0 {
			t.Fatalf("exit %d: %s", got.code, got.err)
		}
		ours = min(ours, time.Since(began))
		cmd := exec.CommandContext(t.Context(), "parallel", "-j8", "CUDA_VISIBLE_DEVICES=$(({%}-1)) true")
		cmd.Env = append(os.Environ(), "HOME="+home)
		cmd.Stdin = strings.NewReader(numbers.String())
		began = time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if theirs = min(theirs, time.Since(began)); ours < 2*theirs {
			break
		}
	}
	t.Logf("%d runs: %v, GNU parallel %v", runs, ours, theirs)
	if ours > 2*theirs {
		t.Errorf("%d runs took %v, more than twice the %v of GNU parallel", runs, ours, theirs)
	}
}
