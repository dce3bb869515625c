package check

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
)

// Sources of the rules about libraries of Python packages.
const (
	onnxNeeds       = "https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#requirements"
	tensorflowNeeds = "https://www.tensorflow.org/install/source#gpu"
	jaxNeeds        = "https://docs.jax.dev/en/latest/installation.html"
	translateNeeds  = "SYSTRAN/faster-whisper: README.md"
)

// onnxFamily lists packages that all install the same folder, onnxruntime. Source: onnxruntime.ai/docs/install.
func onnxFamily() []string {
	return []string{"onnxruntime", "onnxruntime-gpu", "onnxruntime-rocm", "onnxruntime-migraphx", "onnxruntime-openvino", "onnxruntime-training", "onnxruntime-directml", "onnxruntime-qnn", "ort-nightly", "ort-nightly-gpu"}
}

func onnxBoth() Check {
	page := Page{
		Code: "onnxruntime-both", Title: "Two builds of ONNX Runtime overwrite each other",
		Text: "`onnxruntime` (CPU) and `onnxruntime-gpu` install the same folder of files. Whichever came last is what runs, mixed with what is left of the other: often the CPU build, pulled in by some package that depends on `onnxruntime`. Then `CUDAExecutionProvider` is missing and models run on the CPU. Removing one of the two takes files of the other with it.\n\n" +
			"Uninstall both, then install the one that is meant.",
		From: []string{"https://onnxruntime.ai/docs/install/", "https://github.com/microsoft/onnxruntime/issues/26996"},
	}
	return Check{Page: page, Look: inPythons(page.Code, "no environment has two builds of ONNX Runtime", []string{"onnxruntime", "onnxruntime-gpu"}, func(s hostinfo.Site, p hostinfo.Python) []Finding {
		in := map[string][]string{}
		var folders []string
		for _, k := range p.Packages {
			if !slices.Contains(onnxFamily(), k.Name) || slices.Contains(in[k.Folder], k.Name) {
				continue
			}
			if in[k.Folder] == nil {
				folders = append(folders, k.Folder)
			}
			in[k.Folder] = append(in[k.Folder], k.Name)
		}

		var bad []Finding
		for _, folder := range folders {
			names := in[folder]
			if len(names) < 2 || isFromConda(p, "onnxruntime") {
				continue
			}

			slices.Sort(names)
			keep := onnxToKeep(s, names)
			if k, _ := findPackage(p, keep); k.Version != "" {
				keep += "==" + k.Version
			}

			bad = append(bad, Finding{Severity: Warning, Seen: strings.Join(names, " and ") + " are installed into the same folder (" + folder + ")",
				Why: "they overwrite each other's files, and the CPU build may be what runs", Do: pipSwap(p, strings.Join(names, " "), keep)})
		}

		return bad
	})}
}

// onnxToKeep is the build that can use a GPU of this machine, else the first.
func onnxToKeep(s hostinfo.Site, names []string) string {
	for _, wanted := range []struct {
		vendor gpu.Vendor
		name   string
	}{{gpu.NVIDIA, "onnxruntime-gpu"}, {gpu.AMD, "onnxruntime-migraphx"}, {gpu.AMD, "onnxruntime-rocm"}} {
		if hasVendor(s, wanted.vendor) && slices.Contains(names, wanted.name) {
			return wanted.name
		}
	}
	return names[0]
}

// library is a CUDA library that a package loads, with the names of its packages.
type library struct {
	name string // "cuDNN"
	so   string // "libcudnn.so."
	// "nvidia-cudnn": with the suffix -cu12, or from CUDA 13 on without.
	wheel string
	conda []string // packages of conda
}

func cudaLibraries() []library {
	return []library{
		{"cudart", "libcudart.so.", "nvidia-cuda-runtime", []string{"cuda-cudart", "cudatoolkit"}},
		{"cuBLAS", "libcublas.so.", "nvidia-cublas", []string{"libcublas", "cudatoolkit"}},
	}
}

func cudnnLibrary() library {
	return library{"cuDNN", "libcudnn.so.", "nvidia-cudnn", []string{"cudnn", "libcudnn"}}
}

