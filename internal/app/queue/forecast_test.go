package queue

import (
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
)

// TestForecastEndOfALease: a device is free when its lease ends, by what is known, else by what was asked for. Of a lease that should be
// over, or said nothing, no end is known, however long it has lasted.
func TestForecastEndOfALease(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	since, until := now.Add(-10*time.Minute), now.Add(3*time.Minute)
	for name, c := range map[string]struct {
		lease status.Lease
		want  time.Duration
	}{
		"a limit":                  {status.Lease{Since: &since, Until: &until, Asked: time.Hour}, 3 * time.Minute},
		"an estimate":              {status.Lease{Since: &since, Asked: time.Hour}, 50 * time.Minute},
		"an estimate that is over": {status.Lease{Since: &since, Asked: time.Minute}, 0},
		"nothing":                  {status.Lease{Since: &since}, 0},
	} {
		c.lease.User, c.lease.Command = "bob", "train.py"
		s := &status.Report{Now: now, Devices: []status.Device{{UUID: gpu.UUID("GPU-a"), Leases: []status.Lease{c.lease}}}}
		others := []status.Waiting{{Count: 1}}
		Forecast(nil, others, s, "")
		switch got := others[0]; {
		case c.want == 0 && (got.Expected != nil || got.Endless != "train.py of bob"):
			t.Errorf("%s: %v, %q", name, got.Expected, got.Endless)
		case c.want > 0 && (got.Expected == nil || got.Expected.Sub(now) != c.want || got.Endless != ""):
			t.Errorf("%s: %v, %q, want in %v", name, got.Expected, got.Endless, c.want)
		}
	}
	s := &status.Report{Now: now, Devices: []status.Device{{UUID: gpu.UUID("GPU-a")}}}
	others := []status.Waiting{{Count: 1}}
	if Forecast(nil, others, s, ""); others[0].Expected == nil || !others[0].Expected.Equal(now) {
		t.Errorf("a free device: %v", others[0].Expected)
	}
}
