package measure

import (
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/store"
)

// TestMeasurable: every lease is measured but a share that nothing enforces, and a part of another lease. Those of an invented machine
// have no guard.
func TestMeasurable(t *testing.T) {
	devices := []gpu.UUID{"GPU-1"}
	for name, c := range map[string]struct {
		lease job.Lease
		want  bool
	}{
		"a GPU":              {job.Lease{Devices: devices}, true},
		"a share":            {job.Lease{Devices: devices, Share: 1, Quota: job.Watch}, true},
		"through MPS":        {job.Lease{Devices: devices, Share: 1, Quota: job.MPS}, true},
		"not enforced":       {job.Lease{Devices: devices, Share: 1}, false},
		"part of a lease":    {job.Lease{Devices: devices, Parent: "k3f9"}, false},
		"a share of a lease": {job.Lease{Devices: devices, Share: 1, Quota: job.Watch, Parent: "k3f9"}, true},
		"none":               {job.Lease{}, false},
	} {
		if got := isMeasurable(&c.lease); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for path, want := range map[string]bool{"/run/gpuard": false, "/home/a/.local/state/gpuard/machines/0f3a": true} {
		if got := store.InventedName(path) != ""; got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
