package lint

import (
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

// condaMaskInFile is the rule conda-variable-stays-empty for the variables of an environment file.
func condaMaskInFile(f File) (all []Finding) {
	for _, s := range f.Steps {
		if f.Kind != Conda || s.Do != Set || !slices.Contains(maskVariables(), s.Name) {
			continue
		}
		all = append(all, Finding{Finding: check.Finding{
			Seen: s.Name + " is a variable of the conda environment", Why: "from conda 25.7 on the shell has it as an empty string after conda deactivate, which hides every GPU",
			Do: "set it where a program is started"}, At: s.At})
	}
	return all
}

func lookCudaTwice(f File) []Finding {
	var toolkit *Step
	brings := ""
	for i, s := range f.Steps {
		if f.Kind != Conda || s.Do != Setting {
			continue
		}
		text := s.Value.Text
		if _, name, ok := strings.Cut(text, "::"); ok {
			// After its channel.
			text = name
		}

		switch pip := strings.Contains(s.Name, ".pip"); {
		case strings.Contains(text, "cu118"), buildOfCUDA11().MatchString(text):
			return nil
		case !pip && normalizePackage(text) == "cudatoolkit":
			toolkit = &f.Steps[i]
		case pip && normalizePackage(text) == "torch" && !oldTorch().MatchString(text), !pip && (cuda12().MatchString(text) || newPytorch().MatchString(text)):
			brings = text
		}
	}

	if toolkit == nil || brings == "" || slices.ContainsFunc(f.Steps, usesToolkit) {
		return nil
	}

	return []Finding{{Finding: check.Finding{Seen: toolkit.Value.Text + " is installed beside " + brings + ", which brings a newer CUDA",
		Why: "PyTorch does not use cudatoolkit, and the environment has two versions of the same libraries", Do: "leave cudatoolkit out"}, At: toolkit.At}}
}

// usesToolkit reports whether an entry of an environment is a library that compiles with what cudatoolkit brings.
func usesToolkit(s Step) bool {
	_, name, hasChannel := strings.Cut(s.Value.Text, "::")
	if !hasChannel {
		name = s.Value.Text
	}
	return s.Do == Setting && hasWord("numba cupy pycuda tensorflow tensorflow-gpu jax jaxlib rapids cudf cuml cugraph faiss-gpu openmm mxnet", normalizePackage(name))
}

// mklChoice is what an environment says about PyTorch and the library that it computes with.
type mklChoice struct {
	torch *Step
	// The package is from the channel pytorch.
	isOfChannel bool
	// An MKL is asked for, of those that an older PyTorch can load; or packages that need one of those.
	isOld bool
	// The file itself says that it gets one of the others.
	isNew bool
}

func lookMKLTooNew(f File) []Finding {
	m := readMKLChoice(f)
	if m.torch == nil || !m.isOfChannel || m.isOld {
		return nil
	}

	found := Finding{Finding: check.Finding{Seen: m.torch.Value.Text + " takes any MKL, and cannot load those from 2024.1 on",
		Why: "where conda finds no older one that fits, import torch fails: undefined symbol: iJIT_NotifyEvent", Do: "add mkl<2024.1 to the dependencies"}, At: m.torch.At}
	if m.isNew {
		// The file itself says which one comes.
		found.Why = "import torch fails: undefined symbol: iJIT_NotifyEvent"
	}

	return []Finding{found}
}

func readMKLChoice(f File) (m mklChoice) {
	forge, isPython38, hasNumbers := false, false, false
	hasChannels, isListed := false, false
	for i, s := range f.Steps {
		if f.Kind != Conda || s.Do != Setting || strings.Contains(s.Name, ".pip") {
			continue
		}
		if strings.HasPrefix(s.Name, "channels") {
			forge = forge || s.Name == "channels[0]" && s.Value.Text == "conda-forge"
			hasChannels, isListed = true, isListed || strings.Contains(s.Value.Text, "pytorch") || s.Value.Text == "defaults"
			continue
		}

		text := s.Value.Text
		channel, name, hasChannel := strings.Cut(text, "::")
		if hasChannel {
			text = name
		}

		switch normalizePackage(text) {
		case "mkl":
			m.isOld = m.isOld || oldMKL().MatchString(text)
			m.isNew = m.isNew || newMKL().MatchString(text)
		case "python":
			// The packages that are made for it hold an older MKL.
			m.isOld = m.isOld || oldPython().MatchString(text)
			isPython38 = isPython38 || python38().MatchString(text)
		case "numpy", "scipy":
			// So do those of before 2024; without a number conda-forge's newest asks for the newest.
			m.isOld = m.isOld || oldNumbers().MatchString(text)
			hasNumbers = true
			isForge := hasChannel && channel == "conda-forge" || !hasChannel && forge
			m.isNew = m.isNew || isForge && normalizePackage(text) == strings.TrimSpace(text)
		case "pytorch-cuda", "cpuonly":
			// The channel pytorch alone has these.
			m.isOfChannel = true
		case "pytorch":
			m.isOfChannel = m.isOfChannel || hasChannel && channel == "pytorch"
			if oldPytorch().MatchString(text) {
				m.torch = &f.Steps[i]
			}
		}
	}

	// Without the channel none of these is found, and nothing is installed.
	m.isOfChannel = m.isOfChannel && (isListed || !hasChannels || m.torch != nil && strings.Contains(m.torch.Value.Text, "::"))

	// The last NumPy and SciPy for it are of before 2024; those of the channel defaults hold their MKL.
	m.isOld = m.isOld || isPython38 && hasNumbers && !forge

	return m
}

// oldPython are requirements of a Python before 3.8, python38 of that one, oldPytorch of one PyTorch before 2.1, oldMKL those that end before MKL 2024.1,
// newMKL those that begin with it, and oldNumbers one NumPy before 1.26.4 or one SciPy before 1.12, which are of before 2024.
var (
	oldPython  = lazyRegexp(`^python\s*={1,2}\s*(2|3\.[0-7])(\D|$)`)
	python38   = lazyRegexp(`^python\s*={1,2}\s*3\.8(\D|$)`)
	oldPytorch = lazyRegexp(`^pytorch\s*={1,2}\s*(1|2\.0)(\D|$)`)
	newMKL     = lazyRegexp(`^mkl\s*(?:={1,2}|>=?|~=)\s*(?:2024\.[1-9]|202[5-9]|20[3-9][0-9])`)
	oldNumbers = lazyRegexp(`^(?:numpy\s*={1,2}\s*(?:0|1\.(?:[0-9]|1[0-9]|2[0-5])|1\.26\.[0-3])|scipy\s*={1,2}\s*(?:0|1\.(?:[0-9]|1[01])))(?:[^0-9]|$)`)
	oldMKL     = lazyRegexp(`^mkl\s*(?:[^|]*,\s*)?(?:(?:<=?|={1,2})?\s*(?:20[01][0-9]|202[0-3]|2024\.0)(?:\D|$)|<\s*2024(?:\.1)?(?:\D|$))`)
)

// oldTorch are requirements of a PyTorch whose wheel has CUDA 11 or older: before 2.1.
var oldTorch = lazyRegexp(`(==|<|<=|~=)\s*(0|1|2\.0)(\.|$|\*)`)

// buildOfCUDA11 is a PyTorch of conda-forge that was built with what cudatoolkit 11 brings.
var buildOfCUDA11 = lazyRegexp(`^(lib)?(py)?torch\s*=.*cuda11`)

// cuda12 are packages that choose CUDA 12.
var cuda12 = lazyRegexp(`^(pytorch-cuda|cuda-version)\s*[=>~]+\s*12`)

// newPytorch are requirements of a conda PyTorch that has no build for CUDA 11: conda-forge makes none since 2.6, and the channel pytorch
// ends with 2.5.
var newPytorch = lazyRegexp(`^pytorch(-gpu)?\s*(=|==|>=|~=)\s*(2\.([6-9]|[1-9][0-9])|[3-9])(\D|$)`)

var requirement = lazyRegexp(`^[A-Za-z0-9][A-Za-z0-9._-]*`)

// normalizePackage is the name of a package as indexes compare it
// (https://packaging.python.org/en/latest/specifications/name-normalization/).
func normalizePackage(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(requirement().FindString(text)), "_", "-"), ".", "-")
}

