package lint

import (
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

// condaMaskInFile is the rule conda-variable-stays-empty for the variables of an environment file.
func condaMaskInFile(f File) []Finding {
	var all []Finding
	for _, s := range f.Steps {
		if f.Kind != Conda || s.Do != Set || !slices.Contains(masks(), s.Name) {
			continue
		}
		all = append(all, Finding{Finding: check.Finding{Code: "conda-variable-stays-empty", Severity: check.Warning,
			Seen: s.Name + " is a variable of the conda environment", Why: "after conda deactivate the shell has it as an empty string, which hides every GPU",
			Do: "set it where a program is started"}, At: s.At})
	}
	return all
}

func onnxTwice() Rule {
	return Rule{
		Page: check.Page{
			Code:  "onnxruntime-twice",
			Title: "onnxruntime and onnxruntime-gpu are both installed",
			Text: "Both packages write the same folder, `onnxruntime`, and the one that is installed last wins. Installed in the wrong order, or after an update of one of them, the CUDA provider is gone and everything runs on the CPU, without an error.\n\n" +
				"Install one: `onnxruntime-gpu` has the CPU provider too. To mend an environment, uninstall both and install the one.",
			From: []string{"https://onnxruntime.ai/docs/install/", "microsoft/onnxruntime: docs/python/README.rst"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"environment.yml", "name: serve\ndependencies:\n  - python=3.12\n  - onnxruntime\n  - pip:\n      - onnxruntime-gpu==1.20.1\n"},
			{"channel.environment.yml", "name: serve\ndependencies:\n  - nvidia::onnxruntime-gpu=1.18\n  - pip:\n      - onnxruntime>=1.18\n"},
			{"Dockerfile", "FROM python:3.12\nRUN pip install onnxruntime numpy\nRUN pip install --no-cache-dir 'onnxruntime-gpu[cuda,cudnn]>=1.20'\n"},
			{"setup.sh", "#!/bin/bash\nuv pip install onnxruntime onnxruntime_gpu\n"},
		},
		Good: []Example{
			{"environment.yml", "name: serve\ndependencies:\n  - python=3.12\n  - pip:\n      - onnxruntime-gpu==1.20.1\n      - onnxruntime-tools\n"},
			{"Dockerfile", "FROM python:3.12 AS cpu\nRUN pip install onnxruntime\nFROM python:3.12\nRUN pip install onnxruntime-gpu\n"},
			{"setup.sh", "#!/bin/bash\nif nvidia-smi; then\n  pip install onnxruntime-gpu\nelse\n  pip install onnxruntime\nfi\n"},
			{"mend.sh", "#!/bin/bash\npip install -r requirements.txt onnxruntime\npip uninstall -y onnxruntime\npip install onnxruntime-gpu\n"},
			{"two.sh", "#!/bin/bash\ncpu/bin/pip install onnxruntime\ngpu/bin/pip install onnxruntime-gpu\n"},
		},
		Look: lookONNX,
	}
}

func cudaTwice() Rule {
	const code = "cudatoolkit-beside-pytorch"
	return Rule{
		Page: check.Page{
			Code:  code,
			Title: "cudatoolkit is installed beside a PyTorch that brings CUDA 12",
			Text: "PyTorch's wheels since 2.1, `pytorch-cuda=12`, and conda's `pytorch` since 2.6 bring the CUDA libraries that they were built for, 12 or newer. `cudatoolkit`, whose last version is 11.8, is a second CUDA: PyTorch does not use it, and another program of the environment may load one by name and the other by path.\n\n" +
				"Leave `cudatoolkit` out, or take a PyTorch for CUDA 11.8 (a version that ends in `+cu118`).",
			From: []string{"https://pytorch.org/get-started/previous-versions/", "https://anaconda.org/conda-forge/cudatoolkit", "conda-forge/conda-forge-pinning-feedstock issue 6917", "conda-forge/conda-forge-pinning-feedstock issue 7431"},
		},
		Severity: check.Warning,
		Bad: []Example{
			{"environment.yml", "name: train\ndependencies:\n  - python=3.11\n  - cudatoolkit=11.8\n  - pip:\n      - torch==2.4.0\n"},
			{"channel.environment.yml", "name: train\ndependencies:\n  - conda-forge::cudatoolkit=11.8\n  - pytorch\n  - pytorch-cuda=12.1\n"},
			{"newer.environment.yml", "name: train\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.12\n  - pytorch=2.8\n  - cudatoolkit=11.8\n"},
		},
		Good: []Example{
			{"environment.yml", "name: train\ndependencies:\n  - cudatoolkit=11.8\n  - pip:\n      - torch==2.0.1\n      - torchmetrics\n"},
			{"cu118.environment.yml", "name: train\ndependencies:\n  - cudatoolkit=11.8\n  - pytorch=2.1\n  - pip:\n      - torch==2.4.0+cu118\n"},
			{"older.environment.yml", "name: train\ndependencies:\n  - pytorch>=2.1,<2.5\n  - cudatoolkit=11.8\n"},
		},
		Look: func(f File) []Finding {
			var toolkit *Step
			brings := ""
			for i, s := range f.Steps {
				if f.Kind != Conda || s.Do != Setting {
					continue
				}
				text := s.Value.Text
				if _, name, ok := strings.Cut(text, "::"); ok { // after its channel
					text = name
				}
				switch pip := strings.Contains(s.Name, ".pip"); {
				case strings.Contains(text, "cu118"):
					return nil
				case !pip && normal(text) == "cudatoolkit":
					toolkit = &f.Steps[i]
				case pip && normal(text) == "torch" && !oldTorch().MatchString(text), !pip && (cuda12().MatchString(text) || newPytorch().MatchString(text)):
					brings = text
				}
			}
			if toolkit == nil || brings == "" {
				return nil
			}
			return []Finding{{Finding: check.Finding{Code: code, Severity: check.Warning, Seen: toolkit.Value.Text + " is installed beside " + brings + ", which brings a newer CUDA",
				Why: "PyTorch does not use cudatoolkit, and the environment has two versions of the same libraries", Do: "leave cudatoolkit out"}, At: toolkit.At}}
		},
	}
}

func mklTooNew() Rule {
	const code = "mkl-beside-pytorch"
	return Rule{
		Page: check.Page{
			Code:  code,
			Title: "An older PyTorch of conda may get an MKL that it cannot load",
			Text: "The builds of PyTorch before 2.5 of the channel `pytorch` ask for any MKL, and conda takes the newest. From 2024.1 on it lacks a function that they need: the environment is made without a complaint, and `import torch` fails with \"undefined symbol: iJIT_NotifyEvent\".\n\n" +
				"Write `mkl<2024.1` beside it. PyTorch's wheels and conda-forge's builds have no such limit.",
			From: []string{"pytorch/pytorch issue 123097", "pytorch/builder: conda/pytorch-nightly/meta.yaml"},
		},
		Severity: check.Warning,
		Bad: []Example{
			{"environment.yml", "name: train\nchannels: [pytorch, nvidia, conda-forge]\ndependencies:\n  - python=3.10\n  - pytorch::pytorch=2.0.1\n  - pytorch::pytorch-cuda=11.8\n"},
			{"newer.environment.yml", "name: train\ndependencies:\n  - pytorch==1.13.1\n  - pytorch-cuda=11.7\n  - mkl>=2024.1\n"},
			{"atleast.environment.yml", "name: train\ndependencies:\n  - pytorch==1.13.1\n  - pytorch-cuda=11.7\n  - mkl>=2023.1\n"},
			{"not.environment.yml", "name: train\ndependencies:\n  - pytorch==1.13.1\n  - pytorch-cuda=11.7\n  - mkl!=2023.1.0\n"},
			{"between.environment.yml", "name: train\ndependencies:\n  - pytorch==1.13.1\n  - pytorch-cuda=11.7\n  - mkl>=2022,<2025\n"},
		},
		Good: []Example{
			{"environment.yml", "name: train\ndependencies:\n  - pytorch=2.0.1\n  - pytorch-cuda=11.8\n  - mkl<2024.1\n"},
			{"both.environment.yml", "name: train\ndependencies:\n  - pytorch=2.0.1\n  - pytorch-cuda=11.8\n  - mkl>=2022,<2024\n"},
			{"pinned.environment.yml", "name: train\ndependencies:\n  - pytorch::pytorch=2.3\n  - mkl=2024.0\n"},
			{"later.environment.yml", "name: train\ndependencies:\n  - pytorch=2.5.1\n  - pytorch-cuda=12.4\n"},
			{"forge.environment.yml", "name: train\nchannels: [conda-forge]\ndependencies:\n  - pytorch=2.3\n  - mkl\n"},
		},
		Look: func(f File) []Finding {
			var torch *Step
			isOfChannel := false
			for i, s := range f.Steps {
				if f.Kind != Conda || s.Do != Setting || strings.Contains(s.Name, ".pip") {
					continue
				}
				text := s.Value.Text
				channel, name, hasChannel := strings.Cut(text, "::")
				if hasChannel {
					text = name
				}
				switch normal(text) {
				case "mkl":
					if oldMKL().MatchString(text) {
						return nil
					}
				case "pytorch-cuda", "cpuonly": // the channel pytorch alone has these
					isOfChannel = true
				case "pytorch":
					isOfChannel = isOfChannel || hasChannel && channel == "pytorch"
					if oldPytorch().MatchString(text) {
						torch = &f.Steps[i]
					}
				}
			}
			if torch == nil || !isOfChannel {
				return nil
			}
			return []Finding{{Finding: check.Finding{Code: code, Severity: check.Warning, Seen: torch.Value.Text + " takes any MKL, and cannot load those from 2024.1 on",
				Why: "import torch fails: undefined symbol: iJIT_NotifyEvent", Do: "add mkl<2024.1 to the dependencies"}, At: torch.At}}
		},
	}
}

// oldPytorch are requirements of one PyTorch before 2.5, and oldMKL those that end before MKL 2024.1.
var (
	oldPytorch = pattern(`^pytorch\s*={1,2}\s*(1|2\.[0-4])(\D|$)`)
	oldMKL     = pattern(`^mkl\s*(?:[^|]*,\s*)?(?:(?:<=?|={1,2})?\s*(?:20[01][0-9]|202[0-3]|2024\.0)(?:\D|$)|<\s*2024(?:\.1)?(?:\D|$))`)
)

// oldTorch are requirements of a PyTorch whose wheel has CUDA 11 or older: before 2.1.
var oldTorch = pattern(`(==|<|<=|~=)\s*(0|1|2\.0)(\.|$|\*)`)

// cuda12 are packages that choose CUDA 12.
var cuda12 = pattern(`^(pytorch-cuda|cuda-version)\s*[=>~]+\s*12`)

// newPytorch are requirements of a conda PyTorch that has no build for CUDA 11: conda-forge makes none since 2.6, and the channel pytorch
// ends with 2.5.
var newPytorch = pattern(`^pytorch(-gpu)?\s*(=|==|>=|~=)\s*(2\.([6-9]|[1-9][0-9])|[3-9])(\D|$)`)

var requirement = pattern(`^[A-Za-z0-9][A-Za-z0-9._-]*`)

// normal is the name of a package as indexes compare it
// (https://packaging.python.org/en/latest/specifications/name-normalization/).
func normal(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(requirement().FindString(text)), "_", "-"), ".", "-")
}

