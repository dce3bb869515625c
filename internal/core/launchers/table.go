package launchers

import (
	"slices"
	"strings"
)

// allRows is what programs do with the list of visible devices.
func allRows() []Row {
	return slices.Concat(trainerRows(), serverRows(), toolRows(), crossingRows(), variableRows())
}

// rowsOf is the rows of a program, and those of any program.
func rowsOf(name string) []Row {
	if !hasWord(programNames, name) {
		return variableRows()
	}
	return slices.DeleteFunc(allRows(), func(r Row) bool { return r.Programs != anyProgram && !hasWord(r.Programs, name) })
}

const (
	torchrun    = "torchrun torch.distributed.run torch.distributed.launch colossalai"
	accelerate  = "accelerate accelerate-launch accelerate.commands.launch trl"
	deepspeed   = "deepspeed ds deepspeed.launcher.runner"
	horovod     = "horovodrun horovod.runner.launch"
	vllm        = "vllm vllm.entrypoints.openai.api_server vllm.entrypoints.api_server"
	sglang      = "sglang sglang.launch_server"
	llama       = "llama-server llama-cli llama-bench"
	shards      = "text-generation-launcher"
	mpi         = "mpirun mpiexec orterun"
	factory     = "llamafactory-cli lmf"
	gromacs     = "gmx gmx_mpi"
	webUI       = "launch.py webui.py webui.sh"
	engineNames = "docker podman podman-remote nerdctl docker-compose podman-compose"
	boxNames    = "apptainer singularity"

	// programs is all of the table, for most commands have none of them.
	programNames = torchrun + " " + accelerate + " " + deepspeed + " " + horovod + " " + mpi + " swift megatron " + factory + " ray " + vllm + " " + sglang + " " + llama + " lmdeploy " + shards +
		" ollama main.py " + webUI + " yolo ffmpeg dorado " + gromacs + " nvidia-smi ssh su systemd-run " + engineNames + " kubectl oc " + boxNames + " env"
)

// trainerRows start one process for each GPU.
func trainerRows() []Row {
	return []Row{
		{Programs: torchrun, Keys: "nproc-per-node $PET_NPROC_PER_NODE", Effect: Counts, From: "pytorch/pytorch: torch/distributed/run.py"},
		{Programs: accelerate, Keys: "num-processes", Effect: Counts, From: "huggingface/accelerate: src/accelerate/commands/launch.py"},
		{Programs: accelerate, Keys: "num-machines", Except: "1", Effect: Elsewhere, From: "huggingface/accelerate: src/accelerate/commands/launch.py"},
		{Programs: accelerate, Keys: "deepspeed-hostfile mpirun-hostfile", Effect: Elsewhere, From: "huggingface/accelerate: src/accelerate/commands/launch.py"},
		{Programs: accelerate, Keys: "gpu-ids", Except: "all", Effect: Rewrites, From: "huggingface/accelerate: src/accelerate/utils/launch.py"},
		{Programs: deepspeed, Keys: "num-gpus num-accelerators", Effect: Counts, From: "deepspeedai/DeepSpeed: deepspeed/launcher/runner.py"},
		{Programs: deepspeed, Keys: "num-nodes", Except: "1", Effect: Elsewhere, From: "deepspeedai/DeepSpeed: deepspeed/launcher/runner.py"},
		{Programs: deepspeed, Keys: "hostfile H", Effect: Elsewhere, From: "deepspeedai/DeepSpeed: deepspeed/launcher/runner.py"},
		{Programs: deepspeed, Keys: "num-gpus num-accelerators include i exclude e", Effect: Ignores, From: "deepspeedai/DeepSpeed: deepspeed/launcher/runner.py"},
		{Programs: horovod, Keys: "np num-proc", Effect: Counts, From: "horovod/horovod: horovod/runner/launch.py"},
		{Programs: horovod, Keys: "H hosts hostfile host-discovery-script", Effect: Elsewhere, From: "horovod/horovod: horovod/runner/launch.py"},
		{Programs: mpi, Keys: "np n c", Effect: Counts, From: "https://docs.open-mpi.org/en/v5.0.x/man-openmpi/man1/mpirun.1.html"},
		{Programs: mpi, Keys: "H host hostfile default-hostfile machinefile rankfile app N npernode pernode npersocket map-by ppr", Effect: Elsewhere, From: "https://docs.open-mpi.org/en/v5.0.x/man-openmpi/man1/mpirun.1.html"},
		{Programs: mpi, Keys: "f hosts ppn perhost", Effect: Elsewhere, From: "https://www.intel.com/content/www/us/en/docs/mpi-library/developer-guide-linux/2021-15/running-an-mpi-program.html"},
		{Programs: "swift", Keys: "$NPROC_PER_NODE", Beside: "+pt +sft +rlhf +infer", Effect: Counts, From: "modelscope/ms-swift: swift/cli/main.py"},
		{Programs: "megatron", Keys: "$NPROC_PER_NODE", Effect: Counts, From: "modelscope/ms-swift: swift/cli/main.py"},
		{Programs: factory, Keys: "$NPROC_PER_NODE", Beside: "$FORCE_TORCHRUN=1 $FORCE_TORCHRUN=true $FORCE_TORCHRUN=True $FORCE_TORCHRUN=y", Effect: Counts, From: "hiyouga/LLaMA-Factory: src/llamafactory/launcher.py"},
		{Programs: "ray", Keys: "num-gpus", Effect: Counts, From: "ray-project/ray: python/ray/_private/resource_and_label_spec.py"},
	}
}

