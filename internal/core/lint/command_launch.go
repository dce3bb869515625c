package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/check"
)

func launchRules() []Rule {
	return []Rule{tooManyProcesses(), deepspeedMask(), fixedPort(), rankOwnMask(), deviceBeyondMask(), fractionsOverOne(), condaMask(), condaHook()}
}

func tooManyProcesses() Rule {
	return Rule{
		Page: check.Page{
			Code:  "more-processes-than-gpus",
			Title: "More processes are started than GPUs are visible",
			Text: "Launchers give each process of a machine one GPU by its number: process 3 takes `cuda:3`. When the list of visible devices, or what the batch job asks for, is shorter, the processes beyond it fail with \"invalid device ordinal\", or share a GPU, which NCCL refuses.\n\n" +
				"Start as many processes as there are devices; `torchrun --nproc-per-node=gpu` counts them itself.",
			From: []string{"pytorch/pytorch: torch/distributed/run.py", "NVIDIA/nccl: src/init.cc", "https://slurm.schedmd.com/sbatch.html (--gres)"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"mask.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=4 train.py\n"},
			{"export.sh", "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=2,3\nnohup accelerate launch --num-processes 4 train.py &\n"},
			{"module.sh", "#!/bin/bash\nenv CUDA_VISIBLE_DEVICES=0 python -m torch.distributed.run --nproc-per-node 2 train.py\n"},
			{"slurm.sh", "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:a100:2\nsrun torchrun --nnodes=2 --nproc_per_node=4 train.py\n"},
			{"serve.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0,1 vllm serve model --tensor-parallel-size 4\n"},
			{"names.sh", "#!/bin/bash\nGPUS=0,1\nNPROC=4\nCUDA_VISIBLE_DEVICES=$GPUS torchrun --nproc_per_node=\"${NPROC}\" train.py\n"},
			{"mpi.sh", "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=0,1\nmpirun -np 4 -x NCCL_DEBUG=WARN python train.py\n"},
		},
		Good: []Example{
			{"mask.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 train.py\nCUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc-per-node=gpu train.py\n"},
			{"names.sh", "#!/bin/bash\nGPUS=0,1\nif [ $# -gt 0 ]; then GPUS=$1; fi\nCUDA_VISIBLE_DEVICES=$GPUS torchrun --nproc_per_node=4 train.py\n"},
			{"cpu.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES= torchrun --nproc_per_node=8 train.py\nCUDA_VISIBLE_DEVICES=0 torchrun --nproc_per_node=2 train.py --backend gloo\n"},
			{"machines.sh", "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=0,1,2,3\naccelerate launch --num_machines 2 --num_processes 8 --machine_rank 0 train.py\n"},
			{"slurm.sh", "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\nsrun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HOST:29500 train.py\n"},
			{"mpi.sh", "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=0\nmpirun -np 8 gmx_mpi mdrun\n"},
			{"ray.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0,1 vllm serve model --tensor-parallel-size 4 --distributed-executor-backend ray\n"},
			{"ended.sh", "#!/bin/bash\n(export CUDA_VISIBLE_DEVICES=0; python prepare.py)\ntorchrun --nproc_per_node=4 train.py\n"},
		},
		Look: lookProcesses,
	}
}

func lookProcesses(f File) []Finding {
	a := lookAround(f)
	most, option, batch := allotted(f)
	var all []Finding
	for i, s := range f.Steps {
		if s.Do != Command {
			continue
		}
		l, ok := asLaunch(s)
		if !ok || l.kind == "deepspeed" || l.onCPU() {
			continue
		}
		l.procs = a.constant(i, l.procs)
		n, ok := l.processes()
		if !ok {
			continue
		}
		seen, limit := "", 0
		if list, given := l.visible(a, i); given {
			if count, known := devices(list); known && count > 0 {
				limit, seen = count, "the list of devices, "+list.Text
			}
		}
		if batch && !slices.ContainsFunc(l.Words, func(w Word) bool {
			return strings.HasPrefix(w.Text, "--gres") || strings.HasPrefix(w.Text, "--gpus")
		}) && (limit == 0 || most < limit) {
			limit, seen = most, "the batch job, "+option
		}
		if limit == 0 || n <= limit {
			continue
		}
		all = append(all, Finding{Finding: check.Finding{Code: "more-processes-than-gpus", Severity: check.Error,
			Seen: fmt.Sprintf("%d processes are started, and %s, has %d", n, seen, limit), Why: "each process takes the GPU of its own number, and those beyond the last one fail",
			Do: fmt.Sprintf("start %d, or make more GPUs visible", limit)}, At: l.procs.At})
	}
	return all
}

// visible is the list of devices that the program gets. accelerate makes its own of --gpu_ids.
func (l launch) visible(a around, i int) (Value, bool) {
	if l.kind == "accelerate" {
		if ids, ok := option(l.own, "gpu-ids"); ok {
			return ids, ids.Text != "all"
		}
	}
	for _, name := range masks() {
		if v, ok := a.effective(i, l.program, name); ok {
			return v, true
		}
	}
	return Value{}, false
}

