package compat

import (
	"testing"

	"gpuard/internal/core/gpu"
)

// TestHasTensorCores: of compute capability 7.5 the name decides, else the table of architectures.
func TestHasTensorCores(t *testing.T) {
	for _, c := range []struct {
		name, compute string
		has, known    bool
	}{
		{"NVIDIA T400 4GB", "7.5", false, true},
		{"NVIDIA T400E", "7.5", false, true},
		{"T600 Laptop GPU", "7.5", false, true},
		{"NVIDIA GeForce GTX 1660 Ti", "7.5", false, true},
		{"GeForce GTX 1650 with Max-Q Design", "7.5", false, true},
		{"Quadro T1000", "7.5", false, true},
		{"Tesla T4", "7.5", true, true},
		{"NVIDIA T40", "7.5", true, true},
		{"Quadro RTX 8000", "7.5", true, true},
		{"", "7.5", true, true},
		{"NVIDIA GeForce GTX 1080 Ti", "6.1", false, true},
		{"NVIDIA H100 80GB HBM3", "9.0", true, true},
		{"Something of tomorrow", "14.0", true, true},
		{"NVIDIA Something", "", false, false},
	} {
		d := gpu.Device{Name: c.name}
		if c.compute != "" {
			d.Compute = new(mustCapability(c.compute))
		}
		if has, known := HasTensorCores(d); has != c.has || known != c.known {
			t.Errorf("%s (%s): %v, known %v", c.name, c.compute, has, known)
		}
	}
	for _, row := range tableRows(hardwareTable) {
		if has, _ := HasTensorCores(gpu.Device{Compute: new(mustCapability(row[0]))}); has != (row[2] != "-") {
			t.Errorf("%s: %v, but its types are %s", row[0], has, row[2])
		}
	}
}

func TestIntegrated(t *testing.T) {
	for target, want := range map[string]bool{"gfx1036": true, "gfx90c": true, "gfx90a": false, "gfx1100": false, "gfx942": false, "gfx103": false, "": false} {
		if IsIntegrated(target) != want {
			t.Errorf("%q: %v", target, !want)
		}
	}
}