// serverRows of models split one over several GPUs.
func serverRows() []Row {
	return []Row{
		{Programs: vllm, Keys: "tensor-parallel-size tp", Effect: Counts, From: "vllm-project/vllm: vllm/engine/arg_utils.py"},
		{Programs: vllm, Keys: "pipeline-parallel-size pp", Effect: Counts, From: "vllm-project/vllm: vllm/engine/arg_utils.py"},
		{Programs: vllm, Keys: "data-parallel-size dp", Effect: Counts, From: "vllm-project/vllm: vllm/engine/arg_utils.py"},
		{Programs: vllm, Keys: "prefill-context-parallel-size pcp", Effect: Counts, From: "vllm-project/vllm: vllm/config/parallel.py"},
		{Programs: vllm, Keys: "device-ids", Effect: Inside, From: "vllm-project/vllm: vllm/engine/arg_utils.py (_resolve_device_ids)"},
		{Programs: vllm, Keys: "distributed-executor-backend data-parallel-backend dpb", Except: "mp", Effect: Elsewhere, From: "vllm-project/vllm: vllm/engine/arg_utils.py"},
		{Programs: vllm, Keys: "data-parallel-size-local dpl data-parallel-address dpa data-parallel-rank dpn data-parallel-start-rank dpr headless", Effect: Elsewhere, From: "vllm-project/vllm: vllm/engine/arg_utils.py"},
		{Programs: vllm, Keys: "data-parallel-hybrid-lb dph data-parallel-external-lb dpe", Effect: Elsewhere, From: "vllm-project/vllm: vllm/engine/arg_utils.py"},
		{Programs: vllm, Keys: "nnodes n", Except: "1", Effect: Elsewhere, From: "vllm-project/vllm: vllm/engine/arg_utils.py"},
		{Programs: sglang, Keys: "tensor-parallel-size tp tp-size", Effect: Counts, From: "sgl-project/sglang: python/sglang/srt/server_args.py"},
		{Programs: sglang, Keys: "pipeline-parallel-size pp pp-size", Effect: Counts, From: "sgl-project/sglang: python/sglang/srt/server_args.py"},
		{Programs: sglang, Keys: "data-parallel-size dp dp-size", Unless: "enable-dp-attention", Effect: Counts, From: "sgl-project/sglang: python/sglang/srt/server_args.py"},
		{Programs: sglang, Keys: "base-gpu-id", Effect: Inside, From: "sgl-project/sglang: python/sglang/srt/entrypoints/engine.py"},
		{Programs: sglang, Keys: "nnodes", Except: "1", Effect: Elsewhere, From: "sgl-project/sglang: python/sglang/srt/server_args.py"},
		{Programs: "lmdeploy", Keys: "tp", Effect: Counts, From: "InternLM/lmdeploy: lmdeploy/cli/utils.py"},
		{Programs: "lmdeploy", Keys: "nnodes dp ep", Except: "1", Effect: Elsewhere, From: "InternLM/lmdeploy: lmdeploy/cli/utils.py"},
		{Programs: "lmdeploy", Keys: "dp", Except: "1", Effect: Ignores, From: "InternLM/lmdeploy: lmdeploy/serve/openai/launch_server.py"},
		{Programs: shards, Keys: "num-shard $NUM_SHARD", Effect: Counts, From: "huggingface/text-generation-inference: launcher/src/main.rs (find_num_shards)"},
		{Programs: llama, Keys: "main-gpu mg", Effect: Inside, Unless: "device dev", Beside: "split-mode=none sm=none", From: "ggml-org/llama.cpp: docs/multi-gpu.md"},
		{Programs: llama, Keys: "device dev", Effect: Inside, From: "ggml-org/llama.cpp: docs/multi-gpu.md"},
		{Programs: "ollama", Keys: "+run +pull +create", Effect: Drops, Instead: "set it for ollama serve, which computes", From: "ollama/ollama: cmd/cmd.go (checkServerHeartbeat)"},
	}
}

