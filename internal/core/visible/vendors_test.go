package visible

import (
	"slices"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// TestEveryVendor: the mask of each vendor is obeyed, and a job's variables name its devices, or none, to each runtime.
func TestEveryVendor(t *testing.T) {
	for _, v := range gpu.Vendors() {
		if !slices.ContainsFunc(maskReaders(), func(r maskReader) bool { return r.vendor == v }) {
			t.Errorf("a mask of %s is not obeyed: add it to maskReaders", v)
		}
		one := gpu.Device{UUID: "GPU-0", Vendor: v}
		m := gpu.Machine{Devices: []gpu.Device{one}}
		given := TargetVars([]Target{{UUID: one.UUID, Vendor: v}}, job.IndexIDs, m)
		none := TargetVars(nil, job.IndexIDs, m)
		if slices.EqualFunc(given, none, func(a, b Var) bool { return a == b }) {
			t.Errorf("a device of %s changes no variable: add it to Write", v)
		}
	}
}
