package check

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
)

func libraryVersion() Check {
	return Check{Page{
		Code:  "library-version",
		Title: "The driver's libraries and its kernel module are of one version",
		Text: `An update replaces the driver's libraries at once; the kernel module that is loaded stays the old one until the machine is rebooted or the
module is loaded anew. From then on every new program fails ("Driver/library version mismatch", NVML error 18), while programs that
already run go on.

Reboot. Without one: end everything that uses a GPU, the display server and nvidia-persistenced too, then
` + "`sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`" + `. A container that was started before the update keeps the old
libraries: start it anew. On a shared machine, automatic updates of the driver should be switched off
(` + "`apt-mark hold`" + `, or an exception in unattended-upgrades).

A libcuda of the CUDA compatibility package (a folder compat) may be newer than the module. That works on data center cards only.`,
		From: []string{"NVIDIA/go-nvml: gen/nvml/nvml.h (NVML_ERROR_LIB_RM_VERSION_MISMATCH)", "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"},
	}, true, checkVersion}
}

func checkVersion(s hostinfo.Site) []Finding {
	const code = "library-version"
	d := s.Driver.Found
	if !isDriverVersion(d.CUDALibrary) {
		// Tegra numbers its library differently.
		d.CUDALibrary = ""
	}

	if !isDriverVersion(d.Library) {
		d.Library = ""
	}

	mismatch := s.Machine.Problem != "" && strings.Contains(s.Machine.Problem, "version mismatch")
	switch {
	case s.Driver.Problem != "" && !mismatch:
		return unknownFinding(code, "the driver's versions", s.Driver.Problem, "")
	case !nvidiaHere(s), d.WSL, d.Module == "" && !mismatch:
		return okFinding(code, "there is nothing to compare")
	case strings.Contains(s.Machine.Found.Source, "nvml") && len(devicesOfVendor(s, gpu.NVIDIA)) > 0 && d.Library != d.Module:
		// This system's loader may read other folders than those that were searched.
		return okFinding(code, "the driver answers through its library")
	}

	compatible := strings.Contains(d.CUDAPath, "/compat")
	f := Finding{code, Error, "", "Every program that starts now fails (driver/library version mismatch); programs that run already continue.",
		"sudo reboot; or, when nothing uses a GPU: sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia"}

	if s.Container != "" {
		f.Do = "the host's driver was updated after this container was started: start the container anew"
	}

	switch {
	case d.Library != "" && d.Module != "" && d.Library != d.Module:
		f.Seen = fmt.Sprintf("the kernel module is %s and the library %s is %s", d.Module, d.LibraryPath, d.Library)
	case mismatch:
		f.Seen = "the driver says that its library and its kernel module differ"
	case d.CUDALibrary != "" && d.CUDALibrary != d.Module && !compatible:
		f.Seen = fmt.Sprintf("the kernel module is %s and %s is %s", d.Module, d.CUDAPath, d.CUDALibrary)
		if d.Library == d.Module {
			// An update changes both, so this library has another origin.
			f.Why = "CUDA programs load it and fail."
			f.Do = fmt.Sprintf("remove that copy, or take its folder out of LD_LIBRARY_PATH: %s", d.CUDAPath)
		}
	case compatible && d.CUDALibrary != "" && d.CUDALibrary != d.Module:
		return []Finding{compatLibraryFinding(code, s)}
	default:
		return okFindingf(code, "library and kernel module are %s", d.Module)
	}

	return []Finding{f}
}

// isDriverVersion reports whether the number in a library's name is a driver version: these have had three digits since
// 2007.
func isDriverVersion(version string) bool {
	major, ok := compat.Major(version)
	return ok && major >= 100
}

// compatLibraryFinding reports a libcuda of the compatibility package.
func compatLibraryFinding(code string, s hostinfo.Site) Finding {
	d := s.Driver.Found
	f := Finding{code, Info, fmt.Sprintf("CUDA programs load the compatibility library %s (%s) over driver %s", d.CUDAPath, d.CUDALibrary, d.Module), "", ""}
	remedy := fmt.Sprintf("take the folder of %s out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, or update the driver", d.CUDAPath)
	if compat.Compare(d.CUDALibrary, d.Module) < 0 {
		f.Severity, f.Why, f.Do = Error, "It is older than the driver, which the driver refuses.", remedy
	} else if i := slices.IndexFunc(s.Machine.Found.Devices, func(g gpu.Device) bool { return strings.Contains(g.Name, "GeForce") }); s.Machine.Problem == "" && i >= 0 {
		f.Severity, f.Do = Error, remedy
		f.Why = fmt.Sprintf("Forward compatibility is for data center cards; on the %s CUDA fails with error 804.", gpu.ModelName(s.Machine.Found.Devices[i].Name))
	}

	return f
}
