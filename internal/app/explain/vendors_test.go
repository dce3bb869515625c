package explain

import (
	"slices"
	"testing"

	"gpuard/internal/core/gpu"
)

// TestEveryVendor: explain knows what programs use for the devices of each vendor.
func TestEveryVendor(t *testing.T) {
	for _, v := range gpu.Vendors() {
		if !slices.ContainsFunc(runtimes(""), func(r gpuRuntime) bool { return r.native && slices.Contains(r.vendors, v) }) {
			t.Errorf("%s has no native runtime: add it to runtimes", v)
		}
	}
}
