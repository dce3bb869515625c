package health

import (
	"testing"
	"time"

	"gpuard/internal/core/gpu"
)

// TestBlame: failures that are the machine's fault, and failures that are not.
func TestBlame(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := began.Add(time.Hour)
	machine := func(change func(*gpu.Device)) gpu.Machine {
		d := gpu.Device{Index: 2, UUID: "GPU-2", MIG: []gpu.MIGDevice{{UUID: "MIG-2"}}}
		if change != nil {
			change(&d)
		}
		return gpu.Machine{Devices: []gpu.Device{{Index: 0, UUID: "GPU-0"}, d}}
	}
	xid := func(code int, at time.Time) func(*gpu.Device) {
		return func(d *gpu.Device) { d.XIDs = []gpu.XID{{Code: code, At: at}} }
	}
	lost := func(d *gpu.Device) { d.Problem = "GPU is lost" }
	row := func(d *gpu.Device) { d.RemappedRows = &gpu.RemappedRows{Failed: true} }
	for _, c := range []struct {
		name          string
		before, after func(*gpu.Device)
		want          string
	}{
		{"nothing", nil, nil, ""},
		{"lost", nil, lost, "GPU 2: GPU is lost"},
		{"lost before", lost, lost, ""},
		{"silent", nil, func(d *gpu.Device) { d.Problem = "no answer within 5s" }, "GPU 2: no answer within 5s"},
		{"off the bus", nil, xid(79, now), "GPU 2: XID 79: "},
		{"the program's own error", nil, xid(31, now), ""},
		{"an error of the day before", nil, xid(79, began.Add(-24*time.Hour)), "GPU 2: XID 79"}, // unhealthy now, and not before
		{"known before", xid(79, began), xid(79, began), ""},
		{"contained memory error", nil, xid(94, now), "GPU 2: XID 94: "},
		{"contained memory error of the day before", nil, xid(94, began.Add(-24*time.Hour)), ""},
		{"broken row", nil, row, "GPU 2: remapping"},
		{"row that was broken before", row, row, ""},
		{"hot", nil, func(d *gpu.Device) { d.ClockEvents = []string{"hw_thermal_slowdown"} }, ""},
		{"gone", nil, func(d *gpu.Device) { d.UUID, d.MIG = "GPU-9", nil }, "GPU 2: it is gone"},
	} {
		for _, id := range []gpu.UUID{"GPU-2", "MIG-2"} {
			got, which := BlameDevices(machine(c.before), machine(c.after), []gpu.UUID{"GPU-0", id}, began, now)
			if len(got) < len(c.want) || got[:len(c.want)] != c.want || (c.want == "") != (got == "") {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
			if (len(which) == 1 && which[0] == id) != (c.want != "") {
				t.Errorf("%s: blames %v", c.name, which)
			}
		}
	}
}
