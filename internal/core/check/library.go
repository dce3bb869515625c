package check

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/prose"
)

func libraryChecks() []Check {
	return []Check{cudaDriver(), driverAge(), nvccOnPath(), loaderLibraries()}
}

const compatibilityGuide = "https://docs.nvidia.com/deploy/cuda-compatibility/"

func cudaDriver() Check {
	return Check{Page{
		Code:  "cuda-driver",
		Title: "The driver is new enough for every CUDA that is installed",
		Text: `What counts for running a program is the major version: CUDA 12 programs run on every driver from 525 on, CUDA 13 programs from 580 on, whichever
minor version they were built with. The newer driver that a toolkit brings along is needed only for what the driver compiles itself (PTX)
and for its new functions.

A toolkit or a runtime library that is too new for the driver does no harm as long as nothing uses it. Update the driver, or install the CUDA of a
major version that it runs. Wheels of Python packages are judged by their own checks.`,
		From: []string{"https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/ (tables of driver versions)", compatibilityGuide},
	}, false, checkCUDA}
}

// checkCUDA compares the driver with the toolkits, and with the runtime libraries that the loader finds.
func checkCUDA(s hostinfo.Site) []Finding {
	const code = "cuda-driver"
	driver := driverVersion(s)
	switch {
	case s.Driver.Found.WSL, !nvidiaHere(s):
		return okFinding(code, "there is no driver of NVIDIA on this system to compare with")
	case driver == "" && s.Driver.Problem != "":
		return unknownFinding(code, "the driver's version", s.Driver.Problem, "")
	case driver == "":
		return okFinding(code, "no driver is loaded to compare with")
	case s.Toolkits.Problem != "":
		return unknownFinding(code, "CUDA toolkits", s.Toolkits.Problem, "")
	}

	var found []Finding
	for _, t := range s.Toolkits.Found {
		if runs, known := compat.DriverRuns(driver, t.Version); known && !runs {
			found = append(found, tooOldFinding(code, driver, t.Version, "the toolkit in "+prose.Clean(t.Folder)))
		}
	}

	for _, l := range s.Libraries.Found {
		version := strings.TrimPrefix(l.Name, "libcudart.so.")
		if runs, known := compat.DriverRuns(driver, version); version != l.Name && known && !runs && !slices.ContainsFunc(s.Toolkits.Found, func(t hostinfo.Toolkit) bool { return majorOf(t.Version) == majorOf(version) }) {
			found = append(found, tooOldFinding(code, driver, version, prose.Clean(l.Path)))
		}
	}

	if len(found) > 0 {
		return found
	}

	return okFindingf(code, "driver %s runs every CUDA that is installed outside of Python environments (up to CUDA %s)", driver, compat.HighestCUDA(driver))
}

func tooOldFinding(code, driver, cuda, where string) Finding {
	floor, _, _ := compat.DriverFor(cuda)
	return Finding{code, Warning, fmt.Sprintf("driver %s is too old for CUDA %s (%s), which needs %s or newer", driver, cuda, where, floor),
		"Programs built with it end with “CUDA driver version is insufficient for CUDA runtime version”.",
		fmt.Sprintf("update the driver to %s or newer, or build and run with CUDA %s", floor, compat.HighestCUDA(driver))}
}

// moduleVersion is the version of NVIDIA's driver: the module's, else the one that the driver reports.
func moduleVersion(s hostinfo.Site) string {
	if s.Driver.Problem == "" && s.Driver.Found.Module != "" {
		return s.Driver.Found.Module
	}
	if len(devicesOfVendor(s, gpu.NVIDIA)) > 0 {
		// AMD's version may follow.
		version, _, _ := strings.Cut(s.Machine.Found.Driver, ",")
		return version
	}
	return ""
}

func nvccOnPath() Check {
	return Check{Page{
		Code:  "nvcc",
		Title: "The CUDA compiler that PATH finds is the one that builds expect",
		Text: `Running programs needs no CUDA toolkit; building CUDA extensions (flash-attn, apex, custom kernels) does. Build systems look for it in different
ways: PyTorch's extension builder takes CUDA_HOME, else CUDA_PATH, else the nvcc on PATH, CMake takes CUDACXX, else the nvcc on PATH. Where these
are of different versions, one program is built from two CUDAs, and fails when it is linked or started.

Set CUDA_HOME to the toolkit whose bin is first in PATH, or leave it unset.`,
		From: []string{"pytorch/pytorch: torch/utils/cpp_extension.py (_find_cuda_home)", "https://cmake.org/cmake/help/latest/envvar/CUDACXX.html"},
	}, false, checkNVCC}
}

