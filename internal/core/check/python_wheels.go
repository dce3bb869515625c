package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
)

// unsuffixedWheels lists NVIDIA's wheels whose CUDA 13 versions have no -cu13 in the name; others have it.
// Source: pypi.org/project/cuda-toolkit, its extras.
func unsuffixedWheels() []string {
	return []string{"nvidia-cublas", "nvidia-cuda-runtime", "nvidia-cuda-nvrtc", "nvidia-cuda-cupti", "nvidia-cufft", "nvidia-curand", "nvidia-cusolver", "nvidia-cusparse", "nvidia-nvjitlink", "nvidia-nvtx", "nvidia-cufile"}
}

// parseWheelName reads the name of one of NVIDIA's library wheels: "nvidia-cudnn-cu12" is cudnn for CUDA 12.
func parseWheelName(k hostinfo.Package) (component string, cuda int, ok bool) {
	stem, isOne := strings.CutPrefix(k.Name, "nvidia-")
	if !isOne || k.From == "conda" {
		return "", 0, false
	}
	if slices.Contains(unsuffixedWheels(), k.Name) {
		// A placeholder on PyPI.
		return stem, 13, k.Version != "0.0.1"
	}

	i := strings.LastIndex(stem, "-cu")
	if i < 0 {
		return "", 0, false
	}

	cuda, err := strconv.Atoi(stem[i+3:])

	return stem[:i], cuda, err == nil && cuda >= 10 && cuda < 100
}

func mixedWheels() Check {
	page := Page{
		Code: "nvidia-wheels-mixed", Title: "NVIDIA's libraries for several CUDA versions are in one environment",
		Text: "pip installs NVIDIA's libraries as wheels whose names end in the CUDA major version: `nvidia-cudnn-cu11`, `nvidia-cudnn-cu12`, `nvidia-cudnn-cu13`; most of those for CUDA 13 have no ending (`nvidia-cublas`). Wheels of one library for two CUDA versions (cuDNN, NCCL, cuSPARSELt, NVSHMEM and all of those for CUDA 11 and 12) install the same files below `site-packages/nvidia`, so the last one wins and the other framework loads a library made for another CUDA. It comes from two frameworks with different CUDA versions in one environment, or from an upgrade that left the old wheels behind.\n\n" +
			"Uninstall the wheels that no framework needs, then install those of the version that is needed again (`--force-reinstall --no-deps`): uninstalling took files of both. Frameworks with different CUDA major versions belong into different environments.",
		From: []string{"https://pypi.org/project/nvidia-cudnn-cu12/", "https://pypi.org/project/nvidia-cudnn-cu13/", "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/ (pip wheels)"},
	}
	return Check{Page: page, Look: inPythons(page.Code, "no environment mixes NVIDIA's libraries for several CUDA versions", nil, func(_ hostinfo.Site, p hostinfo.Python) []Finding {
		// Names of wheels.
		byCUDA := map[int][]string{}

		// Folder and component to CUDA versions.
		sorts := map[string][]int{}
		var components []string
		for _, k := range p.Packages {
			component, cuda, ok := parseWheelName(k)
			if !ok || slices.Contains(byCUDA[cuda], k.Name) {
				continue
			}

			byCUDA[cuda] = append(byCUDA[cuda], k.Name)
			at := k.Folder + "\t" + component
			if len(sorts[at]) == 0 {
				components = append(components, at)
			}

			sorts[at] = append(sorts[at], cuda)
		}

		if len(byCUDA) < 2 {
			return nil
		}

		var clash []string
		for _, at := range components {
			if v := sorts[at]; len(v) > 1 && !shareNoFiles(v, at) {
				slices.Sort(v)
				_, component, _ := strings.Cut(at, "\t")
				clash = append(clash, component+" for CUDA "+joinNumbers(v))
			}
		}

		versions := slices.Sorted(maps.Keys(byCUDA))
		if len(clash) == 0 {
			return []Finding{{Severity: Info, Seen: "NVIDIA's libraries for CUDA " + joinNumbers(versions) + " are both installed", Why: "each framework finds its own, at twice the size on disk and in memory"}}
		}

		return []Finding{{Severity: Warning, Seen: "wheels of the same library overwrite each other: " + strings.Join(clash, ", "), Why: "a framework may load a library that is made for another CUDA, and fail in its first operation",
			Do: "give frameworks of different CUDA versions environments of their own" + keepOnlyAdvice(p, cudaToKeep(p, versions), byCUDA)}}
	})}
}

