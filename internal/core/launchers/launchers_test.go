package launchers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestTable: every row has programs, a known effect and a source, and a row that drops says what to write.
func TestTable(t *testing.T) {
	effects := []Effect{Counts, Rewrites, Inside, Own, Ignores, Drops, Elsewhere}
	for _, r := range allRows() {
		for _, name := range strings.Fields(r.Programs) {
			if name != anyProgram && !slices.Contains(strings.Fields(programNames), name) {
				t.Errorf("%s is missing in programs", name)
			}
		}
		switch {
		case r.Programs == "" || r.From == "" || !slices.Contains(effects, r.Effect):
			t.Errorf("not complete: %+v", r)
		case !strings.HasPrefix(r.From, "https://") && !strings.Contains(r.From, ": "):
			t.Errorf("no source: %+v", r)
		case (r.Effect == Drops) != (r.Instead != ""):
			t.Errorf("what to write is missing, or too much: %+v", r)
		case r.Effect != Drops && r.Keys == "":
			t.Errorf("no key: %+v", r)
		}
	}
}

// TestNeeds: how many GPUs a command needs on this machine, "?" where it does not say.
func TestNeeds(t *testing.T) {
	environment := func(name string) (string, bool) {
		value, set := map[string]string{"NPROC_PER_NODE": "3", "NUM_SHARD": "5", "FORCE_TORCHRUN": "1"}[name]
		return value, set
	}
	count := map[string]int{
		"torchrun --nproc_per_node 4 train.py":                                      4,
		"nohup env A=1 python -m torch.distributed.run --nproc-per-node=2 train.py": 2,
		"torchrun --nproc_per_node gpu train.py":                                    0,
		"torchrun train.py --nproc_per_node 4":                                      0,
		"accelerate launch --num_processes 8 --num_machines 2 t.py":                 0,
		"accelerate launch --num_processes 8 --num_machines 1 t.py":                 8,
		"vllm serve m -tp 2 -pp 3":                                                  6,
		"vllm serve m --tensor-parallel-size 2 --distributed-executor-backend ray":  0,
		"vllm serve m --tensor-parallel-size 2 --distributed-executor-backend mp":   2,
		"vllm serve m -tp 2 --nnodes 1 --data-parallel-size-local 1":                0,
		"python -m sglang.launch_server --tp 4 --dp 2":                              8,
		"python -m sglang.launch_server --tp 4 --dp 2 --enable-dp-attention":        4,
		"lmdeploy serve api_server m --tp 2":                                        2,
		"swift sft --model m":                                                       3,
		"swift export --model m":                                                    0,
		"megatron pt --model m":                                                     3,
		"llamafactory-cli train a.yaml":                                             3,
		"lmf train a.yaml":                                                          3,
		"accelerate-launch --num_processes 4 t.py":                                  4,
		"accelerate launch --num_processes 4 --mpirun_hostfile h t.py":              0,
		"deepspeed --num_accelerators 2 t.py":                                       2,
		"deepspeed --num_nodes 2 --num_gpus 2 t.py":                                 0,
		"deepspeed --num_nodes 1 --num_gpus 2 t.py":                                 2,
		"mpirun -np 2 ./sendrecv_perf -f 2 -n 20":                                   2,
		"mpirun ./sendrecv_perf -n 20":                                              0,
		"mpirun -np 8 -f hosts ./x":                                                 0,
		"mpirun -n 8 -ppn 4 ./x":                                                    0,
		"mpirun -np 8 --pernode ./x":                                                0,
		"vllm serve m -tp 2 -pcp 2":                                                 4,
		"vllm serve m -tp 2 -dp 4 -dpb ray":                                         0,
		"vllm serve m -tp 2 -dp 4 -dpr 2":                                           0,
		"vllm serve m -tp 2 -n 2":                                                   0,
		"text-generation-launcher --model-id m":                                     5,
		"text-generation-launcher --model-id m --num-shard 2":                       2,
		"ray start --head --num-gpus=2":                                             2,
		"python train.py --nproc_per_node 4":                                        0,
		"$LAUNCHER --nproc_per_node 4":                                              0,
		"nohup":                                                                     0,
	}
	for line, want := range count {
		n, ok := ReadCommand(strings.Fields(line), environment).NeededGPUs()
		if ok != (want > 0) || ok && n != want {
			t.Errorf("%s: %d, %v; want %d", line, n, ok, want)
		}
	}
}

