package pick

import (
	"testing"

	"gpuard/internal/core/gpu"
)

// TestEveryVendor: each vendor has a name for people.
func TestEveryVendor(t *testing.T) {
	for _, v := range gpu.Vendors() {
		if v.Name() == string(v) {
			t.Errorf("%s has no name for people: add it to vendorName", v)
		}
	}
}
