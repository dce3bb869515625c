package lint

import (
	"slices"
	"testing"

	"gpuard/internal/core/gpu"
)

// TestEveryVendor: lint checks the lists of each vendor.
func TestEveryVendor(t *testing.T) {
	for _, v := range gpu.Vendors() {
		if !slices.ContainsFunc(listVariables(), func(l listVariable) bool { return l.vendor == v }) {
			t.Errorf("the list of %s is not checked: add it to lists", v)
		}
	}
}