// versionsSeen lists the versions of a library that a package of this environment may load: from wheels for a CUDA
// major version, from conda, and from the loader's folders.
func (l library) versionsSeen(s hostinfo.Site, p hostinfo.Python, cuda int) (versions []string) {
	for _, k := range p.Packages {
		of := k.Name == fmt.Sprintf("%s-cu%d", l.wheel, cuda) || k.Name == l.wheel && cuda >= 13 || k.From == "conda" && slices.Contains(l.conda, k.Name)
		if of {
			versions = append(versions, k.Version)
		}
	}
	if s.Libraries.Problem != "" {
		return versions
	}

	for _, found := range s.Libraries.Found {
		if number, ok := strings.CutPrefix(found.Name, l.so); ok {
			if compat.Compare(found.Version, number) > 0 {
				// The file's name has more digits than the link's.
				number = found.Version
			}
			versions = append(versions, number)
		}
	}

	return versions
}

// meetsVersion reports whether a version has the major version of what is needed, and is not older.
func meetsVersion(version, needed string) bool {
	have, _ := compat.Major(version)
	want, _ := compat.Major(needed)
	return have == want && (compat.Compare(version, needed) >= 0 || len(compat.LeadingNumbers(version)) == 1)
}

// missingLibraries lists the libraries that a package needs and that are not installed: "cuDNN 9 (there is 8.9.7)".
func missingLibraries(s hostinfo.Site, p hostinfo.Python, k hostinfo.Package, n compat.Needs, minor bool) (lacks []string) {
	cuda, _ := compat.Major(n.CUDA)
	need := func(l library, version string) {
		if !minor {
			major, _ := compat.Major(version)
			version = fmt.Sprint(major)
		}

		seen := l.versionsSeen(s, p, cuda)
		if slices.ContainsFunc(seen, func(v string) bool { return meetsVersion(v, version) }) {
			return
		}

		word := l.name + " " + version
		slices.Sort(seen)
		if len(seen) > 0 {
			word += " (there is " + strings.Join(slices.Compact(seen), ", ") + ")"
		}

		lacks = append(lacks, word)
	}

	for _, l := range cudaLibraries() {
		if k.Name == "ctranslate2" && l.name == "cudart" {
			// It is linked into it.
			continue
		}
		need(l, fmt.Sprint(cuda))
	}

	if n.CUDNN != "" {
		need(cudnnLibrary(), n.CUDNN)
	}

	return lacks
}

// torchLoadsLibraries reports whether importing PyTorch first loads the libraries: its wheels contain them or depend on
// them.
func torchLoadsLibraries(p hostinfo.Python, n compat.Needs) bool {
	t, found := torchOf(p)
	mine, _ := compat.Major(t.cuda)
	need, _ := compat.Major(n.CUDA)
	newer := compat.Compare(t.version, "2.4") >= 0

	return found && t.cuda != "" && mine == need && (meetsVersion("9", n.CUDNN) && newer || meetsVersion("8", n.CUDNN) && !newer)
}

// needsOf is what a package of an environment needs. Builds of ONNX Runtime for other CUDA versions than PyPI's have
// the same name and version, so the build's own metadata counts. Source: onnxruntime.ai/docs/install;
// onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#requirements.
func needsOf(p hostinfo.Python, k hostinfo.Package) (compat.Needs, bool) {
	n, known := compat.PackageNeeds(k.Name, k.Version)
	own, _ := compat.Major(p.ONNX)
	if usual, _ := compat.Major(n.CUDA); !known || k.Name != "onnxruntime-gpu" || own == 0 || own == usual {
		return n, known
	}

	n = compat.Needs{CUDA: p.ONNX, CUDNN: "8"}
	if compat.Compare(k.Version, "1.18.1") >= 0 && own >= 12 || own >= 13 {
		n.CUDNN = "9"
	}

	return n, true
}

// libraryFinding reports a package whose libraries are missing.
func libraryFinding(s hostinfo.Site, p hostinfo.Python, k hostinfo.Package, minor bool, severity Severity, do func(n compat.Needs) string) []Finding {
	n, known := needsOf(p, k)
	if !known || !hasVendor(s, gpu.NVIDIA) {
		return nil
	}

	lacks := missingLibraries(s, p, k, n, minor)
	if len(lacks) == 0 {
		return nil
	}
	if runs, known := compat.DriverRuns(driverVersion(s), n.CUDA); known && !runs {
		return []Finding{{Severity: Info, Seen: fmt.Sprintf("%s %s lacks %s, which does not matter yet: driver %s cannot run its CUDA %s", k.Name, k.Version, strings.Join(lacks, ", "), driverVersion(s), n.CUDA),
			Why: "with the libraries it could not use the GPU either"}}
	}
	if s.Libraries.Problem != "" {
		return []Finding{{Severity: Unknown, Seen: fmt.Sprintf("%s %s needs %s, which is not in the environment, and it cannot be seen whether the system has it: %s", k.Name, k.Version, strings.Join(lacks, ", "), s.Libraries.Problem)}}
	}

	return []Finding{{Severity: severity, Seen: fmt.Sprintf("%s %s lacks %s, in the environment and where the loader looks", k.Name, k.Version, strings.Join(lacks, ", ")),
		Why: "it cannot load its part for NVIDIA devices, and works on the CPU", Do: do(n)}}
}

