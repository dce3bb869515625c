package trend

import (
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/status"
)

// TestMarks: a trouble is marked when it begins, once while it lasts, and again by an error of another time; what was there
// before anybody looked is not marked, and an earlier process's marks count.
func TestMarks(t *testing.T) {
	hot := func(minute int, xids ...int) *status.Report {
		d := device("GPU-1", 0.5)
		d.Throttled = []string{"hw_thermal_slowdown", "sw_power_cap"}
		for _, m := range xids {
			d.XIDs = append(d.XIDs, status.XID{Code: 79, Meaning: "it fell off the bus", At: new(noon.Add(time.Duration(m) * time.Minute))})
		}
		return at(60*minute, d)
	}
	calm := func(minute int) *status.Report { return at(60*minute, device("GPU-1", 0.5)) }
	d := NewDay(time.Minute)
	for _, r := range []*status.Report{hot(0), calm(1), hot(2), calm(20), hot(21), hot(22, 22), hot(23, 22, 23), calm(24)} {
		d.Add(r)
	}
	var got []string
	for _, m := range d.Minutes() {
		for _, mark := range m.Devices["GPU-1"].Marks {
			got = append(got, m.At.Format("04 ")+mark.What+mark.At.Format(" 04"))
		}
	}
	want := []string{"21 throttle 21", "22 xid 22", "23 xid 23"}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("%q, want %q", got, want)
	}
	next := NewDay(time.Minute)
	next.Restore(d.Minutes())
	next.Add(hot(30, 22, 23, 25))
	next.Add(calm(31))
	minutes := next.Minutes()
	last := minutes[len(minutes)-1].Devices["GPU-1"].Marks
	if len(last) != 1 || last[0].At.Minute() != 25 {
		t.Errorf("after a restart: %+v", last)
	}
}

// TestStates: a device that is drained, lost or used without a lease is told from a free one, also where it has no reading.
func TestStates(t *testing.T) {
	d := NewDay(time.Minute)
	lost := status.Device{UUID: "GPU-1", Health: health.Unhealthy, Use: status.Leased}
	busy := status.Device{UUID: "GPU-2", Health: health.OK, Use: status.Busy}
	free := status.Device{UUID: "GPU-3", Health: health.OK, Use: status.Free, Utilization: new(0.0)}
	d.Add(at(0, lost, busy, free))
	minute := d.Add(at(60, free))
	for id, want := range map[gpu.UUID]string{"GPU-1": "unhealthy", "GPU-2": "busy", "GPU-3": ""} {
		if got := minute.Devices[id].State; got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	if len(minute.Devices) != 3 {
		t.Errorf("%+v", minute.Devices)
	}
}
