package lint

import (
	"strings"
	"testing"
	"time"
)

// command makes a step of words without quotes; a word with $ is computed.
func command(text string) Step {
	s := Step{Do: Command, At: Place{Line: 1, Column: 1, EndLine: 1, EndColumn: 1 + len(text)}}
	column := 1
	for _, word := range strings.Split(text, " ") {
		at := Place{Line: 1, Column: column, EndLine: 1, EndColumn: column + len(word)}
		s.Words = append(s.Words, Word{Text: word, Known: !strings.Contains(word, "$"), At: at, Raw: word})
		column += len(word) + 1
	}
	return s
}

func TestStarted(t *testing.T) {
	for _, c := range []struct{ line, name, args, set, dropped string }{
		{"python train.py", "python", "train.py", "", ""},
		{"/opt/venv/bin/python3.12 -u train.py", "python3.12", "-u train.py", "", ""},
		{"env -i A=1 B=2 python x", "python", "x", "*,A,B", ""},
		{"env -u A --chdir /tmp -C /tmp python x", "python", "x", "A", ""},
		{"env -u A -C /tmp python x", "python", "x", "A", ""},
		{"sudo -u me -n A=1 nohup nice -n 10 python x", "python", "x", "A", "B"},
		{"sudo -E python x", "python", "x", "", ""},
		{"sudo --preserve-env=B,C python x", "python", "x", "", "A"},
		{"exec timeout -k 5 2h stdbuf -oL python x", "python", "x", "", ""},
		{"time -f %e python x", "python", "x", "", ""},
		{"srun -N 1 --gres gpu:1 env A=1 torchrun x", "torchrun", "x", "A", ""},
		{"srun --gres=gpu:1 ./simulate", "srun", "--gres=gpu:1 ./simulate", "", ""},
		{"conda run -n train python x", "python", "x", "", ""},
		{"conda install python vllm", "conda", "install python vllm", "", ""},
		{"poetry run -q python x", "python", "x", "", ""},
		{"poetry add vllm", "poetry", "add vllm", "", ""},
		{"taskset -c 0-3 python x", "python", "x", "", ""},
		{"$PYTHON train.py", "", "", "", ""},
		{"nohup", "nohup", "", "", ""},
	} {
		p := programOf(command(c.line))
		var args, set []string
		for _, w := range p.args {
			args = append(args, w.Text)
		}
		for _, s := range p.set {
			set = append(set, s.Name)
		}
		if p.name != c.name || strings.Join(args, " ") != c.args || strings.Join(set, ",") != c.set {
			t.Errorf("%s: %q with %q and %q", c.line, p.name, args, set)
		}
		if c.dropped != "" && !p.sudo.dropsVariable(c.dropped) {
			t.Errorf("%s: sudo lets %s through", c.line, c.dropped)
		}
	}
	if p := programOf(command("sudo -E python x")); p.sudo.dropsVariable("A") {
		t.Error("sudo -E drops a variable")
	}
}