func onnxLibraries() Check {
	page := Page{
		Code: "onnxruntime-libraries", Title: "onnxruntime-gpu does not find its CUDA and cuDNN",
		Text: "`onnxruntime-gpu` loads CUDA and cuDNN from elsewhere, and only the major versions that it was built for: from 1.27 on CUDA 13 and cuDNN 9, from 1.19 on CUDA 12 and cuDNN 9, before that CUDA 11 and cuDNN 8 (the wheels of PyPI). Where one of them is missing it prints an error (\"Failed to create CUDAExecutionProvider\"), and runs the model on the CPU.\n\n" +
			"Install the libraries into the environment (from 1.21 on `onnxruntime-gpu[cuda,cudnn]` brings them, and a program calls `onnxruntime.preload_dlls()` before it makes a session, so that they are found), or a CUDA toolkit and cuDNN on the system; or choose the release for the CUDA that is there. A program that imports PyTorch 2.4 or newer of the same CUDA major version first has them already.",
		From: []string{onnxNeeds, "https://github.com/microsoft/onnxruntime/releases/tag/v1.27.0"},
	}
	return Check{Page: page, Look: withDevices(page.Code, "every onnxruntime-gpu finds its CUDA and cuDNN", []string{"onnxruntime-gpu"}, func(s hostinfo.Site, p hostinfo.Python) []Finding {
		k, found := findPackage(p, "onnxruntime-gpu")
		usual, _ := compat.PackageNeeds(k.Name, k.Version)
		if n, _ := needsOf(p, k); !found || isFromConda(p, "onnxruntime") || torchLoadsLibraries(p, n) {
			return nil
		}

		return libraryFinding(s, p, k, false, Error, func(n compat.Needs) string {
			if compat.Compare(k.Version, "1.21") >= 0 && n.CUDA == usual.CUDA {
				return pipInstall(p, "'onnxruntime-gpu[cuda,cudnn]=="+k.Version+"'")
			}

			cuda, _ := compat.Major(n.CUDA)
			dnn, _ := compat.Major(n.CUDNN)
			suffix := fmt.Sprintf("-cu%d", cuda)
			if cuda >= 13 {
				// For CUDA 13 only cuDNN's wheel has a suffix.
				suffix = ""
			}

			return pipInstall(p, fmt.Sprintf("nvidia-cuda-runtime%[1]s nvidia-cublas%[1]s nvidia-cufft%[1]s nvidia-curand%[1]s nvidia-cuda-nvrtc%[1]s 'nvidia-cudnn-cu%[2]d==%[3]d.*'", suffix, cuda, dnn))
		})
	})}
}

func tensorflowLibraries() Check {
	page := Page{
		Code: "tensorflow-libraries", Title: "TensorFlow does not find its CUDA and cuDNN",
		Text: "The package `tensorflow` for Linux can use NVIDIA devices, and brings no CUDA: that comes with `tensorflow[and-cuda]`, or from the system. It needs the CUDA major version that it was built for, and a cuDNN of the same major and not an older minor version. Otherwise it says \"Cannot dlopen some GPU libraries\" or \"Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0\", and works on the CPU.\n\n" +
			"Install `tensorflow[and-cuda]` of the same version.",
		From: []string{tensorflowNeeds, "https://www.tensorflow.org/install/pip", "openxla/xla: xla/stream_executor/cuda/cuda_dnn.cc"},
	}
	return Check{Page: page, Look: withDevices(page.Code, "every TensorFlow finds its CUDA and cuDNN", []string{"tensorflow"}, func(s hostinfo.Site, p hostinfo.Python) []Finding {
		k, found := findPackage(p, "tensorflow")
		if !found || isFromConda(p, "tensorflow", "tensorflow-base") {
			return nil
		}
		return libraryFinding(s, p, k, true, Warning, func(compat.Needs) string { return pipInstall(p, "'tensorflow[and-cuda]=="+k.Version+"'") })
	})}
}