// TestKeys: the first key with an effect, as it is written, with its value.
func TestKeys(t *testing.T) {
	for _, c := range []struct {
		line   string
		effect Effect
		want   string
	}{
		{"accelerate launch --gpu_ids 0,1 t.py", Rewrites, "--gpu_ids 0,1"},
		{"accelerate launch --gpu_ids=all t.py", Rewrites, " "},
		{"yolo train device=2", Rewrites, "device 2"},
		{"python ComfyUI/main.py --cuda-device 1", Rewrites, "--cuda-device 1"},
		{"python main.py --device-id 1", Rewrites, " "},
		{"llama-server -m x -sm none -mg 1", Inside, "-mg 1"},
		{"llama-server -m x -mg 1", Inside, " "},
		{"llama-server -m x -sm none -mg 1 -dev CUDA0,CUDA3", Inside, "-dev CUDA0,CUDA3"},
		{"llama-server -m x --device CUDA1", Inside, "--device CUDA1"},
		{"vllm serve m --device-ids 4,5", Inside, "--device-ids 4,5"},
		{"gmx mdrun -gpu_id 01", Inside, "-gpu_id 01"},
		{"dorado basecaller -x cuda:0,1 hac d", Inside, "-x cuda:0,1"},
		{"python main.py --default-device 1", Rewrites, "--default-device 1"},
		{"python launch.py --gpu-device-id 1", Rewrites, "--gpu-device-id 1"},
		{"lmdeploy serve api_server m --dp 2", Ignores, "--dp 2"},
		{"nvidia-smi -i 1", Ignores, "-i 1"},
		{"deepspeed --include localhost:1 t.py", Ignores, "--include localhost:1"},
		{"./simulate", Own, "MUJOCO_EGL_DEVICE_ID 1"},
	} {
		k := ReadCommand(strings.Fields(c.line), func(name string) (string, bool) { return "1", name == "MUJOCO_EGL_DEVICE_ID" }).First(c.effect)
		if got := k.Name + " " + k.Value; got != c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
}

// TestNumbers: the devices within the list that a value names.
func TestNumbers(t *testing.T) {
	for line, want := range map[string]string{
		"vllm serve m --device-ids 4,5": "[4 5]", "vllm serve m --device-ids=GPU-1,GPU-2": "[]", "llama-cli -dev CUDA0,CUDA3": "[0 3]", "llama-cli -dev Vulkan1": "[]",
		"gmx mdrun -gpu_id 013": "[0 1 3]", "gmx_mpi mdrun -gpu_id 12,13": "[12 13]", "dorado basecaller --device cuda:0,2": "[0 2]", "dorado basecaller -x cuda:all": "[]",
	} {
		if got := fmt.Sprint(ReadCommand(strings.Fields(line), nil).First(Inside).DeviceNumbers()); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// TestDropper: the program that does not hand variables on.
func TestDropper(t *testing.T) {
	for line, want := range map[string]string{
		"ssh node python t.py": "ssh", "nohup ssh node python t.py": "ssh", "docker exec c python t.py": "docker", "docker run i python t.py": "", "su - me -c x": "su", "su me -c x": "",
		"systemd-run python t.py": "systemd-run", "systemd-run --scope python t.py": "", "env -i python t.py": "env", "env A=1 python t.py": "", "apptainer exec -e x.sif python t.py": "apptainer",
		"apptainer exec x.sif python t.py -e 3": "", "apptainer exec --compat x.sif python t.py": "apptainer",
		"su -w CUDA_VISIBLE_DEVICES - me -c x": "", "ollama run m": "ollama", "ollama serve": "", "python t.py": "",
	} {
		words := strings.Fields(line)
		_, at, ok := FindDropper(words)
		if ok != (want != "") || ok && words[at] != want {
			t.Errorf("%s: %v at %d, want %q", line, ok, at, want)
		}
	}
}

// TestStart: the program in the end, and what it gets.
func TestStart(t *testing.T) {
	for line, want := range map[string]string{
		"apptainer exec --nv --env A=1 x.sif python t.py": "python A", "apptainer exec --env A=1,B=2 x.sif python t.py": "python",
		"systemd-run --user -E A=1 python t.py": "python A", "sudo -E A=1 nice -n 5 torchrun t.py": "torchrun A", "srun ./x": "srun", "env -u A -i B=1 $P": " A * B", "": "",
	} {
		words := strings.Fields(line)
		s := FindProgram(words)
		got := s.Name(words)
		for _, c := range s.Changes {
			got += " " + c.Name
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestOfImage(t *testing.T) {
	for image, want := range map[string]string{
		"vllm/vllm-openai": "vllm serve", "docker.io/vllm/vllm-openai:v0.11": "vllm serve", "localhost:5000/vllm": "", "ghcr.io/huggingface/text-generation-inference:3@sha256:1": "text-generation-launcher", "": "",
	} {
		if got := strings.Join(ProgramOfImage(image), " "); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
}
