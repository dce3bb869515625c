package leases

import (
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/queue"
	"gpuard/internal/core/status"
	"gpuard/internal/host/proc"
)

// TestKept: status says of the request that has a reservation which devices are kept for it, and until when by the wall clock; of the
// others, and of a reservation that has lapsed, nothing.
func TestKept(t *testing.T) {
	host := &machine.Host{Proc: proc.New("/proc")}
	up, err := host.Proc.Uptime()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	q := queue.Input{Now: now.UnixNano(), Tickets: []job.Ticket{
		{ID: "wide", UID: 1, Arrival: now.Add(-time.Hour).UnixNano(), Devices: []gpu.UUID{"GPU-0", "GPU-1"}, Count: 2},
		{ID: "small", UID: 2, Arrival: now.Add(-time.Minute).UnixNano(), Devices: []gpu.UUID{"GPU-0"}, Count: 1},
	}}
	for _, left := range []time.Duration{5 * time.Minute, -time.Minute} {
		begun := (up - 2*time.Minute).Nanoseconds()
		turn := queue.Turn{Reserved: map[string]queue.Reservation{q.Tickets[0].Key(): {
			Devices: q.Tickets[0].Devices, Since: begun, Seen: begun, Until: (up + left).Nanoseconds(), Price: 4,
		}}}
		waiting := make([]status.Waiting, 2)
		addReservations(host, waiting, q, turn)
		wide, small := waiting[0], waiting[1]
		if small.Kept != nil || small.KeptUntil != nil {
			t.Errorf("%v: %+v", left, small)
		}
		if left < 0 {
			if wide.Kept != nil || wide.KeptUntil != nil {
				t.Errorf("lapsed: %+v", wide)
			}
			continue
		}
		if len(wide.Kept) != 2 || wide.KeptUntil == nil || wide.KeptUntil.Sub(now.Add(left)).Abs() > time.Second {
			t.Errorf("%+v, want until %v", wide, now.Add(left))
		}
	}
}