// jaxPlugins are the packages of JAX's plugins for NVIDIA devices.
func jaxPlugins() []string { return []string{"jax-cuda13-plugin", "jax-cuda12-plugin"} }

// jaxPlugin is the package by which JAX uses NVIDIA devices.
func jaxPlugin(p hostinfo.Python) (hostinfo.Package, bool) {
	for _, name := range jaxPlugins() {
		if k, ok := findPackage(p, name); ok {
			return k, true
		}
	}
	return hostinfo.Package{}, false
}

// jaxExtra is the requirement for JAX with all its libraries: "'jax[cuda13]==0.8.0'".
func jaxExtra(p hostinfo.Python, cuda int) string {
	word := fmt.Sprintf("jax[cuda%d]", cuda)
	if k, ok := findPackage(p, "jax"); ok {
		word += "==" + k.Version
	}
	return "'" + word + "'"
}

func jaxLibraries() Check {
	page := Page{
		Code: "jax-libraries", Title: "JAX does not find its CUDA and cuDNN",
		Text: "JAX's plugins `jax-cuda12-plugin` and `jax-cuda13-plugin` load CUDA and cuDNN from wheels (`jax[cuda13]` installs them) or from the system (`jax[cuda13-local]`). They need the CUDA major version of their name, and a cuDNN that is not older than the one they were built with and has its major version: 9.8 from JAX 0.6.1 on, 9.1 from 0.4.30 on, 8.9 before. Otherwise the plugin does not start, and JAX works on the CPU.\n\n" +
			"Install `jax[cuda12]` or `jax[cuda13]`, which bring all of it.",
		From: []string{jaxNeeds, "https://github.com/jax-ml/jax/issues/29315", "https://github.com/conda-forge/jaxlib-feedstock/issues/277"},
	}
	return Check{Page: page, Look: withDevices(page.Code, "every JAX finds its CUDA and cuDNN", jaxPlugins(), func(s hostinfo.Site, p hostinfo.Python) []Finding {
		k, found := jaxPlugin(p)
		if !found || isFromConda(p, "jaxlib") {
			return nil
		}
		return libraryFinding(s, p, k, true, Error, func(n compat.Needs) string {
			cuda, _ := compat.Major(n.CUDA)
			return pipInstall(p, jaxExtra(p, cuda))
		})
	})}
}

func jaxBuild() Check {
	page := Page{
		Code: "jax-build", Title: "JAX has no working plugin for this machine's GPUs",
		Text: "JAX reaches NVIDIA devices by a plugin package, `jax-cuda12-plugin` or `jax-cuda13-plugin`, and AMD's by `jax-rocm60-plugin` or its successors. Without one it works on the CPU, with one line of warning. conda's `jaxlib` has the plugin inside where its build begins with `cuda`, and none where it begins with `cpu`. The plugin must have exactly the version of `jaxlib`: another one is \"not compatible with the installed jaxlib version …, so it will not be used\".\n\n" +
			"Install `jax[cuda12]` or `jax[cuda13]`, and let that command choose the versions of all parts.",
		From: []string{jaxNeeds, "jax-ml/jax: jaxlib/plugin_support.py"},
	}
	return Check{Page: page, Look: withDevices(page.Code, "every JAX has a plugin for the GPUs here", []string{"jaxlib"}, func(s hostinfo.Site, p hostinfo.Python) []Finding {
		lib, found := findPackage(p, "jaxlib")
		if k, is := condaCPU(p, "jaxlib"); is {
			return condaBuild(s, p, k)
		}
		if !found || isFromConda(p, "jaxlib") || !hasVendor(s, gpu.NVIDIA) || strings.Contains(lib.Version, "+cuda") {
			return nil
		}

		plugin, has := jaxPlugin(p)
		switch {
		case !has:
			if slices.ContainsFunc(p.Packages, func(k hostinfo.Package) bool { return strings.HasPrefix(k.Name, "jax-rocm") }) || compat.Compare(lib.Version, "0.4.26") < 0 {
				return nil
			}
			cuda := 12
			if runs, known := compat.DriverRuns(driverVersion(s), "13.0"); known && runs {
				cuda = 13
			}

			return []Finding{{Severity: Warning, Seen: "jaxlib " + lib.Version + " has no plugin for NVIDIA devices", Why: "JAX works on the CPU without one", Do: pipInstall(p, jaxExtra(p, cuda))}}
		case compat.Compare(plugin.Version, lib.Version) != 0:
			cuda := 12
			if plugin.Name == "jax-cuda13-plugin" {
				cuda = 13
			}
			return []Finding{{Severity: Error, Seen: fmt.Sprintf("%s is %s and jaxlib %s", plugin.Name, plugin.Version, lib.Version), Why: "JAX does not use a plugin of another version than jaxlib, and works on the CPU", Do: pipInstall(p, "--upgrade "+jaxExtra(p, cuda))}}
		}

		return nil
	})}
}

