package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/shellquote"
)

// Sources of the rules about PyTorch and CUDA.
const (
	torchMatrix = "https://github.com/pytorch/pytorch/blob/main/RELEASE.md"
	cudaMinor   = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
	cudaNotes   = "https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/"
)

// torchHere is PyTorch in an environment: its version, and for what it was built.
type torchHere struct {
	version   string
	cuda, hip string
	// What it was built for.
	known bool
	// One of PyTorch's own wheels, not conda's build or a local one.
	wheel bool
}

// torchNames are the packages that install PyTorch: PyPI's and conda's.
func torchNames() []string { return []string{"torch", "pytorch"} }

// torchOf finds PyTorch; ok is false where there is none.
func torchOf(p hostinfo.Python) (t torchHere, ok bool) {
	k, ok := findPackage(p, "torch")
	if !ok {
		k, ok = findPackage(p, "pytorch")
		if !ok {
			return t, false
		}
	}

	t.version = k.Version
	_, local, hasLocal := strings.Cut(k.Version, "+")
	t.wheel = !isFromConda(p, "pytorch", "libtorch", "pytorch-gpu") && (!hasLocal || strings.HasPrefix(local, "cu"))

	switch {
	case p.Torch != nil:
		t.cuda, t.hip, t.known = p.Torch.CUDA, p.Torch.HIP, true
	case local == "cpu":
		t.known = true
	case strings.HasPrefix(local, "rocm"):
		t.hip, t.known = strings.TrimPrefix(local, "rocm"), true
	case strings.HasPrefix(local, "cu") && len(local) > 3 && strings.Trim(local[2:], "0123456789") == "":
		// cu128 is 12.8.
		t.cuda, t.known = local[2:len(local)-1]+"."+local[len(local)-1:], true
	}

	return t, true
}

// torchWheel is the newest CUDA whose wheels of this PyTorch run with the driver and on all the cards; "" when the
// tables have none. PyTorch's index keeps releases, but not a distribution's "1.13.0a0" or nightly builds.
func torchWheel(s hostinfo.Site, version string) string {
	if number, _, _ := strings.Cut(version, "+"); strings.Trim(number, "0123456789.") != "" {
		return ""
	}
	for _, cuda := range compat.TorchFor(version, capabilities(s)...) {
		if runs, known := compat.DriverRuns(driverVersion(s), cuda); known && runs {
			return cuda
		}
	}
	return ""
}

// capabilities are those of the NVIDIA devices here.
func capabilities(s hostinfo.Site) (all []gpu.Capability) {
	for _, d := range nvidiaDevices(s) {
		if d.Compute != nil {
			all = append(all, *d.Compute)
		}
	}
	return all
}

// olderTorch is the command that installs the newest PyTorch that this driver runs; "" where there is none.
func olderTorch(s hostinfo.Site, p hostinfo.Python) string {
	release, cuda := compat.TorchUpTo(driverVersion(s), capabilities(s)...)
	if release == "" {
		return ""
	}
	return pipInstall(p, fmt.Sprintf("--force-reinstall 'torch==%s.*' -i https://download.pytorch.org/whl/cu%s", release, strings.ReplaceAll(cuda, ".", "")))
}

// installTorch is the command that installs another build of the same PyTorch.
func installTorch(p hostinfo.Python, version, cuda string) string {
	number, _, _ := strings.Cut(version, "+")
	return pipInstall(p, fmt.Sprintf("--force-reinstall torch==%s -i https://download.pytorch.org/whl/cu%s", number, strings.ReplaceAll(cuda, ".", "")))
}