// cudaToKeep is the CUDA version whose wheels to keep: PyTorch's, else the newest.
func cudaToKeep(p hostinfo.Python, versions []int) int {
	t, _ := torchOf(p)
	if major, ok := compat.Major(t.cuda); ok && slices.Contains(versions, major) {
		return major
	}
	return slices.Max(versions)
}

// keepOnlyAdvice is the command that removes the wheels for other CUDA versions. The kept wheels are reinstalled,
// because the others have overwritten some of their files.
func keepOnlyAdvice(p hostinfo.Python, keep int, byCUDA map[int][]string) string {
	var out, in []string
	for _, cuda := range slices.Sorted(maps.Keys(byCUDA)) {
		if cuda != keep {
			out = append(out, byCUDA[cuda]...)
			continue
		}
		for _, name := range byCUDA[cuda] {
			k, _ := findPackage(p, name)
			in = append(in, name+"=="+k.Version)
		}
	}
	return fmt.Sprintf(", or keep those for CUDA %d alone: %s", keep, pipSwap(p, strings.Join(out, " "), "--force-reinstall --no-deps "+strings.Join(in, " ")))
}

// shareNoFiles reports whether wheels of one component do not share files: those for CUDA 13 without a suffix are in
// nvidia/cu13.
func shareNoFiles(versions []int, at string) bool {
	_, component, _ := strings.Cut(at, "\t")
	others := slices.DeleteFunc(slices.Clone(versions), func(v int) bool { return v == 13 })
	return slices.Contains(unsuffixedWheels(), "nvidia-"+component) && len(others) < 2
}

// joinNumbers writes "11 and 12".
func joinNumbers(versions []int) string {
	return strings.Join(prose.Texts(versions, strconv.Itoa), " and ")
}

func pathOverWheels() Check {
	page := Page{
		Code: "library-path-over-wheels", Title: "LD_LIBRARY_PATH puts other CUDA libraries before those of the wheels",
		Text: "Frameworks that pip installed bring their CUDA libraries as wheels. The loader looks into the folders of `LD_LIBRARY_PATH` first, so a toolkit or an old cuDNN named there takes the place of the version that the framework was tested with. The result are errors about missing symbols or versions, or a framework that says it has no GPU.\n\n" +
			"Start such programs without the variable (`env -u LD_LIBRARY_PATH …`), and take it out of `~/.bashrc`: programs built with the toolkit find it by the loader's cache or by their own run path.",
		From: []string{jaxNeeds, "https://man7.org/linux/man-pages/man8/ld.so.8.html"},
	}
	return Check{Page: page, Look: inPythons(page.Code, "LD_LIBRARY_PATH takes no library of a wheel's place", nil, func(s hostinfo.Site, p hostinfo.Python) []Finding {
		path, _ := s.Env.Lookup("LD_LIBRARY_PATH")
		var own []library
		for _, l := range append(cudaLibraries(), cudnnLibrary(), library{"NCCL", "libnccl.so.", "nvidia-nccl", nil}) {
			if slices.ContainsFunc(p.Packages, func(k hostinfo.Package) bool { return k.Name == l.wheel || strings.HasPrefix(k.Name, l.wheel+"-cu") }) {
				own = append(own, l)
			}
		}

		if path == "" || len(own) == 0 || !p.Active {
			return nil
		}
		if s.Libraries.Problem != "" {
			return []Finding{{Severity: Unknown, Seen: "LD_LIBRARY_PATH is set, and it cannot be seen what lies there: " + s.Libraries.Problem}}
		}

		var over []string
		for _, l := range own {
			i := slices.IndexFunc(s.Libraries.Found, func(f hostinfo.Library) bool {
				return f.From == "LD_LIBRARY_PATH" && strings.HasPrefix(f.Name, l.so) && l.shadows(p, f)
			})
			if i >= 0 {
				over = append(over, fmt.Sprintf("%s (the wheels have %s)", s.Libraries.Found[i].Path, l.versionOf(p)))
			}
		}

		if len(over) == 0 {
			return nil
		}

		return []Finding{{Severity: Warning, Seen: "LD_LIBRARY_PATH puts other libraries before those of the wheels: " + strings.Join(over, ", "),
			Why: "a framework may load a version that it was not made for", Do: "start programs of this environment without it: env -u LD_LIBRARY_PATH " + shellquote.Sh(cmp.Or(p.Interpreter, "python3")) + " …"}}
	})}
}

