package launchers

import (
	"strings"
	"testing"
)

// TestDoubts: what each program does with the GPUs that it is given, by a command line that leaves them, one that may,
// and a right one, which passes in silence.
func TestDoubts(t *testing.T) {
	const sure, maybe, silent = "sure", "maybe", "silent"
	for _, c := range []struct {
		command string
		gpus    int
		want    string
		says    string
	}{
		{"env CUDA_VISIBLE_DEVICES=0 mtools", 1, sure, "leave that out: mtools"},
		{"nohup env HIP_VISIBLE_DEVICES=1 python t.py", 1, maybe, "leave that out: nohup python t.py"},
		{"env CUDA_VISIBLE_DEVICES=0 python t.py", 0, sure, "itself"},
		{"env CUDA_VISIBLE_DEVICES= python t.py", 1, maybe, "--cpu"},
		{"env -u CUDA_VISIBLE_DEVICES python t.py", 1, sure, "every GPU"},
		{"env -i python t.py", 1, sure, "empties"},
		{"env CUDA_DEVICE_ORDER=PCI_BUS_ID python t.py", 1, silent, ""},
		{"env CUDA_VISIBLE_DEVICES=$MINE python t.py", 1, silent, ""},
		{"bash job.sh", 1, silent, ""},
		{"accelerate launch --gpu_ids 0,1 t.py", 2, sure, "accelerate launch t.py"},
		{"accelerate launch --gpu_ids=all t.py", 2, silent, ""},
		{"accelerate launch --num_processes 4 t.py", 2, maybe, "4 GPUs"},
		{"accelerate launch --num_processes 2 t.py", 2, silent, ""},
		{"deepspeed --include localhost:0 t.py", 1, sure, "--include"},
		{"deepspeed t.py --deepspeed ds.json", 1, silent, ""},
		{"torchrun --nproc_per_node=4 t.py", 2, maybe, "given 2"},
		{"torchrun --nproc_per_node=2 t.py", 2, silent, ""},
		{"python -m torch.distributed.run --nproc-per-node 2 t.py", 1, maybe, "2 GPUs"},
		{"torchrun --nproc_per_node=gpu t.py", 2, silent, ""},
		{"horovodrun -np 2 python t.py", 1, maybe, "2 GPUs"},
		{"vllm serve m --tensor-parallel-size 2 --pipeline-parallel-size 2", 2, maybe, "4 GPUs"},
		{"vllm serve m -tp 2", 2, silent, ""},
		{"python -m sglang.launch_server --tp 2 --model m", 1, maybe, "2 GPUs"},
		{"lmdeploy serve api_server m --tp 2", 1, maybe, "2 GPUs"},
		{"text-generation-launcher --num-shard 2", 1, maybe, "2 GPUs"},
		{"python main.py --cuda-device 1", 1, maybe, "--cuda-device"},
		{"python main.py --listen", 1, silent, ""},
		{"yolo train model=yolo11n.pt device=1", 1, sure, "device="},
		{"yolo train model=yolo11n.pt", 1, silent, ""},
		{"llama-server -m m.gguf -sm none -mg 1", 1, maybe, "number 1 of the 1"},
		{"llama-server -m m.gguf", 1, silent, ""},
		{"ffmpeg -hwaccel cuda -hwaccel_device 1 -i a.mp4 b.mp4", 1, maybe, "number 1"},
		{"ffmpeg -hwaccel cuda -hwaccel_device 0 -i a.mp4 b.mp4", 1, silent, ""},
		{"ollama run llama3", 1, maybe, "ollama serve"},
		{"ollama serve", 1, silent, ""},
		{"ssh node7 python t.py", 1, sure, "there"},
		{"kubectl exec pod -- python t.py", 1, sure, "there"},
		{"systemd-run --user python t.py", 1, sure, "--setenv"},
		{"systemd-run --user --scope python t.py", 1, silent, ""},
		{"su - alice -c|python t.py", 1, maybe, "su"},
		{"sudo python t.py", 1, maybe, "--preserve-env"},
		{"sudo -E python t.py", 1, silent, ""},
		{"apptainer exec --nv --cleanenv x.sif python t.py", 1, sure, "apptainer"},
		{"apptainer exec --nv x.sif python t.py", 1, silent, ""},
		{"ssh node7 python t.py", 0, silent, ""},
		{"python t.py --device cuda", 1, silent, ""},
		{"", 1, silent, ""},
		{"env CUDA_VISIBLE_DEVICES=0 HIP_VISIBLE_DEVICES=0 sh -c|python a.py; rm -rf out", 1, sure, "leave that out: sh -c python a.py; rm -rf out"},
		{"env CUDA_VISIBLE_DEVICES= python t.py", 0, silent, ""},
		{"env CUDA_VISIBLE_DEVICES=0 CUDA_VISIBLE_DEVICES=$MINE python t.py", 1, silent, ""},
		{"apptainer exec --nv --env CUDA_VISIBLE_DEVICES=0 img.sif python x.py", 1, sure, "CUDA_VISIBLE_DEVICES=0 itself"},
		{"apptainer exec --nv --env=CUDA_VISIBLE_DEVICES=0 img.sif python x.py", 1, sure, "CUDA_VISIBLE_DEVICES=0 itself"},
		{"apptainer exec --nv /images/sandbox python x.py -e 5", 1, silent, ""},
		{"singularity run --nv mycontainer train -e 10", 1, silent, ""},
		{"apptainer pull -C x", 1, silent, ""},
		{"systemd-run --user --setenv CUDA_VISIBLE_DEVICES=0 python x.py", 1, sure, "CUDA_VISIBLE_DEVICES=0 itself"},
		{"yolo train device=cpu", 1, silent, ""},
		{"yolo help device=0", 1, silent, ""},
		{"nvidia-smi -q -i 0 -d POWER", 1, silent, ""},
		{"deepspeed --num_gpus 2 --help", 1, silent, ""},
		{"gmx mdrun -gpu_id 0123", 4, silent, ""},
		{"gmx mdrun -gpu_id 02", 1, maybe, "number 2"},
		{"llama-server --device CUDA5", 1, maybe, "number 5"},
		{"dorado basecaller --device cuda:0,1 sup in", 1, maybe, "number 1"},
		{"mpirun -np 8 ./cpu_solver", 1, silent, ""},
		{"accelerate launch --cpu --num_processes 4 t.py", 1, silent, ""},
		{"torchrun --nproc_per_node=4 train.py --device cpu", 1, silent, ""},
		{"python main.py train --cuda_device cuda", 1, silent, ""},
		{"python tools/launch.py --device-id 1", 1, silent, ""},
		{"sudo nvidia-smi", 1, silent, ""},
		{"sudo systemctl restart x", 1, silent, ""},
		{"sudo FOO=1 python x.py", 1, maybe, "sudo"},
		{"env PET_NPROC_PER_NODE=1 torchrun x.py", 1, silent, ""},
		{"ssh -N -L 8888:localhost:8888 box", 1, silent, ""},
		{"ssh host gpuard run -- python t.py", 1, silent, ""},
	} {
		// what stands behind | is one word
		first, last, more := strings.Cut(c.command, "|")
		words := strings.Fields(first)
		if more {
			words = append(words, last)
		}
		got, text := silent, ""
		found := Doubts(words, c.gpus, nil)
		if len(found) > 0 {
			got, text = maybe, found[0].Seen+"; "+found[0].Do+": "+strings.Join(found[0].Command, " ")
			if found[0].Sure {
				got = sure
			}
		}
		if got != c.want || !strings.Contains(text, c.says) {
			t.Errorf("%s on %d GPUs: %s %q, not %s %q", c.command, c.gpus, got, text, c.want, c.says)
		}
	}
}
