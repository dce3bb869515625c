package main

import (
	"testing"
	"time"
)

// TestHungGPUDelaysNobody: while calls about one card block for a minute, the others are given in little more than a
// moment, and what only the hung one could serve is refused when the driver has had its time.
func TestHungGPUDelaysNobody(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(4)...)
	r.Delay("nvmlDeviceGetMemoryInfo_v2", 1, 60_000)
	for _, c := range []struct {
		args   []string
		code   int
		within time.Duration
	}{
		{[]string{"run", "--", "true"}, 0, 2500 * time.Millisecond},
		{[]string{"run", "--gpus", "3", "--", "true"}, 0, 2500 * time.Millisecond},
		{[]string{"run", "--dry-run", "--gpus", "3"}, 0, 2500 * time.Millisecond},
		{[]string{"run", "--no-wait", "--gpus", "4", "--", "true"}, 120, 8 * time.Second},
	} {
		if got := runWithin(t, c.within, r.cmd(c.args...)); got.code != c.code {
			t.Errorf("%q ended with %d:\n%s", c.args, got.code, got.err)
		}
	}
	got := r.run("run", "--", "true")
	checkContains(t, got.err, "GPU 1 was not waited for: no answer within ")
}
