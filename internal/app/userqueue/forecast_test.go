package userqueue

import (
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
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
		others := []status.Waiting{{Count: 1, Devices: []gpu.UUID{"GPU-a"}}}
		ForecastJobs(nil, others, s, "")
		switch got := others[0]; {
		case c.want == 0 && (got.Expected != nil || got.Endless != "train.py of bob"):
			t.Errorf("%s: %v, %q", name, got.Expected, got.Endless)
		case c.want > 0 && (got.Expected == nil || got.Expected.Sub(now) != c.want || got.Endless != ""):
			t.Errorf("%s: %v, %q, want in %v", name, got.Expected, got.Endless, c.want)
		}
	}
	s := &status.Report{Now: now, Devices: []status.Device{{UUID: gpu.UUID("GPU-a")}}}
	others := []status.Waiting{{Count: 1, Devices: []gpu.UUID{"GPU-a"}}}
	if ForecastJobs(nil, others, s, ""); others[0].Expected == nil || !others[0].Expected.Equal(now) {
		t.Errorf("a free device: %v", others[0].Expected)
	}
}

// TestForecastOfSomeDevices: a request waits for those devices that can serve it, however many others are free; so does a job that
// names its own.
func TestForecastOfSomeDevices(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	until := now.Add(2 * time.Hour)
	s := &status.Report{Now: now, Devices: []status.Device{
		{Index: 0, UUID: "GPU-a"},
		{Index: 1, UUID: "GPU-b", Leases: []status.Lease{{Until: &until, User: "bob", Command: "exam"}}},
		{Index: 2, UUID: "GPU-c", Leases: []status.Lease{{User: "eve", Command: "train.py"}}, MIG: []status.Device{{UUID: "MIG-c"}}},
	}}
	others := []status.Waiting{{Count: 1, Devices: []gpu.UUID{"GPU-b"}, Time: time.Hour}, {Count: 1, Devices: []gpu.UUID{"MIG-c"}}, {Count: 1, Devices: []gpu.UUID{"GPU-a", "GPU-b"}}}
	list := []Entry{{State: Waiting, Spec: job.Spec{Devices: []string{"1"}}}, {State: Waiting, Spec: job.Spec{Devices: []string{"GPU-b"}}}}
	ForecastJobs(list, others, s, "")
	for i, want := range []*time.Time{&until, nil, &now} {
		if got := others[i].Expected; (got == nil) != (want == nil) || got != nil && !got.Equal(*want) {
			t.Errorf("request %d: %v, want %v", i, got, want)
		}
	}
	if others[1].Endless != "train.py of eve" || list[0].Expected == nil || !list[0].Expected.Equal(until.Add(time.Hour)) {
		t.Errorf("%q, %v", others[1].Endless, list[0].Expected)
	}
}