func lookONNX(f File) []Finding {
	type where struct{ place, by string }
	has := map[where]map[string]bool{}
	var all []Finding
	install := func(in where, w Word) {
		name := normal(w.Text)
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
		all = append(all, Finding{Finding: check.Finding{Code: "onnxruntime-twice", Severity: check.Error, Seen: "both onnxruntime and onnxruntime-gpu are installed",
			Why: "they write the same folder: which of them Python imports depends on the order, and with the wrong one everything runs on the CPU", Do: "install onnxruntime-gpu alone"}, At: w.At})
		clear(has[in])
	}
	for _, s := range f.Steps {
		in, _, _ := strings.Cut(s.In, ".")
		switch {
		case s.Do == Setting && f.Kind == Conda:
			if _, name, ok := strings.Cut(s.Value.Text, "::"); ok { // after its channel
				s.Value.Text = name
			}
			install(where{}, s.Value)
		case s.Do == Command && !s.Maybe && s.Join != "||":
			p := started(s)
			words, by := installs(p)
			here := where{in, by}
			for _, w := range words {
				install(here, w)
			}
			if words == nil && slices.ContainsFunc(p.args, func(w Word) bool { return w.Text == "uninstall" || w.Text == "remove" }) {
				for _, w := range p.args {
					delete(has[here], normal(w.Text))
				}
			}
		}
	}
	return all
}

// installs returns what a command installs into a Python environment, and the installer, which identifies the
// environment.
func installs(p program) (packages []Word, by string) {
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
	for _, w := range args[1:] { // a value of an option may be among them: no path or address has the name of a package
		if !strings.HasPrefix(w.Text, "-") {
			packages = append(packages, w)
		}
	}
	return packages, by
}
