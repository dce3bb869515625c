package visible

import (
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// TestCountWithin: behind a wall AMD's library counts the devices of the job alone, in its own order. What has an identifier of ROCm's is
// named by that.
func TestCountWithin(t *testing.T) {
	given := func(index int, id gpu.UUID) job.Given { return job.Given{Index: index, UUID: id, Vendor: gpu.AMD} }
	m := gpu.Machine{Devices: []gpu.Device{{UUID: "PCI-0000:05:00.0", Vendor: gpu.AMD}, {Index: 4, UUID: "GPU-aaaaaaaaaaaaaaaa", Vendor: gpu.AMD}, {Index: 2, UUID: "GPU-bbbbbbbbbbbbbbbb", Vendor: gpu.AMD}}}
	for _, c := range []struct {
		devices []job.Given
		level   job.Isolation
		want    string
	}{
		{[]job.Given{given(4, "GPU-aaaaaaaaaaaaaaaa"), given(2, "GPU-bbbbbbbbbbbbbbbb")}, job.Namespace, "GPU-aaaaaaaaaaaaaaaa,GPU-bbbbbbbbbbbbbbbb"},
		{[]job.Given{given(4, "GPU-aaaaaaaaaaaaaaaa"), given(2, "PCI-0000:05:00.0")}, job.Namespace, "1,0"},
		{[]job.Given{given(2, "PCI-0000:05:00.0")}, job.Namespace, "0"},
		{[]job.Given{given(4, "GPU-aaaaaaaaaaaaaaaa"), given(2, "PCI-0000:05:00.0")}, job.NoIsolation, "4,2"},
	} {
		got := ""
		for _, v := range ForJob(nil, "l1", job.Plan{Devices: c.devices, Isolation: c.level}, job.UUIDs, m) {
			if v.Name == "ROCR_VISIBLE_DEVICES" {
				got = v.Value
			}
		}
		if got != c.want {
			t.Errorf("%v behind %q: %s, want %s", c.devices, c.level, got, c.want)
		}
	}
}
