package lint

import (
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

// oldNameRules are about names that today's libraries and GPUs have left behind.
func oldNameRules() []Rule { return []Rule{oldPyTorchName(), oldProfiler(), cudnnOff()} }

func oldPyTorchName() Rule {
	const code = "pytorch-old-name"
	return Rule{
		Page: check.Page{
			Code:  code,
			Title: "An old name of PyTorch's mixed precision",
			Text: "`torch.cuda.amp.autocast(...)` and `GradScaler` are `torch.amp.autocast(\"cuda\", ...)` and `torch.amp.GradScaler(\"cuda\", ...)` since PyTorch 2.3 and 2.4, which print a FutureWarning at each call of the old ones. `custom_fwd` and `custom_bwd` likewise need `device_type=\"cuda\"`.\n\n" +
				"A program that also serves older versions of PyTorch keeps the old names, beside the new ones: this finding is not made then.",
			From: []string{"https://docs.pytorch.org/docs/stable/amp.html", "pytorch/pytorch: torch/cuda/amp/autocast_mode.py"},
		},
		Severity: check.Info,
		Bad:      []Example{{"train.py", "import torch\nfrom torch.cuda.amp import autocast\nmodel = torch.nn.Linear(2, 2).cuda()\nwith autocast():\n    model(torch.ones(2).cuda())\n"}},
		Good: []Example{
			{"train.py", "import torch\nmodel = torch.nn.Linear(2, 2).cuda()\nwith torch.amp.autocast(\"cuda\"):\n    model(torch.ones(2).cuda())\n"},
			{"try.py", "import torch\ntry:\n    from torch.amp import GradScaler\nexcept ImportError:\n    from torch.cuda.amp import GradScaler\nscaler = GradScaler()\n"},
			{"both.py", "import torch\nif hasattr(torch.amp, \"GradScaler\"):\n    scaler = torch.amp.GradScaler(\"cuda\")\nelse:\n    scaler = torch.cuda.amp.GradScaler()\n"},
		},
		Look: func(f File) []Finding {
			old := func(s Step) bool {
				return s.Do == Call && !s.Maybe && among("torch.cuda.amp.autocast torch.cuda.amp.GradScaler torch.cuda.amp.custom_fwd torch.cuda.amp.custom_bwd", s.Name)
			}
			isNew := func(s Step) bool { return strings.HasPrefix(s.Name, "torch.amp") && (s.Do == Call || s.Do == Import) }
			i := slices.IndexFunc(f.Steps, old)
			if i < 0 || slices.ContainsFunc(f.Steps, isNew) {
				return nil
			}
			name := f.Steps[i].Name
			return []Finding{{Finding: check.Finding{Code: code, Severity: check.Info, Seen: name + " is an old name",
				Why: "PyTorch 2.4 and later print a FutureWarning at each call", Do: "from PyTorch 2.4 on write torch.amp." + strings.TrimPrefix(name, "torch.cuda.amp.") + ", with \"cuda\" as the type of device"}, At: f.Steps[i].At}}
		},
	}
}

func oldProfiler() Rule {
	const code = "nvprof-new-gpu"
	return Rule{
		Page: check.Page{
			Code:  code,
			Title: "nvprof sees nothing on today's GPUs",
			Text: "nvprof supports no GPU of compute capability 8.0 or higher (A100, RTX 30 and later): it prints a warning, runs the program and writes a profile without its kernels.\n\n" +
				"Nsight Systems (`nsys profile`) shows when what ran, Nsight Compute (`ncu`) why a kernel takes as long as it does.",
			From: []string{"https://docs.nvidia.com/cuda/archive/12.9.1/profiler-users-guide/index.html"},
		},
		Severity: check.Info,
		Bad:      []Example{{"profile.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0 nvprof -o out.nvvp python train.py\n"}},
		Good:     []Example{{"profile.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0 nsys profile -o out python train.py\n"}},
		Look: func(f File) (all []Finding) {
			for _, s := range f.Steps {
				if s.Do == Command && len(s.Words) > 1 && path.Base(s.Words[0].Text) == "nvprof" && !among("--version --help -h -V", s.Words[1].Text) {
					all = append(all, Finding{Finding: check.Finding{Code: code, Severity: check.Info, Seen: "nvprof supports no GPU of compute capability 8.0 or higher",
						Why: "on an A100, an RTX 30 and later its profile has no kernels", Do: "use nsys profile, or ncu for single kernels"}, At: s.At})
				}
			}
			return all
		},
	}
}

func cudnnOff() Rule {
	const code = "cudnn-is-no-switch"
	return Rule{
		Page: check.Page{
			Code:  code,
			Title: "cuDNN is switched off, and the GPU is not",
			Text: "`torch.backends.cudnn.enabled = False` makes PyTorch compute convolutions and recurrent layers by other kernels on the same GPU, slower. It neither hides a GPU nor moves anything to the CPU.\n\n" +
				"To run on the CPU, hide the devices: `CUDA_VISIBLE_DEVICES=-1`, or `gpuard run --cpu -- python train.py`. To look for a fault of cuDNN the line is right; remove it afterwards.",
			From: []string{"https://docs.pytorch.org/docs/stable/backends.html"},
		},
		Severity: check.Info,
		Bad:      []Example{{"cpu.py", "import torch\ntorch.backends.cudnn.enabled = False\nmodel = torch.nn.Linear(2, 2).cuda()\n"}},
		Good:     []Example{{"fast.py", "import torch\ntorch.backends.cudnn.enabled = True\ntorch.backends.cudnn.benchmark = True\nmodel = torch.nn.Linear(2, 2).cuda()\n"}},
		Look: func(f File) (all []Finding) {
			for _, s := range f.Steps {
				if s.Do == Override && !s.Maybe && s.Name == "torch.backends.cudnn.enabled" && s.Value.Known && s.Value.Text == "False" {
					all = append(all, Finding{Finding: check.Finding{Code: code, Severity: check.Info, Seen: "cuDNN is switched off",
						Why: "the GPU computes all the same, convolutions more slowly", Do: "to run on the CPU, hide the devices: CUDA_VISIBLE_DEVICES=-1, or gpuard run --cpu"}, At: s.At})
				}
			}
			return all
		},
	}
}