// shadows reports whether a file that is found before the wheel's may do harm: it has the same major version, another
// folder, and is older. Newer libraries of the same major version run older programs, except cuDNN, whose parts must
// all have one version. "9.10.2" in a file's name matches every 9.10.2.x of the wheels; a name with only a major
// version is not judged.
// Source: docs.nvidia.com/deploy/cuda-compatibility, "Minor Version Compatibility".
func (l library) shadows(p hostinfo.Python, f hostinfo.Library) bool {
	number, _ := strings.CutPrefix(f.Name, l.so)
	if compat.Compare(f.Version, number) > 0 {
		number = f.Version
	}
	return !strings.Contains(f.Path, "/site-packages/") && slices.ContainsFunc(p.Packages, func(k hostinfo.Package) bool {
		own, theirs := compat.LeadingNumbers(k.Version), compat.LeadingNumbers(number)
		n := min(len(own), len(theirs))
		order := slices.Compare(theirs[:n], own[:n])

		return (k.Name == l.wheel || strings.HasPrefix(k.Name, l.wheel+"-cu")) && n > 0 && own[0] == theirs[0] && (order < 0 || order > 0 && l.name == "cuDNN")
	})
}

func (l library) versionOf(p hostinfo.Python) string {
	i := slices.IndexFunc(p.Packages, func(k hostinfo.Package) bool { return k.Name == l.wheel || strings.HasPrefix(k.Name, l.wheel+"-cu") })
	return p.Packages[i].Version
}

func pythonRuns() Check {
	page := Page{
		Code: "python-runs", Title: "A library does not see the GPUs when it is imported",
		Text: option.Expand("With `{run}`, doctor imports PyTorch, TensorFlow, JAX, ONNX Runtime and CuPy, as far as they are installed, each in a process of its own, and asks how many devices it can use. This finds what files alone do not show: a library that does not load, a symbol that is missing, a device that refuses.\n\n" +
			"The finding has the library's own words. What the other findings say of the same environment is often the cause."),
		From: []string{"https://docs.pytorch.org/docs/stable/cuda.html", "https://www.tensorflow.org/guide/gpu", jaxNeeds, onnxNeeds, "https://docs.cupy.dev/en/stable/"},
	}
	content := option.Expand("nothing was imported: {gpuard doctor} {run} asks the libraries of the environment that is active, or of the one that {for} names")
	look := func(s hostinfo.Site, p hostinfo.Python) (bad []Finding) {
		for _, r := range p.Ran {
			switch {
			case r.Problem != "":
				bad = append(bad, Finding{Severity: Error, Seen: r.Library + " gave no answer: " + r.Problem, Why: "it cannot be used as it is", Do: "see the other findings of this environment, or: " + shellquote.Sh(p.Interpreter) + " -c 'import " + r.Library + "'"})
			case r.Devices == 0 && cpuBuild(p, r.Library):
				bad = append(bad, Finding{Severity: Info, Seen: r.Library + " was imported and is a build for the CPU: " + r.Text})
			case r.Devices == 0 && (hasVendor(s, gpu.NVIDIA) || slices.ContainsFunc(s.Machine.Found.Devices, ownMemory)):
				bad = append(bad, Finding{Severity: Error, Seen: r.Library + " was imported and can use no GPU: " + r.Text, Why: "programs that use it work on the CPU", Do: "see the other findings of this environment"})
			}
		}
		return bad
	}

	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		said := content
		for _, p := range s.Pythons.Found {
			words := prose.Texts(p.Ran, func(r hostinfo.Probe) string {
				return fmt.Sprintf("%s %s: %s", r.Library, r.Text, prose.CountNoun(r.Devices, "device"))
			})

			if p.Ran != nil {
				said = "none of the libraries that doctor knows is installed in " + p.Prefix
			}

			if len(words) > 0 {
				said = "imported in " + p.Prefix + ": " + strings.Join(words, "; ")
			}

			if p.Ran != nil {
				break
			}
		}
		return inPythons(page.Code, said, nil, look)(s)
	}}
}