func lookONNX(f File) (all []Finding) {
	type where struct {
		place, by string
		// The block of a page: each is one of several ways.
		block int
	}

	has := map[where]map[string]bool{}
	install := func(in where, w Word) {
		name := normalizePackage(w.Text)
		if name != "onnxruntime" && name != "onnxruntime-gpu" || !w.Known {
			return
		}

		if has[in] == nil {
			has[in] = map[string]bool{}
		}

		has[in][name] = true
		if len(has[in]) < 2 {
			return
		}

		all = append(all, Finding{Finding: check.Finding{Seen: "both onnxruntime and onnxruntime-gpu are installed",
			Why: "they write the same folder: which of them Python imports depends on the order, and with the wrong one everything runs on the CPU", Do: "install onnxruntime-gpu alone"}, At: w.At})

		clear(has[in])
	}

	for _, s := range f.Steps {
		in, _, _ := strings.Cut(s.In, ".")
		switch {
		case s.Do == Setting && f.Kind == Conda:
			if _, name, ok := strings.Cut(s.Value.Text, "::"); ok {
				// After its channel.
				s.Value.Text = name
			}
			install(where{}, s.Value)
		case s.Do == Command && !s.Maybe && s.Join != "||":
			p := programOf(s)
			words, by := pipPackages(p)
			here := where{place: in, by: by}
			if f.Kind == Markdown {
				here.block = s.Shell
			}

			for _, w := range words {
				install(here, w)
			}

			if words == nil && slices.ContainsFunc(p.args, func(w Word) bool { return w.Text == "uninstall" || w.Text == "remove" }) {
				for _, w := range p.args {
					delete(has[here], normalizePackage(w.Text))
				}
			}
		}
	}

	return all
}

// pipPackages returns what a command installs into a Python environment, and the installer, which identifies the
// environment.
func pipPackages(p program) (packages []Word, by string) {
	args := p.args
	if len(p.Words) > 0 {
		by = path.Dir(p.Words[0].Text)
	}

	switch {
	case isPython(p.name) && len(args) > 2 && args[0].Text == "-m" && args[1].Text == "pip":
		args = args[2:]
	case p.name == "uv" && len(args) > 1 && args[0].Text == "pip":
		args = args[1:]
	case strings.HasPrefix(p.name, "pip") && isName(p.name):
	default:
		return nil, by
	}

	if len(args) == 0 || args[0].Text != "install" {
		return nil, by
	}

	packages = []Word{}
	for _, w := range args[1:] {
		// A value of an option may be among them: no path or address has the name of a package.
		if !strings.HasPrefix(w.Text, "-") {
			packages = append(packages, w)
		}
	}

	return packages, by
}
