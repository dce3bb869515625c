package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/core/visible"
)

// pythonChecks compare the packages of Python environments with the driver and the cards.
func pythonChecks() []Check {
	return []Check{
		pythonEnvironments(), torchBuild(), torchDriver(), // what the driver cannot run is of no use, whatever it lacks besides
		packageDriver("onnxruntime-driver", "ONNX Runtime", "onnxruntime-gpu"), packageDriver("tensorflow-driver", "TensorFlow", "tensorflow"),
		packageDriver("jax-driver", "JAX", jaxPlugins()...), packageDriver("cupy-driver", "CuPy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x"),
		packageDriver("ctranslate2-driver", "CTranslate2", "ctranslate2"),
		torchCards(), torchCompanions(), torchMKL(),
		onnxBoth(), onnxBuild(), onnxLibraries(), onnxCards(), tensorflowBuild(), buildByName(), llamaBuild(), tensorflowLibraries(), jaxBuild(), jaxLibraries(), jaxCards(), translateLibraries(),
		mixedWheels(), pathOverWheels(), accelerateGPUs(), pythonRuns(), tensorCores(),
	}
}

// inPythons makes the Look of a check that runs on every environment. A finding in an environment that is not in use
// has severity info at most. content is the text when nothing is wrong, in environments that have one of the packages.
func inPythons(code, content string, packages []string, check func(s hostinfo.Site, p hostinfo.Python) []Finding) func(hostinfo.Site) []Finding {
	return func(s hostinfo.Site) []Finding {
		if s.Pythons.Problem != "" {
			return unknownFinding(code, "the Python environments", s.Pythons.Problem, "")
		}

		var all []Finding
		for _, p := range s.Pythons.Found {
			for _, f := range check(s, p) {
				f.Code = code
				if f.Severity.Bad() && !p.Active {
					f.Severity = Info
				}
				f.Seen = "in " + environmentOf(p) + ", " + f.Seen
				all = append(all, f)
			}
		}

		if len(all) > 0 {
			return all
		}

		has := func(p hostinfo.Python) bool {
			return slices.ContainsFunc(p.Packages, func(k hostinfo.Package) bool { return slices.Contains(packages, k.Name) })
		}

		if packages != nil && !slices.ContainsFunc(s.Pythons.Found, has) {
			return okFinding(code, "no Python environment has "+strings.Join(packages, " or "))
		}

		return okFinding(code, content)
	}
}

// withDevices is inPythons for a check that compares packages with the devices of the machine.
func withDevices(code, content string, packages []string, check func(s hostinfo.Site, p hostinfo.Python) []Finding) func(hostinfo.Site) []Finding {
	return func(s hostinfo.Site) []Finding {
		if !hasVendor(s, gpu.NVIDIA) && !hasVendor(s, gpu.AMD) {
			return inPythons(code, "there is no GPU here to compare it with", packages, check)(s)
		}
		return inPythons(code, content, packages, check)(s)
	}
}

// environmentOf names an environment: "/home/ann/venv (Python 3.11)".
func environmentOf(p hostinfo.Python) string {
	if p.Version == "" {
		return p.Prefix
	}
	return p.Prefix + " (Python " + p.Version + ")"
}

// findPackage finds a package by its normalised name; the first that Python would find counts.
func findPackage(p hostinfo.Python, name string) (hostinfo.Package, bool) {
	i := slices.IndexFunc(p.Packages, func(k hostinfo.Package) bool { return k.Name == name })
	if i < 0 {
		return hostinfo.Package{}, false
	}
	return p.Packages[i], true
}

// isFromConda reports whether conda installed a package, and so all that it needs.
func isFromConda(p hostinfo.Python, names ...string) bool {
	return slices.ContainsFunc(p.Packages, func(k hostinfo.Package) bool { return k.From == "conda" && slices.Contains(names, k.Name) })
}

// condaCPU finds the first of conda's packages with one of these names whose build is for the CPU: conda-forge writes
// "cpu_py312h…" for JAX and TensorFlow and "py312h…_0_cpu" for ONNX Runtime, Anaconda "mkl_py39…" and "eigen_py39…" for
// TensorFlow. Source: anaconda.org/conda-forge/{jaxlib,onnxruntime,tensorflow-base}/files,
// anaconda.org/main/tensorflow/files.
func condaCPU(p hostinfo.Python, names ...string) (hostinfo.Package, bool) {
	i := slices.IndexFunc(p.Packages, func(k hostinfo.Package) bool {
		cpu := strings.HasPrefix(k.Build, "cpu") || strings.HasSuffix(k.Build, "_cpu") || strings.HasPrefix(k.Build, "mkl_") || strings.HasPrefix(k.Build, "eigen_")
		return k.From == "conda" && cpu && slices.Contains(names, k.Name)
	})
	if i < 0 {
		return hostinfo.Package{}, false
	}
	return p.Packages[i], true
}

// condaBuild is the finding for conda's build for the CPU of a library; nil where there is no NVIDIA device for the
// other build.
func condaBuild(s hostinfo.Site, p hostinfo.Python, k hostinfo.Package) []Finding {
	if !hasVendor(s, gpu.NVIDIA) {
		return nil
	}
	name := strings.TrimSuffix(k.Name, "-base")
	return []Finding{{Severity: Warning, Seen: fmt.Sprintf("%s %s is conda's build for the CPU (%s)", k.Name, k.Version, k.Build), Why: "programs that use it work on the CPU",
		Do: fmt.Sprintf("conda install -p %s -c conda-forge %s", shellquote.Sh(p.Prefix), shellquote.Sh(name+"=*=*cuda*"))}}
}