// cpuBuild reports whether the installed build of a library does not support GPUs. The check of the build reports that
// if it is a mistake.
func cpuBuild(p hostinfo.Python, library string) bool {
	names := map[string][]string{"tensorflow": {"tensorflow", "tensorflow-base"}, "jax": {"jaxlib"}, "onnxruntime": {"onnxruntime"}}
	if _, found := condaCPU(p, names[library]...); found {
		return true
	}

	switch library {
	case "torch":
		t, _ := torchOf(p)
		return t.known && t.cuda == "" && t.hip == ""
	case "tensorflow":
		_, other := findPackage(p, "tensorflow")
		_, cpu := findPackage(p, "tensorflow-cpu")
		return cpu && !other
	case "jax":
		lib, _ := findPackage(p, "jaxlib")
		return !isFromConda(p, "jaxlib") && !strings.Contains(lib.Version, "+cuda") && !slices.ContainsFunc(p.Packages, func(k hostinfo.Package) bool {
			return strings.HasPrefix(k.Name, "jax-cuda") || strings.HasPrefix(k.Name, "jax-rocm")
		})
	case "onnxruntime":
		return !isFromConda(p, "onnxruntime") && !slices.ContainsFunc(p.Packages, func(k hostinfo.Package) bool {
			return k.Name != "onnxruntime" && slices.Contains(onnxFamily(), k.Name)
		})
	}

	return false
}

func tensorCores() Check {
	page := Page{
		Code: "tensor-cores", Title: "Number types that the tensor cores of each card multiply",
		Text: "Tensor cores multiply small matrices many times faster than the other units, but only of some number types: fp16 from Volta (7.0) on, int8 from Turing (7.5) on (without the GTX 16 series, T400 to T2000 and MX450, which have no tensor cores), bf16 and tf32 from Ampere (8.0) on, fp8 from Ada (8.9) and Hopper (9.0) on, fp6 and fp4 on Blackwell. A type that a card lacks is refused, or emulated so slowly that nothing is gained: bf16 on Turing, for instance.\n\n" +
			"Choose the type by the oldest card that a program may be given: `fp16` where a card lacks `bf16`. With tf32, `torch.set_float32_matmul_precision(\"high\")` makes 32-bit matrix products use it.",
		From: []string{"https://docs.nvidia.com/cuda/cuda-programming-guide/ (Compute Capabilities: Tensor Core Input Data Types)", "https://docs.nvidia.com/cuda/parallel-thread-execution/"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		if s.Machine.Problem != "" && !hasNoCard(s) {
			return unknownFinding(page.Code, "the devices", s.Machine.Problem, "")
		}

		var found []Finding
		for _, model := range modelsOf(s.Machine.Found, gpu.NVIDIA) {
			i := slices.IndexFunc(s.Machine.Found.Devices, func(d gpu.Device) bool { return d.Name == model })
			c := s.Machine.Found.Devices[i].Compute
			if c == nil {
				continue
			}

			has, _ := compat.HasTensorCores(s.Machine.Found.Devices[i])
			h, known := compat.HardwareOf(*c)
			switch {
			case !known:
				found = append(found, Finding{Code: page.Code, Severity: Unknown, Seen: fmt.Sprintf("%s has compute capability %s, which this version of gpuard does not know", gpu.ModelName(model), c)})
			case !has:
				found = append(found, Finding{Code: page.Code, Severity: Info, Seen: fmt.Sprintf("%s (%s, %s) has no tensor cores", gpu.ModelName(model), c, h.Architecture), Why: "fp16 and bf16 save memory on it, and no time"})
			default:
				found = append(found, Finding{Code: page.Code, Severity: Info, Seen: fmt.Sprintf("%s (%s, %s) has tensor cores for %s", gpu.ModelName(model), c, h.Architecture, strings.Join(h.Tensor, ", ")), Why: "other number types run without them, at a fraction of the speed"})
			}
		}

		if len(found) == 0 {
			return okFinding(page.Code, "there is no NVIDIA GPU with known tensor cores")
		}

		return found
	}}
}
