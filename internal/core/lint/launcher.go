package lint

import (
	"slices"
	"strconv"
	"strings"
)

// launch is a program that starts one process per GPU, as far as its command line says.
type launch struct {
	program
	kind  string // "torchrun", "accelerate", "deepspeed", "horovodrun", "vllm", "sglang", "mpirun"
	own   []Word // the options of the launcher, without those of the script
	procs Word   // how many processes, or GPUs, on this machine; empty when that is not on the line
	hosts bool   // it names other machines, or how many: nothing can be counted here
}

// asLaunch reads a command that starts one process per GPU. The names of options with "-" for "_" are the same:
//
//	pytorch/pytorch: torch/distributed/run.py; huggingface/accelerate: src/accelerate/commands/launch.py;
//	deepspeedai/DeepSpeed: deepspeed/launcher/runner.py; horovod/horovod: horovod/runner/launch.py;
//	vllm-project/vllm: vllm/engine/arg_utils.py; sgl-project/sglang: python/sglang/srt/server_args.py
func asLaunch(s Step) (launch, bool) {
	l := launch{program: started(s)}
	args := l.args
	name := l.name
	if isPython(name) {
		i := slices.IndexFunc(args, func(w Word) bool { return w.Text == "-m" })
		if i < 0 || i+1 >= len(args) || slices.ContainsFunc(args[:i], func(w Word) bool { return !strings.HasPrefix(w.Text, "-") }) {
			return l.mpi()
		}
		name, args = args[i+1].Text, args[i+2:]
	}
	switch name {
	case "torchrun", "torch.distributed.run", "torch.distributed.launch", "colossalai":
		l.kind = "torchrun"
	case "accelerate", "accelerate.commands.launch":
		l.kind = "accelerate"
	case "deepspeed", "ds", "deepspeed.launcher.runner":
		l.kind = "deepspeed"
	case "horovodrun", "horovod.runner.launch":
		l.kind = "horovodrun"
	case "vllm", "vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server":
		l.kind = "vllm"
	case "sglang.launch_server", "sglang":
		l.kind = "sglang"
	default:
		return l.mpi()
	}
	l.own = args
	if end := slices.IndexFunc(args, func(w Word) bool {
		return strings.HasSuffix(w.Text, ".py") || w.Text == "--" || w.Text == "-m" || w.Text == "--module"
	}); end >= 0 {
		l.own = args[:end]
	}
	l.count()
	return l, true
}

// mpi reads mpirun in front of a program that uses NCCL: ranks of other programs may share a GPU, those of NCCL may not
// (NVIDIA/nccl: src/init.cc).
func (l launch) mpi() (launch, bool) {
	if !slices.ContainsFunc(l.by, func(b string) bool { return b == "mpirun" || b == "mpiexec" || b == "orterun" }) {
		return l, false
	}
	if !slices.ContainsFunc(l.Words, func(w Word) bool { return strings.Contains(w.Text, "NCCL_") }) && !strings.HasSuffix(l.name, "_perf") {
		return l, false
	}
	l.kind, l.own = "mpirun", l.Words
	l.procs, _ = option(l.own, "np", "n")
	_, l.hosts = option(l.own, "H", "host", "hostfile", "machinefile", "N", "npernode", "map-by", "x-nodes")
	return l, true
}

func (l *launch) count() {
	switch l.kind {
	case "torchrun":
		l.procs, _ = option(l.own, "nproc-per-node")
	case "accelerate":
		l.procs, _ = option(l.own, "num-processes")
		machines, given := option(l.own, "num-machines")
		_, hostfile := option(l.own, "deepspeed-hostfile")
		l.hosts = given && machines.Text != "1" || hostfile
	case "deepspeed":
		l.procs, _ = option(l.own, "num-gpus")
		_, l.hosts = option(l.own, "hostfile", "H")
	case "horovodrun":
		l.procs, _ = option(l.own, "np", "num-proc")
		_, l.hosts = option(l.own, "H", "hosts", "hostfile", "host-discovery-script")
	case "vllm", "sglang":
		l.procs, _ = option(l.own, "tensor-parallel-size", "tp", "tp-size")
		if l.kind == "vllm" {
			back, _ := option(l.own, "distributed-executor-backend")
			l.hosts = back.Text == "ray"
		}
		_, nodes := option(l.own, "nnodes")
		l.hosts = l.hosts || nodes
	}
}

// processes is the number on the line.
func (l launch) processes() (int, bool) {
	n, err := strconv.Atoi(l.procs.Text)
	return n, err == nil && l.procs.Known && !l.hosts && n > 0
}

// onCPU reports whether the command says that it computes without GPUs.
func (l launch) onCPU() bool {
	return slices.ContainsFunc(l.Words, func(w Word) bool {
		text := strings.ToLower(w.Text)
		return text == "gloo" || text == "mpi" || strings.HasSuffix(text, "=gloo") || slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("-_=:/,", r) }), "cpu") ||
			strings.Contains(text, "no-cuda") || strings.Contains(text, "no_cuda")
	})
}

// allotted is how many GPUs per machine a Slurm script asks for; ok is false when it does not say, or not per machine.
// https://slurm.schedmd.com/sbatch.html (--gres, --gpus-per-node, --gpus, --nodes)
func allotted(f File) (n int, option string, ok bool) {
	nodes := ""
	for _, s := range f.Steps {
		if s.Do != Setting {
			continue
		}
		name, isSlurm := strings.CutPrefix(s.Name, "sbatch.")
		if !isSlurm {
			continue
		}
		switch name {
		case "nodes":
			nodes = s.Value.Text
		case "gres":
			for resource := range strings.SplitSeq(s.Value.Text, ",") {
				if kind, rest, _ := strings.Cut(resource, ":"); kind == "gpu" {
					if n, ok = gpuCount(rest), true; n < 0 {
						return 0, "", false
					}
					option = "--gres=" + s.Value.Text
				}
			}
		case "gpus-per-node":
			n, option = gpuCount(s.Value.Text), "--gpus-per-node="+s.Value.Text
			ok = n > 0
		case "gpus":
			if n < 1 {
				n, option = gpuCount(s.Value.Text), "--gpus="+s.Value.Text
			}
		case "exclusive":
			return 0, "", false
		}
	}
	if strings.HasPrefix(option, "--gpus=") {
		ok = n > 0 && nodes == "1"
	}
	return n, option, ok && n > 0
}

// gpuCount reads the number after the type: "a100:4", "4", "" for one.
func gpuCount(text string) int {
	text, _, _ = strings.Cut(text, "(")
	if i := strings.LastIndex(text, ":"); i >= 0 {
		text = text[i+1:]
	}
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		if strings.ContainsAny(text, ",") {
			return -1
		}
		return 1 // a type alone
	}
	return n
}