func torchBuild() Check {
	page := Page{
		Code: "torch-build", Title: "PyTorch was built for something else than this machine's GPUs",
		Text: "PyTorch is built for one kind of device: NVIDIA (CUDA), AMD (ROCm), or none (CPU). A build for another kind imports without a word, `torch.cuda.is_available()` is `False`, and programs work on the CPU. On Linux x86_64 PyPI has a CUDA build; `torch` comes as a CPU build when it was installed from PyTorch's `cpu` index, by conda without a GPU in sight, or on another processor.\n\n" +
			"Install the build for this machine, from <https://pytorch.org/get-started/locally/>. `python -c 'import torch; print(torch.version.cuda, torch.version.hip)'` says what a build is for.",
		From: []string{"https://pytorch.org/get-started/locally/", "pytorch/pytorch: torch/version.py, torch/cuda/__init__.py"},
	}
	return Check{Page: page, Look: withDevices(page.Code, "every PyTorch is built for the GPUs here", torchNames(), func(s hostinfo.Site, p hostinfo.Python) []Finding {
		t, found := torchOf(p)
		nvidia, amd := hasVendor(s, gpu.NVIDIA), hasVendor(s, gpu.AMD)
		if nvidia {
			// On a machine with NVIDIA cards, the processor's graphics are not meant.
			amd = slices.ContainsFunc(s.Machine.Found.Devices, ownMemory)
		}

		if !found || !nvidia && !amd {
			return nil
		}
		if !t.known {
			return []Finding{{Severity: Unknown, Seen: "PyTorch " + t.version + " does not say what it was built for (no torch/version.py)"}}
		}

		var built string
		switch {
		case t.cuda == "" && t.hip == "":
			built = "for the CPU alone"
			if strings.HasSuffix(t.version, "+xpu") {
				built = "for Intel's devices"
			}
		case t.cuda == "" && !amd:
			built = "for AMD's ROCm " + t.hip
		case t.hip == "" && !nvidia:
			built = "for NVIDIA's CUDA " + t.cuda
		default:
			return nil
		}

		do := "install a build for this machine: https://pytorch.org/get-started/locally/"
		if cuda := torchWheel(s, t.version); nvidia && cuda != "" && !isFromConda(p, "pytorch") {
			do = installTorch(p, t.version, cuda)
		}

		severity := Warning
		if !nvidia && !slices.ContainsFunc(s.Machine.Found.Devices, ownMemory) {
			severity = Info
		}

		return []Finding{{Severity: severity, Seen: "PyTorch " + t.version + " is built " + built, Why: "torch.cuda.is_available() is False with it, and programs work on the CPU", Do: do}}
	})}
}

// ownMemory distinguishes AMD cards from the graphics of AMD's processors, which use a small part of the main memory
// and are rarely used for computing.
func ownMemory(d gpu.Device) bool {
	return d.Vendor == gpu.AMD && d.MemoryTotal != nil && *d.MemoryTotal >= 6*gpu.GiB
}

func torchDriver() Check {
	page := Page{
		Code: "torch-driver", Title: "The NVIDIA driver is too old for PyTorch's CUDA",
		Text: "A PyTorch build brings its own CUDA libraries, and they need a driver that is new enough: 525 or newer for CUDA 12, 580 or newer for CUDA 13. What counts is the floor of CUDA's major version and not the driver that the toolkit of the same minor version came with. With an older driver `torch.cuda.is_available()` is `False`, with a warning that the driver is too old.\n\n" +
			"Update the driver, or install a build of PyTorch for an older CUDA. On data centre cards NVIDIA's `cuda-compat` package is a third way.",
		From: []string{cudaMinor, cudaNotes, torchMatrix},
	}
	return Check{Page: page, Look: withDevices(page.Code, "the driver is new enough for every PyTorch", torchNames(), func(s hostinfo.Site, p hostinfo.Python) []Finding {
		t, found := torchOf(p)
		if !found || t.cuda == "" {
			return nil
		}
		return driverFinding(s, "PyTorch "+t.version, t.cuda, func() string {
			switch cuda := torchWheel(s, t.version); {
			case !t.wheel:
				return ""
			case cuda == "":
				return olderTorch(s, p)
			default:
				return installTorch(p, t.version, cuda)
			}
		})
	})}
}

// driverFinding compares the driver with the CUDA that a package was built for; other is a second remedy, "" for none.
func driverFinding(s hostinfo.Site, what, cuda string, other func() string) []Finding {
	if !hasVendor(s, gpu.NVIDIA) {
		return nil
	}

	driver := driverVersion(s)
	floor, _, known := compat.DriverFor(cuda)
	if driver == "" || !known {
		return []Finding{{Severity: Unknown, Seen: fmt.Sprintf("%s is built for CUDA %s, and it cannot be told whether the driver is new enough (driver %s)", what, cuda, orUnknown(driver))}}
	}
	if compat.Compare(driver, floor) >= 0 {
		return nil
	}

	do, second := "install NVIDIA driver "+floor+" or newer", other()
	switch {
	case isTooNewForGPUs(s, cuda):
		do = cmp.Or(second, "install a release for an older CUDA: CUDA "+cuda+" has no code for the GPUs here, with any driver")
	case second != "":
		do += ", or: " + second
	}

	return []Finding{{Severity: Error, Seen: fmt.Sprintf("%s is built for CUDA %s, which needs driver %s or newer; this machine has %s", what, cuda, floor, driver),
		Why: "it cannot use any GPU with this driver", Do: do}}
}

