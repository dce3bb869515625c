package compat

import (
	_ "embed"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

//go:embed data/tensorless.txt
var tensorlessTable string

//go:embed data/integrated.txt
var integratedTable string

// HasTensorCores reports whether an NVIDIA device has tensor cores; known is false where its compute capability is not
// known. Volta (7.0) brought them, and of the later chips only two of Turing (7.5) lack them, which the capability does
// not tell.
func HasTensorCores(d gpu.Device) (has, known bool) {
	switch {
	case d.Compute == nil:
		return false, false
	case *d.Compute == gpu.Capability{Major: 7, Minor: 5}:
		return !isTensorless(gpu.ModelName(d.Name)), true
	}
	return d.Compute.Major >= 7, true
}

// isTensorless finds a model's name in its table. It reads only the line: each decision asks for each device.
func isTensorless(model string) bool {
	for name := model; name != ""; {
		if strings.Contains(tensorlessTable, "\n"+name+"\t") {
			return true
		}
		name = name[:max(0, strings.LastIndexByte(name, ' '))]
	}
	return false
}

// InMainMemory reports whether an NVIDIA device has no memory of its own: the GPU of a system on a chip, which the
// compute capability tells (developer.nvidia.com/cuda-gpus: Jetson and DGX Spark), or the name where that is not known.
func InMainMemory(d gpu.Device) bool {
	if d.Vendor != gpu.NVIDIA || d.UsesMIG() {
		return false
	}
	if d.Compute == nil {
		return slices.ContainsFunc([]string{"GB10", "Orin", "Thor", "Xavier", "Tegra"}, func(name string) bool { return strings.Contains(d.Name, name) })
	}
	chips := []gpu.Capability{{Major: 3, Minor: 2}, {Major: 5, Minor: 3}, {Major: 6, Minor: 2}, {Major: 7, Minor: 2}, {Major: 8, Minor: 7}, {Major: 10, Minor: 1}, {Major: 11}, {Major: 12, Minor: 1}}

	return slices.Contains(chips, *d.Compute)
}

// IsIntegrated reports whether AMD GPUs of this target ("gfx1036") are part of a processor.
func IsIntegrated(target string) bool {
	return target != "" && strings.Contains(integratedTable, "\n"+target+"\t")
}
