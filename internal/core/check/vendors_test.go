package check

import (
	"slices"
	"testing"

	"gpuard/internal/core/gpu"
)

// TestEveryVendor: doctor checks a mask of each vendor.
func TestEveryVendor(t *testing.T) {
	for _, v := range gpu.Vendors() {
		if !slices.ContainsFunc(maskVariables(), func(m maskVariable) bool { return m.vendor == v }) {
			t.Errorf("the mask of %s is not checked: add it to maskVariables", v)
		}
	}
}
