package linter

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/check"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
)

// lintFiles lints a folder with these files, and shows the findings of a code as "path: severity by itself: what was seen".
func lintFiles(t *testing.T, code string, texts map[string]string) (shown []string) {
	t.Helper()
	root := t.TempDir()
	for name, text := range texts {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := Options{Paths: []string{root}, Preview: true, Env: visible.Env(os.Environ())}.lookThrough(t.Context())
	if err != nil || len(r.Problems)+len(r.Skipped) > 0 {
		t.Fatalf("%v, %v, %v", err, r.Problems, r.Skipped)
	}
	for _, f := range r.Findings {
		if f.Code == code {
			below, err := filepath.Rel(root, f.Path)
			if err != nil {
				t.Fatal(err)
			}
			shown = append(shown, below+": "+string(f.Severity)+": "+f.Seen)
		}
	}
	return shown
}

// TestOnce: a fixed port is said once in a repository, with how many further places have one; in each of two.
func TestOnce(t *testing.T) {
	const script = "#!/bin/bash\ntorchrun --nproc_per_node 2 --master_port 29511 train.py\n"
	got := lintFiles(t, "master-port-fixed", map[string]string{
		"a/.git/HEAD": "", "a/1.sh": script, "a/deep/2.sh": script, "a/deep/3.sh": script,
		"b/.git/HEAD": "", "b/1.sh": script,
	})
	want := "a/1.sh: info: the processes always meet at port 29511; the same in 2 further places of the repository\n" +
		"b/1.sh: info: the processes always meet at port 29511"
	if strings.Join(got, "\n") != want {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), want)
	}
}

// TestOnceInFile: one misspelt name is said once in a file, with the lines of all places; not those that are silenced, or less bad.
func TestOnceInFile(t *testing.T) {
	gate.Need(t, "python3")
	for text, want := range map[string]string{
		"CUDA_VISIBLE_DEVICE=1 python a.py\nCUDA_VISIBLE_DEVICE=2 python b.py\n\nCUDA_VISIBLE_DEVICE=3 python c.py\n": "CUDA_VISIBLE_DEVICE is no variable that anything reads; the same in lines 3, 5",
		"CUDA_VISIBLE_DEVICE=1 python a.py # gpuard:ignore variable-misspelt\nCUDA_VISIBLE_DEVICE=2 python b.py\n":    "CUDA_VISIBLE_DEVICE is no variable that anything reads",
		"CUDA_VISIBLE_DEVICE=1 python a.py\nCUDA_VISIBLE_DEVICE=2 python b.py # gpuard:ignore variable-misspelt\n":    "CUDA_VISIBLE_DEVICE is no variable that anything reads",
		"CUDA_VISIBLE_DEVICE=0 python a.py\nCUDA_VISIBLE_DEVICE=2 python b.py\n":                                      "CUDA_VISIBLE_DEVICE is no variable that anything reads, CUDA_VISIBLE_DEVICE is no variable that anything reads",
	} {
		var seen []string
		for _, f := range look(t, false, lay(t, map[string]string{"run.sh": "#!/bin/bash\n" + text})).Findings {
			seen = append(seen, f.Seen)
		}
		if got := strings.Join(seen, ", "); got != want {
			t.Errorf("%s\n got %q\nwant %q", text, got, want)
		}
	}
}

// TestOnceForEachName: an old name is said once in a repository, another one for itself.
func TestOnceForEachName(t *testing.T) {
	const wait, trace = "#!/bin/bash\nexport NCCL_BLOCKING_WAIT=1\ntorchrun train.py\n", "#!/bin/bash\nexport NCCL_DESYNC_DEBUG=1\ntorchrun train.py\n"
	got := lintFiles(t, "variable-old-name", map[string]string{".git/HEAD": "", "1.sh": wait, "2.sh": trace, "deep/3.sh": wait})
	want := "1.sh: info: NCCL_BLOCKING_WAIT is an old name; the same in 1 further place of the repository\n2.sh: info: NCCL_DESYNC_DEBUG is an old name"
	if strings.Join(got, "\n") != want {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), want)
	}
}

