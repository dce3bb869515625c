package libcuda

import (
	"fmt"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

const findRemedy = "see which file is found: ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH"

// cannotLoad distinguishes a missing library from one that cannot be loaded. The loader's error begins with the missing
// file; if that is another one, the library needs it.
func cannotLoad(loader error) *gpu.Unavailable {
	if strings.HasPrefix(loader.Error(), libraryName+": cannot open shared object file: No such file") {
		return &gpu.Unavailable{
			Cause:  gpu.LibraryMissing,
			Text:   fmt.Sprintf("cannot find the CUDA driver's library: %v", loader),
			Remedy: "install NVIDIA's driver with its CUDA part (libcuda1 on Debian, libnvidia-compute-… on Ubuntu); in a container, allow it: NVIDIA_DRIVER_CAPABILITIES=compute,utility",
		}
	}
	return &gpu.Unavailable{
		Cause:  gpu.LibraryUnloadable,
		Text:   fmt.Sprintf("cannot load the CUDA driver's library: %v", loader),
		Remedy: findRemedy + "; then install the driver again",
	}
}

func missingFunction(function string) *gpu.Unavailable {
	return &gpu.Unavailable{
		Cause:  gpu.LibraryUnloadable,
		Text:   fmt.Sprintf("cannot use %s: it has no %s, so it is not NVIDIA's CUDA driver", libraryName, function),
		Remedy: findRemedy,
	}
}

// refusedError explains the codes of cuInit that are neither success nor an empty list.
func refusedError(function string, a Answer) *gpu.Unavailable {
	u := &gpu.Unavailable{
		Cause:  gpu.DriverError,
		Text:   fmt.Sprintf("cannot ask the CUDA driver: %s answers %d (%s)", function, a.Code, a.Word),
		Remedy: "see what the driver says: sudo dmesg | grep -iE 'nvrm|xid'",
	}
	switch a.Code {
	case unknownError:
		// Mostly after suspend.
		u.Remedy = "after suspend, when nothing uses the GPUs, load the module again: sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm; if it is in use, or that does not help: " +
			"see what the driver says (sudo dmesg | grep -iE 'nvrm|xid'), and reboot"
	case stubLibrary:
		u.Cause = gpu.LibraryUnloadable
		u.Remedy = "the toolkit's stub for building was loaded, " + a.Library + ": take that folder out of LD_LIBRARY_PATH"
	case systemNotReady:
		u.Remedy = "on machines with NVSwitch start the fabric manager: sudo systemctl start nvidia-fabricmanager"
	case driverMismatch:
		u.Cause = gpu.VersionMismatch
		u.Remedy = "the loaded kernel driver and " + a.Library + " are of different versions: reboot, or load the driver again"
	case newerThanDriver:
		u.Cause = gpu.VersionMismatch
		u.Remedy = a.Library + " is newer than the loaded kernel driver: after an update reboot, or load the driver again"
		if strings.Contains(a.Library, "/compat/") {
			// Where NVIDIA's packages cuda-compat-… put theirs.
			u.Remedy = a.Library + " is for older kernel drivers, but on data center cards only: take that folder out of LD_LIBRARY_PATH (in a container also out of /etc/ld.so.conf.d), or update the driver"
		}
	}
	return u
}

// callError returns the error of a call after cuInit.
func (l libraryHandle) callError(call string, code int) *gpu.Unavailable {
	return refusedError(call, Answer{Code: code, Word: l.codeName(code)})
}

func noAnswerError(limit time.Duration) *gpu.Unavailable {
	return &gpu.Unavailable{
		Cause:  gpu.NoAnswer,
		Text:   "cannot ask the CUDA driver: " + prose.NoAnswerText(limit),
		Remedy: "see what the driver says: sudo dmesg | grep -iE 'nvrm|xid'; a hung GPU needs a reset (nvidia-smi --gpu-reset) or a reboot",
	}
}
