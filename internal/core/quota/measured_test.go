package quota

import (
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// TestMeasured: who has whole devices has all that is used of each; of a share or a slice only what its own processes use counts,
// and no load. What the driver does not say counts as nothing, and a device that is gone changes nothing.
func TestMeasured(t *testing.T) {
	const gib = gpu.GiB
	device := func(id gpu.UUID, used *gpu.Bytes, load *float64) gpu.Device {
		return gpu.Device{UUID: id, MemoryUsed: used, Utilization: load}
	}
	at := time.Unix(1_800_000_000, 0)
	sliced := device("sliced", new(9*gib), new(0.9))
	sliced.MIG = []gpu.MIGDevice{{UUID: "slice", MemoryUsed: new(4 * gib)}}
	readings := []gpu.Machine{
		{Taken: at, Devices: []gpu.Device{device("a", new(3*gib), new(0.5)), device("b", new(7*gib), nil), device("silent", nil, nil), sliced}},
		{Taken: at.Add(time.Second), Devices: []gpu.Device{device("a", new(5*gib), new(1.0)), device("silent", nil, nil)}},
	}
	own := func(gpu.UUID) gpu.Bytes { return 2 * gib }
	for name, c := range map[string]struct {
		lease job.Lease
		peak  gpu.Bytes
		mean  *float64
	}{
		"one device":             {job.Lease{Devices: []gpu.UUID{"a"}}, 5 * gib, new(0.75)},
		"two, of one no load":    {job.Lease{Devices: []gpu.UUID{"a", "b"}}, 7 * gib, new(0.75)},
		"a share":                {job.Lease{Devices: []gpu.UUID{"a"}, Share: 8 * gib}, 2 * gib, nil},
		"a slice":                {job.Lease{Devices: []gpu.UUID{"slice"}}, 2 * gib, nil},
		"what says nothing":      {job.Lease{Devices: []gpu.UUID{"silent"}}, 2 * gib, nil},
		"what is not there":      {job.Lease{Devices: []gpu.UUID{"gone"}}, 0, nil},
		"no device, as on a CPU": {job.Lease{}, 0, nil},
	} {
		var u Measured
		for _, m := range readings {
			u.Add(m, &c.lease, own)
		}
		mean := u.MeanLoad()
		if u.Peak != c.peak || (mean == nil) != (c.mean == nil) || mean != nil && *mean != *c.mean || !u.Until.Equal(at.Add(time.Second)) {
			t.Errorf("%s: %+v, mean %v", name, u, mean)
		}
	}
}