// TestPinned: the old name of a function is no finding where the project asks for a PyTorch that does not know the new
// one: in the folder, or in the nearest one above that says so.
func TestPinned(t *testing.T) {
	gate.Need(t, "python3")
	const program = "import torch\nscaler = torch.cuda.amp.GradScaler()\n"
	for _, c := range []struct {
		file, text string
		silent     bool
	}{
		{"requirements.txt", "numpy\ntorch==1.13.1+cu117\n", true},
		{"requirements.txt", "torch>=1.10,<2.1\n", true},
		{"requirements.txt", "torch<2.4\n", true},
		{"requirements.txt", "torch>=1.10\n", true},
		{"requirements.txt", "torch>=2.4\n", false},
		{"requirements.txt", "torch\n", false},
		{"requirements.txt", "torch==2.4.0\n", false},
		{"requirements.txt", "torch==1.13.1\ntorch==2.6.0\n", false},
		{"requirements.txt", "mytorch==1.0\nptorch==1.0\n", false},
		{"requirements-gpu.txt", "torch~=2.1.0\n", true},
		{"environment.yml", "dependencies:\n  - pytorch=1.7.1=py3.8_cuda11\n", true},
		{"Dockerfile", "FROM pytorch/pytorch:1.9.0-cuda11.1-cudnn8-devel\n", true},
		{"Dockerfile", "FROM nvcr.io/nvidia/pytorch:22.09-py3\n", true},
		{"docker/Dockerfile", "FROM nvcr.io/nvidia/pytorch:22.09-py3\n", true},
		{"docker/Dockerfile", "FROM nvcr.io/nvidia/pytorch:24.12-py3\n", false},
		{"README.md", "Tested with **PyTorch** 1.7.1 and Python 3.8.\n", true},
		{"README.md", "Requires PyTorch >= 1.8 (or PyTorch 2.6).\n", false},
		{"README.md", "We run it in NVIDIA's PyTorch 20.06-py3 container.\n", true},
		{"Dockerfile", "FROM nvcr.io/nvidia/pytorch:24.12-py3\n", false},
		{"README.md", "We use cuda 11.1/python 3.7/torch 1.9.1.\n", true},
		{"README.md", "conda install pytorch torchvision cudatoolkit=11.3 -c pytorch\n", true},
		{"README.md", "conda create -n a python=3.7\n", true},
		{"README.md", "conda create -n a python=3.10\n", false},
		{"README.md", "conda install pytorch==1.10.1 torchvision==0.11.2\n", true},
		{"pkg/requirements.txt", "torch==2.5\n", false},
		{"Pipfile", "[packages]\ntorch = \"==1.10.1\"\n", true},
		{"Pipfile", "[packages]\ntorch = {version = \"==2.6.0\", index = \"pytorch\"}\n", false},
		{"Pipfile.lock", "{\"default\": {\n\"torch\": {\n\"hashes\": [\"sha256:0\"],\n\"version\": \"==1.10.1\"}}}\n", true},
		{"pyproject.toml", "[tool.poetry.dependencies]\ntorch = \"^1.13\"\n", true},
		{"pyproject.toml", "[tool.poetry.dependencies]\ntorch = \"^2.1\"\n", false},
		{"poetry.lock", "[[package]]\nname = \"torch\"\nversion = \"2.0.1\"\n", true},
		{"poetry.lock", "[[package]]\nname = \"torchmetrics\"\nversion = \"1.0.1\"\n", false},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			got := lintFiles(t, "pytorch-old-name", map[string]string{".git/HEAD": "", "pkg/train.py": program, c.file: c.text})
			if c.silent != (len(got) == 0) {
				t.Errorf("%s with %q: %q", c.file, c.text, got)
			}
		})
	}
}