func TestUsesGPUs(t *testing.T) {
	for line, want := range map[string]bool{
		"python train.py": true, "python -m train": true, "python3 -u -W ignore train.py": true, "./train.py --epochs 3": true, "torchrun train.py": true, "accelerate launch train.py": true,
		"python -c import_torch": true, "nohup vllm serve m": true, "ray start --head": true,
		"python -m pip install torch": false, "python -m venv .venv": false, "python --version": false, "python setup.py install": false, "python -c print(1)": false, "python": false,
		"accelerate config": false, "ray stop": false, "ollama list": false, "pip install vllm": false, "echo python": false, "torchrun --help": false,
	} {
		if got := programOf(command(line)).usesGPUs(); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

func TestOption(t *testing.T) {
	for line, want := range map[string]string{
		"torchrun --nproc-per-node 4 x": "4", "torchrun --nproc_per_node=4 x": "4", "torchrun --nproc-per-node=4 x": "4", "torchrun --nproc_per_node 4 x": "4", "torchrun -nproc-per-node 4": "4",
		"torchrun --nproc-per-node": "", "torchrun x --other 4": "",
	} {
		if v, _ := findOption(programOf(command(line)).args, "nproc-per-node"); v.Text != want {
			t.Errorf("%s: %q, want %q", line, v.Text, want)
		}
	}
	v, _ := findOption(programOf(command("torchrun --nproc_per_node=12 x")).args, "nproc-per-node")
	if v.At.Column != len("torchrun --nproc_per_node=")+1 || v.Raw != "12" {
		t.Errorf("the value stands at %d as %q", v.At.Column, v.Raw)
	}
}

func TestAsContainer(t *testing.T) {
	for _, c := range []struct{ line, gpus, env, inside string }{
		{"docker run --rm -it --gpus all image python x", "all", "", "python x"},
		{"docker --context far container run --gpus=2 -eA=1 -e B=2 --env=C=3 --env D image", "2", "A B C D", ""},
		{"sudo docker create -itde A=1 --name n image sh", "", "A", "sh"},
		{"podman run --env-host --read-only -p 80:80 -v=/a:/b -e=A=1 image x", "", "A", "x"},
		{"docker run --gpus all $IMAGE --gpus 0", "all", "", "--gpus 0"},
		{"docker run image --gpus 0", "", "", "--gpus 0"},
	} {
		r, ok := readContainerRun(command(c.line))
		if !ok {
			t.Errorf("%s: not read", c.line)
			continue
		}
		var gpus, env, inside []string
		for _, w := range r.gpus {
			gpus = append(gpus, w.Text)
		}
		for _, s := range r.env {
			env = append(env, s.Name)
		}
		for _, w := range r.inside {
			inside = append(inside, w.Text)
		}
		if strings.Join(gpus, " ") != c.gpus || strings.Join(env, " ") != c.env || strings.Join(inside, " ") != c.inside {
			t.Errorf("%s: GPUs %q, variables %q, inside %q", c.line, gpus, env, inside)
		}
	}
	for _, line := range []string{"docker build --gpus all .", "docker ps", "docker", "docker compose run --gpus all x", "python run"} {
		if _, ok := readContainerRun(command(line)); ok {
			t.Errorf("%s: read as the start of a container", line)
		}
	}
}

// TestGPURequest: as docker/cli reads these values (opts/gpus_test.go).
func TestGPURequest(t *testing.T) {
	for text, want := range map[string]struct {
		count   int
		devices string
		loose   bool
	}{
		"all": {-1, "", false}, "2": {2, "", false}, "0": {0, "", false}, "count=3": {3, "", false},
		"device=0": {0, "0", false}, "device=0,2": {2, "0", true}, "device=GPU-a,GPU-b": {0, "GPU-a", true},
		`"device=0,2"`: {0, "0 2", false}, `"device=0,2","capabilities=compute,utility"`: {0, "0 2", false}, `"device=0,2",capabilities=utility`: {0, "0 2", false},
		"": {0, "", false}, `"`: {0, "", false}, `device="0`: {0, `"0`, false},
	} {
		r := parseGPURequest(text)
		if r.count != want.count || strings.Join(r.devices, " ") != want.devices || r.loose != want.loose {
			t.Errorf("%s: %+v", text, r)
		}
	}
}

func TestBatchOf(t *testing.T) {
	for text, want := range map[string]int{
		"gres=gpu:2": 2, "gres=gpu:a100:4": 4, "gres=gpu": 1, "gres=gpu:a100": 1, "gres=shard:4": 0, "gres=gpu:2,tmp:10G": 2, "gpus-per-node=4": 4, "gpus-per-node=h100:8": 8,
		"gpus=4": 4, "gpus=4 nodes=1": 4, "gpus=4 nodes=2": 4, "gres=gpu:2 exclusive=": 0, "gpus-per-task=1": 0, "gpus-per-task=2 ntasks=3": 6, "gres=gpu:$N": 0,
		"pbs.l=ngpus=1": 1, "pbs.l=select=2:ncpus=8:ngpus=4": 8, "pbs.l=nodes=1:ppn=8:gpus=2": 2, "pbs.l=walltime=1,ngpus=2": 2, "pbs.l=select=1:ncpus=4": 0, "pbs.l=select=1:ngpus=2+1:ngpus=1": 3,
		"bsub.gpu=num=2:mode=shared": 2, "bsub.gpu=num=1/task": 0, "sge.l=gpu=1,h_rt=1:0:0": 1, "sge.l=gpu=2 sge.pe=4": 8, "sge.l=gpu=2 sge.pe=2-4": 0,
	} {
		f := File{Kind: Shell, Steps: []Step{{Do: Setting, Name: "shebang"}}}
		for _, word := range strings.Fields(text) {
			name, value, _ := strings.Cut(word, "=")
			if !strings.Contains(name, ".") {
				name = "sbatch." + name
			}
			f.Steps = append(f.Steps, Step{Do: Setting, Name: name, Value: Value{Text: value, Known: true}})
		}
		if b := readBatchRequest(f); b.gpus != want {
			t.Errorf("%s: %d by %s, not %d", text, b.gpus, b.option, want)
		}
	}
}

// TestLongScript: what a rule does for each command must not grow with the length of the script.
func TestLongScript(t *testing.T) {
	f := File{Path: "a.sh", Kind: Shell}
	launch := command("torchrun --nproc_per_node=2 train.py")
	for range 5_000 {
		f.Steps = append(f.Steps, Step{Do: Set, Name: "CUDA_VISIBLE_DEVICES", Exported: true, How: "export", Process: "1/", Value: Value{Text: "0,1", Known: true}}, launch)
	}
	a := indexVariables(f)
	began := time.Now()
	for _, r := range allRules() {
		if found := r.lookAt(a); len(found) > 0 {
			t.Errorf("%s: %d findings", r.Code, len(found))
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("10,000 steps took %s", took)
	}
}