func checkNVCC(s hostinfo.Site) []Finding {
	const code = "nvcc"
	if s.Toolkits.Problem != "" {
		return unknownFinding(code, "CUDA toolkits", s.Toolkits.Problem, "")
	}

	name, home := "CUDA_HOME", ""
	for _, n := range []string{"CUDA_PATH", "CUDA_HOME"} {
		// The later one counts.
		if v, set := s.Env.Lookup(n); set && v != "" {
			name, home = n, v
		}
	}

	all := s.Toolkits.Found
	onPath := slices.IndexFunc(all, func(t hostinfo.Toolkit) bool { return t.OnPath })
	at := slices.IndexFunc(all, func(t hostinfo.Toolkit) bool { return slices.Contains(t.Homes, home) })
	switch {
	case home != "" && (at < 0 || !all[at].NVCC):
		f := Finding{code, Info, fmt.Sprintf("%s is %s, where no CUDA compiler is", name, prose.Brief(home)), "Builds of CUDA extensions look there first.", "unset " + name + toolkitExample(all)}
		if at < 0 && nvidiaHere(s) {
			f.Severity, f.Seen = Warning, fmt.Sprintf("%s is %s, which does not exist", name, prose.Brief(home))
		}
		return []Finding{f}
	case home != "" && onPath >= 0 && all[at].Version != "" && all[onPath].Version != "" && all[at].Version != all[onPath].Version:
		return []Finding{{code, Warning, fmt.Sprintf("%s is CUDA %s (%s) and the nvcc on PATH is CUDA %s (%s)", name, all[at].Version, prose.Clean(home), all[onPath].Version, prose.Clean(all[onPath].Folder)),
			"Extensions are then built from two CUDAs.", fmt.Sprintf("export PATH=%s/bin:$PATH, or unset %s", prose.Clean(home), name)}}
	case onPath >= 0:
		return okFindingf(code, "nvcc of CUDA %s is on PATH (%s)", versionOrUnknown(all[onPath].Version), prose.Clean(all[onPath].Folder))
	}

	for _, t := range all {
		if t.NVCC {
			return []Finding{{code, Info, fmt.Sprintf("CUDA %s is in %s, and its nvcc is not on PATH", versionOrUnknown(t.Version), prose.Clean(t.Folder)), "Only building CUDA programs needs it.",
				fmt.Sprintf("export PATH=%s/bin:$PATH", prose.Clean(t.Folder))}}
		}
	}

	return okFinding(code, "there is no CUDA compiler; only building CUDA programs needs one")
}

func toolkitExample(all []hostinfo.Toolkit) string {
	for _, t := range all {
		if t.NVCC {
			return ", or set it to a toolkit: export CUDA_HOME=" + prose.Clean(t.Folder)
		}
	}
	return ""
}

func versionOrUnknown(version string) string {
	if version == "" {
		return "of an unknown version"
	}
	return version
}

func loaderLibraries() Check {
	return Check{Page{
		Code:  "cuda-libraries",
		Title: "The CUDA libraries that the loader finds go together",
		Text: `Programs that bring no CUDA of their own load libcudart, libcublas, libcudnn and libnccl from LD_LIBRARY_PATH, then from the cache of ldconfig, then from the
default folders. Wheels and conda packages bring theirs, so that none of these need be there.

The parts of cuDNN load each other by name and must be of one version: when the loader finds libcudnn.so.9 in one folder and
libcudnn_ops.so.9 of another version in the next one, programs end with CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH. Leave one copy where the
loader looks; usually a folder in LD_LIBRARY_PATH is to be taken out.`,
		From: []string{"https://man7.org/linux/man-pages/man8/ld.so.8.html", "https://docs.nvidia.com/deeplearning/cudnn/backend/latest/ (cudnnStatus_t, CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH)"},
	}, false, checkLibraries}
}

func checkLibraries(s hostinfo.Site) []Finding {
	const code = "cuda-libraries"
	if s.Libraries.Problem != "" {
		return unknownFinding(code, "the libraries that the loader finds", s.Libraries.Problem, "")
	}

	first, seen := []hostinfo.Library{}, map[string]bool{}
	for _, l := range s.Libraries.Found {
		if !seen[l.Name] {
			first = append(first, l)
		}
		seen[l.Name] = true
	}

	for _, main := range first {
		major, isMain := strings.CutPrefix(main.Name, "libcudnn.so.")
		if !isMain || main.Version == "" {
			continue
		}

		for _, part := range first {
			if strings.HasPrefix(part.Name, "libcudnn_") && strings.HasSuffix(part.Name, ".so."+major) && part.Version != "" && part.Version != main.Version {
				return []Finding{{code, Warning, fmt.Sprintf("the loader finds cuDNN %s (%s) and its part %s of %s (%s)", main.Version, prose.Clean(main.Path), part.Name, part.Version, prose.Clean(part.Path)),
					"The parts of cuDNN must be of one version; mixed, programs that use it fail.", "leave one copy where the loader looks: echo $LD_LIBRARY_PATH; ldconfig -p | grep libcudnn"}}
			}
		}
	}

	for _, l := range first {
		if major, is := strings.CutPrefix(l.Name, "libcudart.so."); is && !seen["libcublas.so."+strings.Split(major, ".")[0]] {
			name := "libcublas.so." + strings.Split(major, ".")[0]
			return []Finding{{code, Info, "the loader finds " + l.Name + " (" + prose.Clean(l.Path) + "), and no " + name, "That is a part of the CUDA runtime: programs that bring no CUDA of their own do not start without the rest.",
				"install the whole toolkit, or its libraries: echo $LD_LIBRARY_PATH; ldconfig -p | grep -E 'libcudart|libcublas'"}}
		}
	}

	var names []string
	for _, l := range first {
		for _, stem := range []string{"libcudart", "libcublas", "libcudnn", "libnccl"} {
			if strings.HasPrefix(l.Name, stem+".so.") {
				names = append(names, strings.TrimRight(l.Name+" "+l.Version, " "))
			}
		}
	}

	if len(names) == 0 {
		return okFinding(code, "the loader finds no CUDA library; Python packages bring their own")
	}

	return okFindingf(code, "the loader finds %s", prose.JoinWords(names, "and"))
}