// TestPinnedVariable: PyTorch 2.2 is the first that knows the new names of its variables.
func TestPinnedVariable(t *testing.T) {
	gate.Need(t, "python3")
	for _, c := range []struct {
		file, text, name string
		want             int
	}{
		{"Pipfile", "torch = \"==1.10.1\"\n", "NCCL_ASYNC_ERROR_HANDLING", 0},
		{"Pipfile", "torch = \"==2.2.0\"\n", "NCCL_ASYNC_ERROR_HANDLING", 1},
		{"Pipfile", "", "NCCL_ASYNC_ERROR_HANDLING", 1},
		{"Dockerfile", "FROM nvcr.io/nvidia/mxnet:20.06-py3\n", "NCCL_MAX_NRINGS", 0},
		{"Dockerfile", "FROM nvcr.io/nvidia/pytorch:23.05-py3\n", "NCCL_MAX_NRINGS", 1},
		{"Dockerfile", "FROM nvcr.io/nvidia/pytorch:23.05-py3\n", "NCCL_ASYNC_ERROR_HANDLING", 0},
		{"jobs/requirements.txt", "torch==1.6.0\n", "NCCL_LL_THRESHOLD", 0},
		{"jobs/requirements.txt", "torch==1.7.0\n", "NCCL_LL_THRESHOLD", 1},
	} {
		script := "#!/bin/bash\nexport " + c.name + "=1\ntorchrun train.py\n"
		got := lintFiles(t, "variable-old-name", map[string]string{".git/HEAD": "", "jobs/run.sh": script, c.file: c.text})
		if len(got) != c.want {
			t.Errorf("%s with %q and %s: %q", c.file, c.text, c.name, got)
		}
	}
}

