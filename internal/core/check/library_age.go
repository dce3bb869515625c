package check

import (
	"fmt"
	"strings"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
)

// presentCUDA is the oldest CUDA that the builds of today are for.
const presentCUDA = "12"

func driverAge() Check {
	return Check{Page{
		Code:  "driver-age",
		Title: "The driver runs the builds of today",
		Text: `PyTorch, JAX, TensorFlow, ONNX Runtime and CuPy of today are built for CUDA 12 or 13, which need driver 525 or 580. An older driver runs
programs for an older CUDA: PyTorch up to 2.7 from its index for CUDA 11.8, for instance, from driver 450.80.02 on.

Update the driver where the card allows it: the Kepler generation ends with driver 470.`,
		From: []string{"https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/ (tables of driver versions)", compatibilityGuide, torchMatrix},
	}, false, checkDriverAge}
}

// checkDriverAge says what runs with a driver that is too old for the builds of today, also where none is installed
// yet.
func checkDriverAge(s hostinfo.Site) []Finding {
	const code = "driver-age"
	driver := driverVersion(s)
	runs, known := compat.DriverRuns(driver, presentCUDA)
	switch {
	case s.Driver.Found.WSL, !hasVendor(s, gpu.NVIDIA), driver == "":
		return okFinding(code, "there is no driver of NVIDIA here to judge")
	case !known:
		return unknownFinding(code, "how old the driver is", "its version is "+driver, "")
	case runs:
		return okFindingf(code, "driver %s runs builds for CUDA %s", driver, presentCUDA)
	}

	floor, _, _ := compat.DriverFor(presentCUDA)
	newest, _, _ := compat.DriverFor("13")
	release, cuda := compat.TorchUpTo(driver, capabilities(s)...)
	builds := fmt.Sprintf("builds for CUDA %s, such as: pip install 'torch==%s.*' -i https://download.pytorch.org/whl/cu%s", cuda, release, strings.ReplaceAll(cuda, ".", ""))
	do := "install NVIDIA driver " + newest + " or newer"
	switch {
	case isTooNewForGPUs(s, presentCUDA) && release != "":
		do = "use " + builds
	case isTooNewForGPUs(s, presentCUDA):
		do = "build what you need for CUDA " + orUnknown(compat.HighestCUDA(driver))
	case release != "":
		do += ", or use " + builds
	}

	return []Finding{{code, Warning, fmt.Sprintf("driver %s runs programs for CUDA %s and older; builds of today need %s (CUDA %s) or %s (CUDA 13)", driver, orUnknown(compat.HighestCUDA(driver)), floor, presentCUDA, newest),
		"With this driver they see no GPU, and work on the CPU.", do}}
}
