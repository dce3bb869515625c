package compat

import (
	_ "embed"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

//go:embed data/torch.txt
var torchTable string

//go:embed data/packages.txt
var packageTable string

// Code is the set of devices that a binary has code for.
type Code struct {
	For []gpu.Capability // compiled
	// Code that a driver can compile for this capability and every newer one; nil: none.
	PTX *gpu.Capability
}

// RunsOn reports whether a device of capability c executes the code: code for X.y runs on X.z with z >= y, and never on
// another major number. Embedded devices (5.3, 6.2, 7.2, 8.7, 10.1) run only their own code. Source:
// docs.nvidia.com/cuda/cuda-c-best-practices-guide "Binary Compatibility"; pytorch/pytorch torch/cuda/__init__.py.
func (k Code) RunsOn(c gpu.Capability) bool {
	embedded := []gpu.Capability{{Major: 5, Minor: 3}, {Major: 6, Minor: 2}, {Major: 7, Minor: 2}, {Major: 8, Minor: 7}, {Major: 10, Minor: 1}}
	if k.PTX != nil && c.AtLeast(*k.PTX) {
		return true
	}
	return slices.ContainsFunc(k.For, func(f gpu.Capability) bool {
		return f == c || f.Major == c.Major && f.Minor < c.Minor && !slices.Contains(embedded, f)
	})
}

// String lists the capabilities: "7.5 8.0 12.0+PTX".
func (k Code) String() string {
	var words []string
	for _, c := range k.For {
		word := c.String()
		if k.PTX != nil && *k.PTX == c {
			word += "+PTX"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TorchCode is the code in the PyTorch wheels of a version ("2.9.0", or "2.9.0+cu128") for a CUDA ("12.8"). ok is false
// for a build that is not in the table: local builds and conda's may have any code. Source: pytorch/pytorch RELEASE.md,
// "PyTorch CUDA Support Matrix".
func TorchCode(version, cuda string) (Code, bool) {
	for _, row := range tableRows(torchTable) {
		if row[0] == majorMinor(cuda) && isInRange(version, row[1], row[2]) {
			return parseCode(row[3]), true
		}
	}
	return Code{}, false
}

func parseCode(text string) Code {
	var k Code
	for word := range strings.FieldsSeq(text) {
		number, ptx := strings.CutSuffix(word, "+PTX")
		c := mustCapability(number)
		k.For = append(k.For, c)
		if ptx {
			k.PTX = &c
		}
	}
	return k
}

// TorchFor lists the CUDA versions of the table whose wheels for a PyTorch version run on every one of the devices,
// newest first; without devices, all.
func TorchFor(version string, on ...gpu.Capability) []string {
	var fit []string
	for _, row := range tableRows(torchTable) {
		k := parseCode(row[3])
		fails := func(c gpu.Capability) bool { return !k.RunsOn(c) }
		if isInRange(version, row[1], row[2]) && !slices.ContainsFunc(on, fails) {
			fit = append(fit, row[0])
		}
	}
	slices.SortFunc(fit, func(a, b string) int { return Compare(b, a) })

	return fit
}

// TorchUpTo is the newest PyTorch that has a wheel for a CUDA that this driver runs, with code for every one of the
// devices: "2.7" and "11.8" for driver 470. release is "" where there is none.
func TorchUpTo(driver string, on ...gpu.Capability) (release, cuda string) {
	for _, row := range tableRows(torchTable) {
		k := parseCode(row[3])
		fails := func(c gpu.Capability) bool { return !k.RunsOn(c) }
		runs, known := DriverRuns(driver, row[0])
		if known && runs && !slices.ContainsFunc(on, fails) && Compare(row[2], release) >= 0 {
			release, cuda = row[2], row[0]
		}
	}
	return release, cuda
}

// Needs is what a Python package needs to use an NVIDIA device.
type Needs struct {
	// "12" or "12.5"; only the major version is required.
	CUDA string
	// "9" or "9.3": this major version, and not older; "" none.
	CUDNN string
	// The lowest capability of devices; nil: that of the CUDA version.
	Lowest *gpu.Capability
}

// PackageNeeds returns what a package of PyPI needs, by its normalised name ("onnxruntime-gpu") and version. ok is
// false when the tables do not have it. PyTorch is in TorchCode, because each build names its CUDA. Sources: the
// documentation of ONNX Runtime, TensorFlow, JAX and CuPy, as named in the table.
func PackageNeeds(name, version string) (Needs, bool) {
	for _, row := range tableRows(packageTable) {
		if row[0] != name || !isInRange(version, row[1], row[2]) {
			continue
		}
		n := Needs{CUDA: row[3], CUDNN: strings.Trim(row[4], "-")}
		if row[5] != "-" {
			n.Lowest = new(mustCapability(row[5]))
		}

		return n, true
	}
	return Needs{}, false
}

// LastFor is the newest series of a package for a CUDA major version: "1.26" of onnxruntime-gpu for CUDA 12; "" when
// the tables have no end of it, or no entry.
func LastFor(name, cuda string) string {
	last := ""
	want, _ := Major(cuda)
	for _, row := range tableRows(packageTable) {
		switch major, _ := Major(row[3]); {
		case row[0] != name || major != want:
		case row[2] == "-":
			return ""
		case Compare(row[2], last) > 0:
			last = row[2]
		}
	}

	return last
}
