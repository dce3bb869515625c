package compat

import (
	_ "embed"
	"strings"

	"gpuard/internal/core/gpu"
)

//go:embed data/cuda.txt
var cudaTable string

//go:embed data/hardware.txt
var hardwareTable string

// DriverFor returns the Linux driver that a CUDA version needs. floor is the oldest that runs its programs ("525"),
// from CUDA 11 on the same for a whole major version. own is the one that the toolkit came with ("570.26" for 12.8), ""
// when the table does not have it. Drivers between the two run everything except code that the driver must compile
// first (PTX) and new functions of the driver. ok is false for a CUDA that is not in the tables. Source:
// docs.nvidia.com/cuda/cuda-toolkit-release-notes, tables of driver versions.
func DriverFor(cuda string) (floor, own string, ok bool) {
	major, hasMajor := Major(cuda)
	if !hasMajor {
		return "", "", false
	}

	for _, row := range tableRows(cudaTable) {
		name, isMajor := strings.CutSuffix(row[0], ".x")
		switch m, _ := Major(name); {
		case isMajor && m == major:
			floor = row[1]
		case !isMajor && len(LeadingNumbers(cuda)) > 1 && row[0] == majorMinor(cuda):
			own = row[1]
		}
	}

	if floor == "" {
		floor = own
	}

	return floor, own, floor != ""
}

// DriverRuns reports whether a driver runs programs of a CUDA version, by the floor of the major version, not by the
// toolkit's own driver. known is false when the version is not in the tables.
func DriverRuns(driver, cuda string) (runs, known bool) {
	floor, _, ok := DriverFor(cuda)
	if _, numbered := Major(driver); !ok || !numbered {
		return false, false
	}
	return Compare(driver, floor) >= 0, true
}

// HighestCUDA is the newest CUDA whose own driver is not newer than this one ("12.8" of "570.124.06"), which nvidia-smi
// shows as CUDA Version; "" for a driver older than the table. The driver's own answer has priority.
func HighestCUDA(driver string) string {
	highest := ""
	for _, row := range tableRows(cudaTable) {
		if !strings.HasSuffix(row[0], ".x") && Compare(driver, row[1]) >= 0 && Compare(row[0], highest) > 0 {
			highest = row[0]
		}
	}
	return highest
}

// Hardware is one generation of NVIDIA devices.
type Hardware struct {
	Architecture string // "Ampere"
	// Number types that tensor cores multiply: "fp16", "bf16", "tf32", "fp64", "fp8", "fp6", "fp4", "int8", "int4";
	// nil: it has none.
	Tensor []string
	// The first version that supports it: "11.0".
	OldestCUDA string
	// The last major version that supports it; 0 while it is supported.
	LastCUDA int
}

// HardwareOf describes the devices of a compute capability; ok is false for one that is not in the tables.
// Source: the compute capability tables of NVIDIA's CUDA programming guide and PTX manual.
func HardwareOf(c gpu.Capability) (Hardware, bool) {
	for _, row := range tableRows(hardwareTable) {
		if row[0] != c.String() {
			continue
		}

		h := Hardware{Architecture: row[1], OldestCUDA: row[3]}
		if row[2] != "-" {
			h.Tensor = strings.Fields(row[2])
		}

		h.LastCUDA, _ = Major(row[4])

		return h, true
	}
	return Hardware{}, false
}