// isTooNewForGPUs reports whether a CUDA is too new for every NVIDIA device here, so that a newer driver does not help.
func isTooNewForGPUs(s hostinfo.Site, cuda string) bool {
	devices := nvidiaDevices(s)
	return len(devices) > 0 && !slices.ContainsFunc(devices, func(d gpu.Device) bool { return d.Compute == nil || !isDroppedByCUDA(*d.Compute, cuda) })
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func torchCards() Check {
	page := Page{
		Code: "torch-cards", Title: "PyTorch has no code for a GPU of this machine",
		Text: "A PyTorch build carries compiled code for some compute capabilities only. The wheels for CUDA 13 begin at 7.5 (Turing): cards of the Maxwell, Pascal and Volta generations need a wheel for CUDA 12.6. Blackwell cards (10.0, 12.0) need a wheel for CUDA 12.8 or newer. On a card without code the first operation fails with \"no kernel image is available for execution on the device\"; neither the driver nor `torch.cuda.is_available()` shows it.\n\n" +
			"Code for X.y runs on cards X.z with z not smaller than y, and never on cards with another X. Install the wheel that has code for the card, or hide the card from the program.",
		From: []string{torchMatrix, "pytorch/pytorch: torch/cuda/__init__.py (_check_capability)", "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#binary-compatibility"},
	}
	return Check{Page: page, Look: withDevices(page.Code, "every PyTorch has code for the GPUs here", torchNames(), func(s hostinfo.Site, p hostinfo.Python) []Finding {
		t, found := torchOf(p)
		if !found || t.cuda == "" {
			return nil
		}

		code, known := compat.TorchCode(t.version, t.cuda)
		known = known && t.wheel
		fails := func(c gpu.Capability) bool {
			if known {
				return !code.RunsOn(c)
			}
			return isDroppedByCUDA(c, t.cuda)
		}

		carries := "CUDA " + t.cuda + " cannot make code for it"
		if known {
			carries = "its wheel for CUDA " + t.cuda + " has code for " + code.String()
		}

		return cardFindings(s, "PyTorch "+t.version, carries, fails, func() string {
			if cuda := torchWheel(s, t.version); cuda != "" && t.wheel {
				return installTorch(p, t.version, cuda)
			}
			return "install a build of PyTorch for these cards: https://pytorch.org/get-started/previous-versions/"
		})
	})}
}

// isDroppedByCUDA reports whether a CUDA no longer compiles for a card.
func isDroppedByCUDA(c gpu.Capability, cuda string) bool {
	h, known := compat.HardwareOf(c)
	major, ok := compat.Major(cuda)
	return known && ok && h.LastCUDA != 0 && major > h.LastCUDA
}

// cardFindings reports the cards, of those that a program sees, for which fails is true. If other cards remain it is a
// warning: machines often have a small old card for the display.
func cardFindings(s hostinfo.Site, what, carries string, fails func(gpu.Capability) bool, do func() string) []Finding {
	var bad []string
	good := false
	for _, d := range nvidiaDevices(s) {
		switch {
		case d.Compute == nil:
		case fails(*d.Compute):
			name := fmt.Sprintf("GPU %d (%s, compute capability %s", d.Index, gpu.ModelName(d.Name), d.Compute)
			if h, ok := compat.HardwareOf(*d.Compute); ok {
				name += ", " + h.Architecture
			}
			bad = append(bad, name+")")
		default:
			good = true
		}
	}

	if len(bad) == 0 {
		return nil
	}

	f := Finding{Severity: Error, Seen: fmt.Sprintf("%s does not run on %s: %s", what, strings.Join(bad, ", "), carries), Why: "the first operation fails with “no kernel image is available for execution on the device”", Do: do()}
	if good {
		f.Severity = Warning
		f.Why = "a program that is given this device fails at its first operation"
	}

	return []Finding{f}
}

func torchCompanions() Check {
	page := Page{
		Code: "torch-companions", Title: "torchvision or torchaudio is built for another CUDA than PyTorch",
		Text: "torchvision and torchaudio hold compiled code of their own that must be built for the same CUDA major version as PyTorch. torchvision refuses the import (\"Detected that PyTorch and torchvision were compiled with different CUDA major versions\"); a CPU build beside a CUDA build of PyTorch lacks its operators for GPUs.\n\n" +
			"Install the three together, from one index.",
		From: []string{"pytorch/vision: torchvision/extension.py (_check_cuda_version)", "https://pytorch.org/get-started/previous-versions/"},
	}
	return Check{Page: page, Look: inPythons(page.Code, "torchvision and torchaudio are built as PyTorch is", []string{"torchvision", "torchaudio"}, func(_ hostinfo.Site, p hostinfo.Python) []Finding {
		t, found := torchOf(p)
		if !found || t.cuda == "" || isFromConda(p, "pytorch", "libtorch") {
			return nil
		}

		major, _ := compat.Major(t.cuda)
		var bad []Finding
		for _, name := range []string{"torchvision", "torchaudio"} {
			k, _ := findPackage(p, name)
			_, local, ok := strings.Cut(k.Version, "+")
			if !ok || local != "cpu" && !strings.HasPrefix(local, "cu") || strings.HasPrefix(local, fmt.Sprintf("cu%d", major)) {
				continue
			}

			number, _, _ := strings.Cut(k.Version, "+")
			bad = append(bad, Finding{Severity: Warning, Seen: fmt.Sprintf("%s %s is installed with PyTorch %s, which is built for CUDA %s", name, k.Version, t.version, t.cuda),
				Why: "they must be built for the same CUDA: the import fails, or operators for the GPU are missing",
				Do:  pipInstall(p, fmt.Sprintf("--force-reinstall --no-deps %s==%s -i https://download.pytorch.org/whl/cu%s", name, number, strings.ReplaceAll(t.cuda, ".", "")))})
		}

		return bad
	})}
}

func torchMKL() Check {
	page := Page{
		Code: "torch-mkl", Title: "conda's MKL is too new for PyTorch",
		Text: "The builds of PyTorch of the channel `pytorch` load MKL from the environment, and ask for any version of it. MKL 2024.1 lost a function that those before 2.5 were linked with: `import torch` fails with \"undefined symbol: iJIT_NotifyEvent\", and nothing else is wrong. PyTorch's wheels have their MKL inside, and conda-forge's builds ask for the one they were made with.\n\n" +
			"Install MKL 2024.0 or older beside them, and write `mkl<2024.1` into the environment file.",
		From: []string{"pytorch/pytorch issue 123097", "pytorch/builder: conda/pytorch-nightly/meta.yaml"},
	}
	return Check{Page: page, Look: inPythons(page.Code, "every PyTorch of conda can load its MKL", []string{"pytorch"}, func(_ hostinfo.Site, p hostinfo.Python) []Finding {
		ofConda := func(name string) hostinfo.Package {
			i := slices.IndexFunc(p.Packages, func(k hostinfo.Package) bool { return k.From == "conda" && k.Name == name })
			if i < 0 {
				return hostinfo.Package{}
			}
			return p.Packages[i]
		}

		torch, mkl := ofConda("pytorch"), ofConda("mkl")

		// Conda-forge writes py310 or cuda126_….
		isOfChannel := strings.HasPrefix(torch.Build, "py3.")
		if !isOfChannel || compat.Compare(torch.Version, "2.5") >= 0 || compat.Compare(mkl.Version, "2024.1") < 0 {
			return nil
		}

		return []Finding{{Severity: Error, Seen: fmt.Sprintf("mkl %s is installed with PyTorch %s, which was linked with one before 2024.1", mkl.Version, torch.Version),
			Why: "import torch fails: undefined symbol: iJIT_NotifyEvent", Do: "conda install -p " + shellquote.Sh(p.Prefix) + " 'mkl<2024.1'"}}
	})}
}