func deepspeedMask() Rule {
	return Rule{
		Page: check.Page{
			Code:  "deepspeed-ignores-mask",
			Title: "deepspeed ignores CUDA_VISIBLE_DEVICES beside --num_gpus or --include",
			Text: "When one of `--include`, `--exclude`, `--num_gpus` or `--num_nodes` is given, the deepspeed command ignores CUDA_VISIBLE_DEVICES, says so in one line, and removes it: `--num_gpus 2` takes the first two GPUs of the machine.\n\n" +
				"Write the devices in one place: `deepspeed --include localhost:2,3 train.py`, or the variable without those options.",
			From: []string{"deepspeedai/DeepSpeed: deepspeed/launcher/runner.py"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"train.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=2,3 deepspeed --num_gpus 2 train.py --deepspeed ds.json\n"},
			{"export.sh", "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=3\ndeepspeed --include=localhost:0 train.py\n"},
		},
		Good: []Example{
			{"train.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=2,3 deepspeed train.py --deepspeed ds.json\ndeepspeed --include localhost:2,3 train.py\ndeepspeed --num_gpus=2 train.py\n"},
			{"same.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0,1 deepspeed --num_gpus=2 train.py\nCUDA_VISIBLE_DEVICES=2,3 deepspeed --include localhost:2,3 train.py\n"},
			{"hosts.sh", "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=0,1\ndeepspeed --hostfile hosts --num_nodes 2 train.py\n"},
		},
		Look: lookDeepspeed,
	}
}

func lookDeepspeed(f File) []Finding {
	a := lookAround(f)
	var all []Finding
	for i, s := range f.Steps {
		if s.Do != Command {
			continue
		}
		l, ok := asLaunch(s)
		if !ok || l.kind != "deepspeed" || l.hosts {
			continue
		}
		mask, given := a.effective(i, l.program, "CUDA_VISIBLE_DEVICES")
		list := numbers(mask)
		if !given || !mask.Known || hides(mask) {
			continue
		}
		for _, name := range []string{"num-gpus", "include", "i", "exclude", "e"} {
			v, ok := option(l.own, name)
			if !ok || !v.Known {
				continue
			}
			n, _ := strconv.Atoi(v.Text)
			_, included, _ := strings.Cut(v.Text, ":")
			if name == "num-gpus" && first(list, n) || included == mask.Text {
				continue
			}
			all = append(all, Finding{Finding: check.Finding{Code: "deepspeed-ignores-mask", Severity: check.Error,
				Seen: "deepspeed ignores CUDA_VISIBLE_DEVICES=" + mask.Text + " because of " + dashes(name) + strings.ReplaceAll(name, "-", "_") + " " + v.Text,
				Why:  "its own options choose among all GPUs of the machine", Do: "write: deepspeed --include localhost:" + mask.Text}, At: v.At})
			break
		}
	}
	return all
}

func dashes(option string) string {
	if len(option) == 1 {
		return "-"
	}
	return "--"
}

func condaMask() Rule {
	return Rule{
		Page: check.Page{
			Code:  "conda-variable-stays-empty",
			Title: "A list of devices among conda's variables hides every GPU after conda deactivate",
			Text: "`conda env config vars set CUDA_VISIBLE_DEVICES=1` sets the variable when the environment is activated. On `conda deactivate`, bash and zsh are left with an empty variable, not without one, and an empty list hides every GPU from what is started later in that shell.\n\n" +
				"Set the list where a program is started, or run `unset CUDA_VISIBLE_DEVICES` after deactivating.",
			From: []string{"conda/conda: conda/activate.py (PosixActivator)", "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"},
		},
		Severity: check.Warning,
		Bad: []Example{
			{"setup.sh", "#!/bin/bash\nconda env config vars set -n train CUDA_VISIBLE_DEVICES=1\n"},
			{"mamba.sh", "#!/bin/bash\nmamba env config vars set CUDA_DEVICE_ORDER=PCI_BUS_ID HIP_VISIBLE_DEVICES=0\n"},
			{"environment.yml", "name: train\ndependencies:\n  - python=3.12\nvariables:\n  CUDA_VISIBLE_DEVICES: \"0\"\n"},
		},
		Good: []Example{
			{"setup.sh", "#!/bin/bash\nconda env config vars set -n train CUDA_DEVICE_ORDER=PCI_BUS_ID HF_HOME=/data/hf\nconda run -n train env CUDA_VISIBLE_DEVICES=1 python train.py\n"},
			{"environment.yml", "name: train\ndependencies:\n  - python=3.12\nvariables:\n  CUDA_DEVICE_ORDER: PCI_BUS_ID\n"},
		},
		Look: func(f File) []Finding {
			all := condaMaskInFile(f)
			for _, s := range f.Steps {
				texts := []string{}
				for _, w := range s.Words {
					texts = append(texts, w.Text)
				}
				if s.Do != Command || !strings.Contains(strings.Join(texts, " "), "env config vars set") {
					continue
				}
				for _, w := range s.Words {
					set, ok := assignment(w, "conda")
					if !ok || !slices.Contains(masks(), set.Name) {
						continue
					}
					all = append(all, Finding{Finding: check.Finding{Code: "conda-variable-stays-empty", Severity: check.Warning,
						Seen: set.Name + " becomes a variable of the conda environment", Why: "after conda deactivate the shell has it as an empty string, which hides every GPU",
						Do: "set it where a program is started"}, At: set.At})
				}
			}
			return all
		},
	}
}
