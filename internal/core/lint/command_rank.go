package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/check"
)

func fixedPort() Rule {
	return Rule{
		Page: check.Page{
			Code:  "master-port-fixed",
			Title: "A fixed port for the meeting of the processes",
			Text: "Two jobs on one machine cannot listen on the same port: the second one ends with \"address already in use\", or, worse, its processes meet those of the first.\n\n" +
				"On one machine let a free port be found: `torchrun --standalone`, `accelerate launch --main_process_port 0`, or derive it from the job's number. On several machines all need to know the port, and nothing is found there.",
			From: []string{"https://docs.pytorch.org/docs/stable/elastic/run.html", "huggingface/accelerate: src/accelerate/commands/launch.py"},
		},
		Severity: check.Info,
		Bad: []Example{
			{"export.sh", "#!/bin/bash\nexport MASTER_ADDR=localhost\nexport MASTER_PORT=29500\npython train.py\n"},
			{"torchrun.sh", "#!/bin/bash\ntorchrun --nproc_per_node=2 --master-port 29501 train.py\n"},
			{"accelerate.sh", "#!/bin/bash\naccelerate launch --main_process_port=29500 train.py\n"},
			{"launch.sh", "#!/bin/bash\npython -m torch.distributed.launch --nproc_per_node=2 --master_port=12355 train.py\n"},
			{"deepspeed.sh", "#!/bin/bash\ndeepspeed --master_port 29600 train.py\n"},
			{"endpoint.sh", "#!/bin/bash\ntorchrun --nproc_per_node=2 --rdzv_backend=c10d --rdzv_endpoint=localhost:29400 train.py\n"},
		},
		Good: []Example{
			{"free.sh", "#!/bin/bash\ntorchrun --standalone --nproc_per_node=2 train.py\naccelerate launch --main_process_port 0 train.py\ntorchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:0 --nproc-per-node=2 train.py\n"},
			{"job.sh", "#!/bin/bash\n#SBATCH --gres=gpu:2\nexport MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))\nsrun python train.py\n"},
			{"machines.sh", "#!/bin/bash\ntorchrun --nnodes=2 --node_rank=0 --nproc_per_node=8 --master_addr=10.0.0.1 --master_port=29500 train.py\n"},
			{"slurm.sh", "#!/bin/bash\n#SBATCH --nodes=4\nexport MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\nexport MASTER_PORT=29500\nsrun python train.py\n"},
			{"default.sh", "#!/bin/bash\n: \"${MASTER_PORT:=29500}\"\nexport MASTER_PORT=${MASTER_PORT:-29500}\npython train.py\n"},
		},
		Look: lookPort,
	}
}

func lookPort(f File) []Finding {
	if !slices.Contains([]Kind{Shell, Python, Notebook, Unit, Desktop}, f.Kind) || severalMachines(f) {
		return nil // a container has ports of its own
	}
	var all []Finding
	add := func(at Place, what string) {
		all = append(all, Finding{Finding: check.Finding{Code: "master-port-fixed", Severity: check.Info, Seen: what, Why: "a second job on the same machine cannot listen on that port",
			Do: "let a free port be found: torchrun --standalone, --main_process_port 0, or a port derived from the job's number"}, At: at})
	}
	for _, s := range f.Steps {
		if s.Do == Set && s.Name == "MASTER_PORT" && isPort(s.Value) && !strings.Contains(s.How, "setdefault") && s.How != "${:=}" {
			add(s.At, "MASTER_PORT is always "+s.Value.Text)
		}
		if s.Do != Command {
			continue
		}
		for _, set := range started(s).set {
			if set.Name == "MASTER_PORT" && isPort(set.Value) {
				add(set.At, "MASTER_PORT is always "+set.Value.Text)
			}
		}
		l, ok := asLaunch(s)
		if !ok {
			continue
		}
		for _, name := range []string{"master-port", "main-process-port", "rdzv-endpoint"} {
			v, given := option(l.own, name)
			port := v
			if name == "rdzv-endpoint" {
				host, number, _ := strings.Cut(v.Text, ":")
				port.Text = number
				given = given && isLocal(host)
			}
			if given && isPort(port) {
				add(v.At, "the processes always meet at port "+port.Text)
			}
		}
	}
	return all
}

func isPort(v Value) bool {
	n, err := strconv.Atoi(v.Text)
	return v.Known && err == nil && n > 0
}

func isLocal(host string) bool {
	return slices.Contains([]string{"localhost", "127.0.0.1", "::1", "0.0.0.0", ""}, host)
}

// severalMachines reports whether the processes of the file's jobs are on more than one machine, or may be.
func severalMachines(f File) bool {
	inSlurm := slices.ContainsFunc(f.Steps, func(s Step) bool { return s.Name == "sbatch.nodes" })
	for _, s := range f.Steps {
		switch {
		case s.Do == Setting && s.Name == "sbatch.nodes" && s.Value.Text != "1", s.Do == Setting && s.Name == "sbatch.exclusive":
			return true
		case s.Do == Set && s.Name == "MASTER_ADDR" && (!s.Value.Known && !inSlurm || s.Value.Known && !isLocal(s.Value.Text)):
			return true
		case s.Do == Set && (s.Name == "NNODES" || s.Name == "NODE_RANK"):
			return true
		case s.Do == Command:
			l, ok := asLaunch(s)
			if !ok {
				continue
			}
			if v, given := option(l.own, "nnodes", "num-machines", "num-nodes"); given && v.Text != "1" {
				return true
			}
			if v, given := option(l.own, "master-addr", "main-process-ip"); given && !isLocal(v.Text) {
				return true
			}
			if _, given := option(l.own, "node-rank", "machine-rank"); given || l.hosts {
				return true
			}
		}
	}
	return false
}

