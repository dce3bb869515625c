package job

import (
	"testing"

	"gpuard/internal/core/gpu"
)

// TestEveryVendor: no vendor but NVIDIA is announced as cuda:0.
func TestEveryVendor(t *testing.T) {
	for _, v := range gpu.Vendors() {
		if got := (Given{Vendor: v}).RuntimeName(); (got == "cuda") != (v == gpu.NVIDIA) {
			t.Errorf("%s is announced as %s:0: add it to Runtime", v, got)
		}
	}
}