// TestOwnVariable: a name that another file of the repository reads is its own, and no mistake.
func TestOwnVariable(t *testing.T) {
	gate.Need(t, "python3")
	const env = "export CUDA_VISIBLE_DEVICE=1\n"
	for name, c := range map[string][2]string{
		"shell":  {"train.sh", ". ./env.sh\npython main.py --gpu ${CUDA_VISIBLE_DEVICE}\n"},
		"Python": {"launch.py", "import os\ndevice = 'cuda:' + os.environ.get('CUDA_VISIBLE_DEVICE', '0')\n"},
		"make":   {"Makefile", "t:\n\tpython t.py --gpu $(CUDA_VISIBLE_DEVICE)\n"},
	} {
		got := lintFiles(t, "variable-misspelt", map[string]string{".git/HEAD": "", "env.sh": env, c[0]: c[1]})
		if want := "env.sh: info: CUDA_VISIBLE_DEVICE is a variable of this repository alone: " + c[0] + " reads it"; !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	printed := map[string]string{".git/HEAD": "", "env.sh": env, "show.sh": "echo using $CUDA_VISIBLE_DEVICE\n"}
	if got := lintFiles(t, "variable-misspelt", printed); len(got) != 1 || !strings.Contains(got[0], ": error: ") {
		t.Errorf("printed: %q", got)
	}
}

// TestStartedWithList: where a script starts the program with a list, one that is written too late does no harm, and one in time would.
func TestStartedWithList(t *testing.T) {
	gate.Need(t, "python3")
	const late = "import os, torch\nprint(torch.cuda.is_available())\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\ntorch.nn.Linear(2, 2).cuda()\n"
	for script, want := range map[string]string{
		"for i in 0 1; do\n\tCUDA_VISIBLE_DEVICES=$i python -u ./eval.py &\ndone\n": "info",
		"export CUDA_VISIBLE_DEVICES=2\npython src/eval.py\n":                       "info",
		"python eval.py\nCUDA_VISIBLE_DEVICES=0 python train.py\n":                  "warning",
		"CUDA_VISIBLE_DEVICES=0 python my_eval.py\n":                                "warning",
		"echo CUDA_VISIBLE_DEVICES=0\npython eval.py\n":                             "warning",
		"CUDA_VISIBLE_DEVICES= python eval.py\n":                                    "warning",
		"CUDA_VISIBLE_DEVICES=0 black src/eval.py\n":                                "warning",
		"NVIDIA_VISIBLE_DEVICES=0 python eval.py\n":                                 "warning",
		"CUDA_VISIBLE_DEVICES=0 python other/eval.py\n":                             "warning",
		"CUDA_VISIBLE_DEVICES=0 \\\n  LR=1 python3 -u ./src/eval.py\n":              "info",
		"# export CUDA_VISIBLE_DEVICES=0\npython eval.py\n":                         "warning",
		"CUDA_VISIBLE_DEVICES=0 python train.py\npython eval.py\n":                  "warning",
	} {
		got := lintFiles(t, "late-assignment", map[string]string{".git/HEAD": "", "src/eval.py": late, "z.sh": script})
		if len(got) != 1 || !strings.HasPrefix(got[0], "src/eval.py: "+want+": ") {
			t.Errorf("%q: %q", script, got)
		}
	}
	// Each line of a recipe has a shell of its own.
	made := map[string]string{".git/HEAD": "", "src/eval.py": late, "Makefile": "t:\n\texport CUDA_VISIBLE_DEVICES=0\n\tpython src/eval.py\n"}
	if got := lintFiles(t, "late-assignment", made); len(got) != 1 || !strings.HasPrefix(got[0], "src/eval.py: warning: ") {
		t.Errorf("a recipe: %q", got)
	}
}

// TestCopied: in a copy of another project's program mistakes are found, and remarks are not.
func TestCopied(t *testing.T) {
	gate.Need(t, "python3")
	const program = "import os, torch\nscaler = torch.cuda.amp.GradScaler()\nos.environ['CUDA_VISIBLE_DEVICES'] = '0-3'\n"
	texts := map[string]string{".git/HEAD": "", "fairseq/setup.py": "", "fairseq/tasks/a.py": program, "transformers/b.py": program, "archive/2023/c.py": program, "retired/d.py": program}
	if got := lintFiles(t, "pytorch-old-name", texts); len(got) != 1 || !strings.HasPrefix(got[0], "transformers/b.py: ") {
		t.Errorf("remarks: %q", got)
	}
	const seen = ": CUDA_VISIBLE_DEVICES=0-3 shows GPU 0 alone"
	want := []string{"archive/2023/c.py: info" + seen, "fairseq/tasks/a.py: error" + seen, "retired/d.py: info" + seen, "transformers/b.py: error" + seen}
	got := lintFiles(t, "mask-range", texts)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("mistakes: %q", got)
	}

	const workflow = "on: push\njobs:\n  a:\n    runs-on: gpu\n    steps:\n      - run: docker run --gpus 0 image\n"
	texts = map[string]string{".git/HEAD": "", ".github/workflows/a.yml": workflow, "old/.github/workflows/b.yml": workflow,
		"copies/transformers-main/setup.py": "", "copies/transformers-main/run.sh": "docker run --gpus 0 image\n",
		"fairseq-0.10.2/setup.py": "", "fairseq-0.10.2/run.sh": "docker run --gpus 0 image\n"}
	if got := lintFiles(t, "gpus-zero", texts); len(got) != 1 || !strings.HasPrefix(got[0], ".github/") {
		t.Errorf("workflows that run, and copies by the name of an archive: %q", got)
	}
}

// TestPage: nothing runs from a page, so no finding in one is an error, and most are remarks.
func TestPage(t *testing.T) {
	text := "```bash\nCUDA_VISIBLE_DEVICES=0-3 python train.py\n```\n\n```bash\ntorchrun train.py \\ \n  --rate 0.1\n```\n\n" +
		"```bash\ntorchrun train.py \\ \n```\n"
	path := filepath.Join(t.TempDir(), "README.md")
	err := os.WriteFile(path, []byte(text), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	r, err := RunLint(t.Context(), Options{Paths: []string{path}, Docs: true, Env: visible.Env(os.Environ())})
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]check.Severity{2: check.Info, 6: check.Warning, 11: check.Info}
	if len(r.Findings) != len(want) {
		t.Errorf("%d findings: %s", len(r.Findings), told(r.Findings))
	}
	for _, f := range r.Findings {
		if f.Severity != want[f.Line] {
			t.Errorf("line %d is %s, want %q", f.Line, f.Severity, want[f.Line])
		}
	}
}