// packageCards is the check of packages against the compute capability of each card.
func packageCards(code, name, text string, from []string, packages []string, do func(p hostinfo.Python, k hostinfo.Package) string) Check {
	page := Page{Code: code, Title: name + " does not support a GPU of this machine", Text: text, From: from}
	return Check{Page: page, Look: withDevices(page.Code, "every "+name+" supports the GPUs here", packages, func(s hostinfo.Site, p hostinfo.Python) (bad []Finding) {
		for _, one := range packages {
			k, found := findPackage(p, one)
			n, known := needsOf(p, k)
			if !found || !known || n.Lowest == nil {
				continue
			}
			bad = append(bad, cardFindings(s, k.Name+" "+k.Version, "it begins at "+n.Lowest.String(), func(c gpu.Capability) bool { return !c.AtLeast(*n.Lowest) },
				func() string { return do(p, k) })...)
		}
		return bad
	})}
}

func jaxCards() Check {
	return packageCards("jax-cards", "JAX",
		"JAX's wheels for CUDA 12 support cards from compute capability 5.2 (Maxwell) on, those for CUDA 13 from 7.5 (Turing) on.\n\nInstall the wheels for CUDA 12 on a machine with older cards, or hide the card from the program.",
		[]string{jaxNeeds}, jaxPlugins(), func(p hostinfo.Python, _ hostinfo.Package) string { return pipInstall(p, jaxExtra(p, 12)) })
}

func onnxCards() Check {
	return packageCards("onnxruntime-cards", "ONNX Runtime",
		"`onnxruntime-gpu` on PyPI is built with CUDA 13 from 1.27 on, and CUDA 13 makes no code for cards before Turing (7.5): Maxwell, Pascal and Volta cards need 1.26 or older.\n\nInstall the last release for CUDA 12 on a machine with older cards, or hide the card from the program.",
		[]string{onnxNeeds, "https://github.com/microsoft/onnxruntime/releases/tag/v1.27.0", cudaNotes}, []string{"onnxruntime-gpu"}, olderRelease)
}

// olderRelease is the command that installs the last release of a package for the previous CUDA major version; "" when
// the tables do not have one.
func olderRelease(p hostinfo.Python, k hostinfo.Package) string {
	n, _ := compat.PackageNeeds(k.Name, k.Version)
	cuda, _ := compat.Major(n.CUDA)
	if last := compat.LastFor(k.Name, fmt.Sprint(cuda-1)); last != "" {
		return pipInstall(p, "'"+k.Name+"=="+last+".*'")
	}

	return ""
}

// packageDriver is the check that the driver is new enough for the CUDA major version of a package.
func packageDriver(code, name string, packages ...string) Check {
	page := Page{
		Code: code, Title: "The NVIDIA driver is too old for " + name + "'s CUDA",
		Text: name + " needs a driver that is new enough for the CUDA major version it was built for: 450.80.02 or newer for CUDA 11, 525 for CUDA 12, 580 for CUDA 13. With an older driver it does not use the GPU: it says that the driver is insufficient, or works on the CPU.\n\n" +
			"Update the driver, or install a release for an older CUDA.",
		From: []string{cudaMinor, cudaNotes, map[string]string{"ONNX Runtime": onnxNeeds, "TensorFlow": tensorflowNeeds, "JAX": jaxNeeds, "CuPy": "https://docs.cupy.dev/en/stable/install.html", "CTranslate2": translateNeeds}[name]},
	}
	return Check{Page: page, Look: withDevices(page.Code, "the driver is new enough for every "+name, packages, func(s hostinfo.Site, p hostinfo.Python) []Finding {
		var bad []Finding
		for _, one := range packages {
			k, found := findPackage(p, one)
			if n, known := needsOf(p, k); found && known {
				bad = append(bad, driverFinding(s, k.Name+" "+k.Version, n.CUDA, func() string {
					major, _ := compat.Major(n.CUDA)
					if runs, known := compat.DriverRuns(driverVersion(s), fmt.Sprint(major-1)); !known || !runs {
						return ""
					}
					return olderRelease(p, k)
				})...)
			}
		}
		return bad
	})}
}