// pipInstall is the command that installs packages into an environment. A distribution's Python refuses pip, so there
// the advice is a new environment. Source:
// packaging.python.org/en/latest/specifications/externally-managed-environments.
func pipInstall(p hostinfo.Python, packages string) string {
	interpreter := shellquote.Sh(cmp.Or(p.Interpreter, "python3"))
	if p.Prefix == "/usr" {
		return interpreter + " -m venv .venv && .venv/bin/python -m pip install " + packages
	}
	return pipCommand(p, "install") + " " + packages
}

// pipSwap is the command that removes packages from an environment and then installs others.
func pipSwap(p hostinfo.Python, out, in string) string {
	if p.Prefix == "/usr" {
		return pipInstall(p, in)
	}
	return pipCommand(p, "uninstall") + " " + out + " && " + pipInstall(p, in)
}

func pipCommand(p hostinfo.Python, verb string) string {
	interpreter := shellquote.Sh(cmp.Or(p.Interpreter, "python3"))
	if _, has := findPackage(p, "pip"); !has && p.Kind == "venv" && p.Interpreter != "" {
		return "uv pip " + verb + " --python " + interpreter
	}
	return interpreter + " -m pip " + verb
}

// nvidiaDevices lists the NVIDIA devices that programs started here see; all, where a mask hides them all.
func nvidiaDevices(s hostinfo.Site) []gpu.Device {
	if s.Machine.Problem != "" {
		return nil
	}

	m := s.Machine.Found
	hidden, _ := visible.HiddenDevices(s.Env, m)
	var all, seen []gpu.Device
	for _, d := range m.Devices {
		if d.Vendor != gpu.NVIDIA {
			continue
		}
		all = append(all, d)
		if _, gone := hidden[d.UUID]; !gone {
			seen = append(seen, d)
		}
	}

	if len(seen) == 0 {
		return all
	}

	return seen
}

// hasVendor reports whether the machine has a device of a vendor, by its driver or on the bus.
func hasVendor(s hostinfo.Site, vendor gpu.Vendor) bool {
	if s.Machine.Problem == "" && slices.ContainsFunc(s.Machine.Found.Devices, func(d gpu.Device) bool { return d.Vendor == vendor }) {
		return true
	}

	// AMD's vendor ID is also that of its processors' graphics.
	id := map[gpu.Vendor]uint16{gpu.NVIDIA: 0x10de}[vendor]
	return s.Cards.Problem == "" && slices.ContainsFunc(s.Cards.Found, func(c hostinfo.Card) bool { return id != 0 && c.Vendor == id })
}

// driverVersion is the version of the NVIDIA driver that programs use: the kernel's, or that of a newer libcuda where
// NVIDIA's forward compatibility package is installed. "" when unknown.
// Source: docs.nvidia.com/deploy/cuda-compatibility, "Forward Compatibility".
func driverVersion(s hostinfo.Site) string {
	version := moduleVersion(s)
	if s.Driver.Problem == "" && version != "" && compat.Compare(s.Driver.Found.CUDALibrary, version) > 0 && strings.Contains(s.Driver.Found.CUDAPath, "compat") {
		return s.Driver.Found.CUDALibrary
	}
	return version
}

func pythonEnvironments() Check {
	page := Page{
		Code: "python-environments", Title: "A Python environment cannot be used or read",
		Text: option.Expand("doctor looks for Python environments without running them: those that `VIRTUAL_ENV`, `CONDA_PREFIX` and `PATH` select, `.venv` and `venv` in the current folder, conda's list (`~/.conda/environments.txt`), pyenv's versions and the system's. A virtual environment holds a link to the Python it was made with; when that Python is removed or replaced by another version, nothing in the environment starts any more.\n\n" +
			"Make a broken environment anew. `{gpuard doctor} {for=PATH}` looks at one environment that is not among those found."),
		From: []string{"https://docs.python.org/3/library/venv.html", "python/cpython: Lib/site.py", "conda/conda: conda/core/envs_manager.py"},
	}
	look := func(_ hostinfo.Site, p hostinfo.Python) []Finding {
		switch {
		case p.Problem == "":
			return nil
		case p.Version != "" || len(p.Packages) > 0:
			return []Finding{{Severity: Unknown, Seen: "not everything could be read: " + p.Problem}}
		}
		do := "unset VIRTUAL_ENV CONDA_PREFIX, or activate the environment that is meant"
		if strings.Contains(p.Problem, " leads to ") {
			do = "make it anew, and install its packages again: python3 -m venv --clear " + shellquote.Sh(p.Prefix)
		}

		return []Finding{{Severity: Warning, Seen: p.Problem, Why: "no program of this environment starts", Do: do}}
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		return inPythons(page.Code, environmentsText(s.Pythons.Found), nil, look)(s)
	}}
}

// environmentsText lists the environments: "2 Python environments: /home/ann/venv (Python 3.11), with torch
// 2.9.0+cu128; …".
func environmentsText(found []hostinfo.Python) string {
	if len(found) == 0 {
		return "no Python environment was found"
	}
	var words []string
	for _, p := range found {
		word := environmentOf(p)
		var with []string
		for _, name := range []string{"torch", "tensorflow", "jax", "onnxruntime-gpu", "onnxruntime", "vllm"} {
			if k, ok := findPackage(p, name); ok {
				with = append(with, name+" "+k.Version)
			}
		}

		if len(with) > 0 {
			word += ", with " + strings.Join(with, " and ")
		}

		words = append(words, word)
	}

	return fmt.Sprintf("%s: %s", prose.CountNoun(len(found), "Python environment"), strings.Join(words, "; "))
}
