package lint

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/compat"
)

// nameRules are about the names of variables.
func nameRules() []Rule {
	return []Rule{misspeltRule(), oldNameRule(), debugRule()}
}

// ofGPUs reports whether a name may be a variable of a GPU library. Shell scripts set many others.
func ofGPUs(name string) bool {
	vendor, _, more := strings.Cut(name, "_")
	return more && slices.Contains([]string{"CUDA", "NVIDIA", "NCCL", "TORCH", "PYTORCH", "XLA", "JAX", "TF", "HIP", "ROCR", "AMD", "GPU", "ZE", "ONEAPI", "SYCL", "HCQ", "ASCEND"}, vendor)
}

func misspeltRule() Rule {
	r := Rule{
		Page: check.Page{
			Code: "variable-misspelt", Title: "A variable that chooses devices, misspelt",
			Text: "No program reads a variable of this name, so nothing is chosen and the program sees every GPU. It differs by a letter or two from one that chooses devices.",
			From: []string{cudaGuide},
		},
		Severity: check.Error,
		Bad:      []Example{{"train.sh", "export CUDA_VISIBLE_DEVICE=0\npython train.py\n"}},
		Good:     []Example{{"train.sh", "export CUDA_VISIBLE_DEVICES=0\npython train.py\n"}, {"train.sh", "OLD_CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES\nexport CUDA_VISIBLE_DEVICES=0\npython train.py\nexport CUDA_VISIBLE_DEVICES=$OLD_CUDA_VISIBLE_DEVICES\n"}},
	}
	r.Look = func(file File) (all []Finding) {
		eachNamed(file, func(s Step) {
			if !ofGPUs(s.Name) {
				return
			}
			if meant, ok := compat.Misspelt(s.Name); ok {
				f := valued(r, r.Severity, s, s.Name+" is no variable that anything reads", "it looks like "+meant.Name+": "+meant.What, "write "+meant.Name, "")
				f.At = s.At
				all = append(all, f)
			}
		})
		return all
	}
	return r
}

func oldNameRule() Rule {
	r := Rule{
		Page: check.Page{
			Code: "variable-old-name", Title: "The old name of a variable",
			Text: "The library reads another name now. Some old names still work with a warning, some are not read any more. Where a script has to serve old versions too, set both names; this finding is not made then.",
			From: []string{"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html", "https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html", "https://docs.jax.dev/en/latest/gpu_memory_allocation.html"},
		},
		Severity: check.Info,
		Bad:      []Example{{"train.sh", "export NCCL_BLOCKING_WAIT=1\ntorchrun --nproc-per-node 2 train.py\n"}, {"run.sh", "export SYCL_DEVICE_FILTER=level_zero:gpu:0\n./solver\n"}},
		Good:     []Example{{"train.sh", "export TORCH_NCCL_BLOCKING_WAIT=1\ntorchrun --nproc-per-node 2 train.py\n"}, {"train.sh", "export NCCL_BLOCKING_WAIT=1\nexport TORCH_NCCL_BLOCKING_WAIT=1\ntorchrun --nproc-per-node 2 train.py\n"}},
	}
	r.Look = func(file File) (all []Finding) {
		has := map[string]bool{}
		eachNamed(file, func(s Step) { has[s.Name] = true })
		eachNamed(file, func(s Step) {
			if !ofGPUs(s.Name) {
				return
			}
			old, is := compat.Deprecated(s.Name, s.Value.Text)
			if !is || old.Instead != "" && has[old.Instead] {
				return
			}
			severity := check.Info
			if old.Warns {
				severity = check.Warning
			}
			seen, do := s.Name+" is an old name", "leave it out"
			if old.Kind == compat.Gone {
				seen = s.Name + " is not read any more"
			}
			if old.Since != "" {
				seen += " since " + old.Since
			}
			if old.Instead != "" {
				do = "write " + old.Instead
			}
			f := valued(r, severity, s, seen, old.What, do, "")
			f.At = s.At
			all = append(all, f)
		})
		return all
	}
	return r
}

func debugRule() Rule {
	r := Rule{
		Page: check.Page{
			Code: "variable-debug", Title: "A setting for the search for errors, left on",
			Text: "These settings help to find an error and cost much speed, or safety. NVIDIA asks not to leave those of NCCL in scripts. Where the machine really needs one, such as cards that cannot reach each other, say so with `# gpuard:ignore variable-debug`.",
			From: []string{"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#debugging", cudaGuide},
		},
		Severity: check.Warning,
		Bad:      []Example{{"train.sh", "export CUDA_LAUNCH_BLOCKING=1\npython train.py\n"}, {"train.sh", "export NCCL_P2P_DISABLE=1\ntorchrun --nproc-per-node 2 train.py\n"}},
		Good: []Example{{"train.sh", "export CUDA_LAUNCH_BLOCKING=0\nexport NCCL_DEBUG=WARN\npython train.py\n"},
			{"train.sh", "# the cards of this machine cannot reach each other\nexport NCCL_P2P_DISABLE=1  # gpuard:ignore variable-debug\ntorchrun --nproc-per-node 2 train.py\n"}},
	}
	r.Look = func(file File) (all []Finding) {
		eachSet(file, func(s Step) {
			if !ofGPUs(s.Name) {
				return
			}
			name, debug := compat.DebugOnly(s.Name, s.Value.Text)
			if !debug || !name.Warns {
				return
			}
			f := valued(r, r.Severity, s, fmt.Sprintf("%s is for the search for errors", assigned(s)), name.What, "leave "+s.Name+" out when the error is found", "")
			f.At = s.At
			all = append(all, f)
		})
		return all
	}
	return r
}