// toolRows use one GPU, or those that an option names.
func toolRows() []Row {
	return []Row{
		{Programs: "main.py", Keys: "cuda-device default-device", Effect: Rewrites, From: "comfyanonymous/ComfyUI: main.py"},
		{Programs: webUI, Keys: "device-id", Effect: Inside, From: "AUTOMATIC1111/stable-diffusion-webui: modules/devices.py"},
		{Programs: webUI, Keys: "gpu-device-id", Effect: Rewrites, From: "lllyasviel/Fooocus: launch.py"},
		{Programs: "yolo", Keys: "device=", Effect: Rewrites, From: "ultralytics/ultralytics: ultralytics/utils/torch_utils.py"},
		{Programs: "ffmpeg", Keys: "hwaccel-device", Effect: Inside, From: "FFmpeg/FFmpeg: libavutil/hwcontext_cuda.c"},
		{Programs: "ffmpeg", Keys: "gpu", Except: "any", Effect: Inside, From: "FFmpeg/FFmpeg: libavcodec/nvenc.c"},
		{Programs: gromacs, Keys: "gpu-id", Effect: Inside, From: "https://manual.gromacs.org/current/user-guide/mdrun-performance.html"},
		{Programs: "dorado", Keys: "x device", Effect: Inside, From: "nanoporetech/dorado: dorado/torch_utils/cuda_utils.cpp"},
		{Programs: "nvidia-smi", Keys: "i id", Effect: Ignores, From: "https://docs.nvidia.com/deploy/nvidia-smi/index.html"},
	}
}

// crossingRows start a program in an environment of another kind.
func crossingRows() []Row {
	return []Row{
		{Programs: "ssh", Unless: "N", Effect: Drops, Instead: "write it in the command: ssh HOST 'NAME=VALUE program'", From: "https://man.openbsd.org/ssh_config.5 (SendEnv)"},
		{Programs: "su", Keys: "+- l login", Unless: "w whitelist-environment", Effect: Drops, Instead: "write it in the command: su - USER -c 'NAME=VALUE program'", From: "https://man7.org/linux/man-pages/man1/su.1.html"},
		{Programs: "systemd-run", Unless: "scope", Effect: Drops, Instead: "add --setenv=NAME=VALUE", From: "https://www.freedesktop.org/software/systemd/man/latest/systemd-run.html"},
		{Programs: engineNames, Keys: "+exec", Effect: Drops, Instead: "write: exec -e NAME=VALUE", From: "https://docs.docker.com/reference/cli/docker/container/exec/#env"},
		{Programs: "kubectl oc", Keys: "+exec", Effect: Drops, Instead: "write: exec POD -- env NAME=VALUE program", From: "https://kubernetes.io/docs/reference/kubectl/generated/kubectl_exec/"},
		{Programs: boxNames, Keys: "cleanenv e containall C compat", Effect: Drops, Instead: "add --env NAME=VALUE", From: "apptainer/apptainer: cmd/internal/cli/action_flags.go"},
		{Programs: "env", Keys: "i ignore-environment +-", Effect: Drops, Instead: "write it behind env -i", From: "https://www.gnu.org/software/coreutils/manual/html_node/env-invocation.html"},
	}
}

// anyProgram stands for a program of any name.
const anyProgram = "*"

// variableRows choose a device apart from the list. MuJoCo follows the list since it maps the devices of EGL to those
// of CUDA, where the driver tells them.
func variableRows() []Row {
	return []Row{
		{Programs: anyProgram, Keys: "$MUJOCO_EGL_DEVICE_ID", Effect: Own, From: "google-deepmind/mujoco: python/mujoco/egl/__init__.py"},
		{Programs: anyProgram, Keys: "$GGML_VK_VISIBLE_DEVICES", Effect: Own, From: "ggml-org/llama.cpp: ggml/src/ggml-vulkan/ggml-vulkan.cpp"},
	}
}

// ProgramOfImage is the program that a well-known image of a container starts its command's options with; nil for
// others.
func ProgramOfImage(image string) []string {
	name, _, _ := strings.Cut(strings.TrimPrefix(image, "docker.io/"), "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		name = name[:i]
	}

	switch name {
	case "vllm/vllm-openai":
		// vllm-project/vllm: docker/Dockerfile.
		return []string{"vllm", "serve"}
	case "ghcr.io/huggingface/text-generation-inference":
		// huggingface/text-generation-inference: Dockerfile.
		return []string{shards}
	}

	return nil
}
