package batchlog

import (
	"testing"
	"time"
)

// TestPast: what the owner says counts more than the same command, and that more than jobs on as many devices.
func TestPast(t *testing.T) {
	const m = time.Minute
	var p Past
	check := func(what string, kind uint32, devices int, said, want time.Duration) {
		t.Helper()
		if got := p.EstimateOf(p.Class(kind, devices, said)); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("nothing is known", 7, 1, 0, 0)
	check("its owner says it", 7, 1, 5*m, 5*m)
	p.Add(7, 1, 10*m)
	check("it ran once", 7, 1, 0, 10*m)
	p.Add(7, 1, 20*m)
	p.Add(7, 1, 40*m)
	check("the mean of the last two", 7, 1, 0, 30*m)
	check("its owner knows better", 7, 1, 5*m, 5*m)
	check("another on one device: the mean", 8, 1, 0, 70*m/3)
	check("one without a device counts like one on one", 8, 0, 0, 70*m/3)
	p.Add(9, 4, 3*time.Hour)
	p.Add(0, 4, 5*time.Hour)
	check("another on four devices", 8, 4, 0, 4*time.Hour)
	check("none ran on two: the mean of all", 8, 2, 0, 110*m)
	for range 2 * maxSamples {
		p.Add(0, 4, m)
	}
	check("only the last ones count", 8, 4, 0, m)
	check("also of all", 8, 2, 0, m)
	check("one that was not named is no kind", 0, 1, 0, 70*m/3)
}