// ranks lists the variables in which launchers give each process its number on the machine.
func ranks() []string {
	return []string{"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID"}
}

func rankOwnMask() Rule {
	return Rule{
		Page: check.Page{
			Code:  "rank-with-own-mask",
			Title: "A process that sees one GPU asks for the GPU of its rank",
			Text: "With `CUDA_VISIBLE_DEVICES=$LOCAL_RANK` each process sees exactly one GPU, and inside it is `cuda:0`. A process with rank 1 that asks for `cuda:1` fails with \"invalid device ordinal\".\n\n" +
				"Either give every process the whole list and let it choose by rank, or give it one device and let it use number 0.",
			From: []string{"https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html", "https://docs.pytorch.org/docs/stable/elastic/run.html"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"device.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=$LOCAL_RANK python train.py --device cuda:$LOCAL_RANK\n"},
			{"slurm.sh", "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=${SLURM_LOCALID}\npython train.py --device=\"cuda:${SLURM_LOCALID}\"\n"},
		},
		Good: []Example{
			{"device.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=$LOCAL_RANK python train.py --device cuda:0 --rank $RANK\nCUDA_VISIBLE_DEVICES=$LOCAL_RANK python train.py --shard $LOCAL_RANK\n"},
			{"pair.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=$LOCAL_RANK,7 python train.py --device cuda:$LOCAL_RANK\n"},
			{"whole.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0,1 python train.py --device cuda:$LOCAL_RANK\n"},
		},
		Look: func(f File) []Finding {
			a := lookAround(f)
			var all []Finding
			for i, s := range f.Steps {
				if s.Do != Command {
					continue
				}
				p := started(s)
				mask, given := a.maskOf(i, p)
				if !given || mask.Known || !slices.Contains(ranks(), mask.From) || strings.Contains(mask.Text, ",") {
					continue
				}
				for _, w := range p.args {
					if w.From == mask.From && strings.Contains(w.Text, "cuda:") {
						all = append(all, Finding{Finding: check.Finding{Code: "rank-with-own-mask", Severity: check.Error,
							Seen: "the program sees one GPU, and asks for " + strings.Trim(w.Text, `"`), Why: "the one GPU that a process sees has the number 0 in it", Do: "use cuda:0, or give every process the whole list"}, At: w.At})
					}
				}
			}
			return all
		},
	}
}

// maskOf is the list of devices that a program gets, if one is given.
func (a around) maskOf(i int, p program) (Value, bool) {
	for _, name := range masks() {
		if v, ok := a.effective(i, p, name); ok {
			return v, true
		}
	}
	return Value{}, false
}

var cudaNumber = pattern(`(?:^|=)cuda:([0-9]{1,3})$`)

func deviceBeyondMask() Rule {
	return Rule{
		Page: check.Page{
			Code:  "device-beyond-mask",
			Title: "A program is told to use a device number that its list does not have",
			Text: "The devices that a program sees are numbered from 0 in the order of CUDA_VISIBLE_DEVICES. Under `CUDA_VISIBLE_DEVICES=3` the one GPU is `cuda:0`; `cuda:3` does not exist and fails with \"invalid device ordinal\".\n\n" +
				"Count from 0 within the list.",
			From: []string{"https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"one.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=3 python train.py --device cuda:3\n"},
			{"two.sh", "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=2,3\nnohup python train.py --device=cuda:2 &\n"},
		},
		Good: []Example{
			{"one.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=3 python train.py --device cuda:0\nCUDA_VISIBLE_DEVICES=2,3 python train.py --device cuda:1\npython train.py --device cuda:3\n"},
			{"later.sh", "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=0\npython train.py --device cuda:0\nexport CUDA_VISIBLE_DEVICES=0,1\npython train.py --device cuda:1\nunset CUDA_VISIBLE_DEVICES\npython train.py --device cuda:3\n"},
		},
		Look: func(f File) []Finding {
			a := lookAround(f)
			var all []Finding
			for i, s := range f.Steps {
				if s.Do != Command {
					continue
				}
				p := started(s)
				if !p.usesGPUs() {
					continue
				}
				mask, given := a.maskOf(i, p)
				n, known := devices(mask)
				if !given || !known || n == 0 {
					continue
				}
				for _, w := range p.args {
					m := cudaNumber().FindStringSubmatch(w.Text)
					if m == nil || !w.Known {
						continue
					}
					if k, _ := strconv.Atoi(m[1]); k >= n {
						all = append(all, Finding{Finding: check.Finding{Code: "device-beyond-mask", Severity: check.Error,
							Seen: fmt.Sprintf("cuda:%d under a list of %d, %s", k, n, mask.Text), Why: "visible devices are numbered from 0 in the order of the list",
							Do: fmt.Sprintf("use a number from 0 to %d", n-1)}, At: w.At})
					}
				}
			}
			return all
		},
	}
}
