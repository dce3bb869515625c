package lint

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/prose"
)

const torchCuda = "https://docs.pytorch.org/docs/stable/notes/cuda.html"

func deviceRules() []Rule {
	return []Rule{overrideRule(), cpuRule(), environText()}
}

func overrideRule() Rule {
	const code = "is-available-override"
	return Rule{
		Page: check.Page{
			Code:  code,
			Title: "torch.cuda.is_available is replaced",
			Text: "A program that gives `torch.cuda.is_available` another value keeps PyTorch from nothing: code that does not call it still uses the GPU, and what " +
				"asks believes something that is wrong.\n\n" +
				"To run on the CPU, hide the devices: `CUDA_VISIBLE_DEVICES=-1`, or `gpuard run --cpu -- python train.py`. Tests may replace it; files named like tests are not looked at.",
			From: []string{"https://docs.pytorch.org/docs/stable/generated/torch.cuda.is_available.html", "pytorch/pytorch: torch/cuda/__init__.py"},
		},
		Severity: check.Warning,
		Bad: []Example{
			{"cpu.py", "import torch\ntorch.cuda.is_available = lambda: False\n"},
			{"cpu.py", "import torch.cuda as c\nsetattr(c, \"is_available\", lambda: False)\n"},
		},
		Good: []Example{
			{"cpu.py", "import os\nos.environ[\"CUDA_VISIBLE_DEVICES\"] = \"-1\"\nimport torch\nprint(torch.cuda.is_available())\n"},
			{"test_train.py", "import torch\ntorch.cuda.is_available = lambda: False\n"},
		},
		Look: func(f File) (all []Finding) {
			if name := path.Base(f.Path); strings.HasPrefix(name, "test_") || strings.HasSuffix(name, "_test.py") || name == "conftest.py" {
				return nil
			}
			for _, s := range f.Steps {
				if s.Do == Override && (s.Name == "torch.cuda.is_available" || s.Name == "torch.cuda.device_count") {
					all = append(all, Finding{Finding: check.Finding{Code: code, Severity: check.Warning, Seen: s.Name + " is given another value",
						Why: "code that does not call it still uses the GPU",
						Do:  "hide the devices instead: CUDA_VISIBLE_DEVICES=-1 before the program starts, or gpuard run --cpu"}, At: s.At})
				}
			}
			return all
		},
	}
}

func cpuRule() Rule {
	const code = "set-device-cpu"
	return Rule{
		Page: check.Page{
			Code:  code,
			Title: "torch.cuda.set_device is given the CPU",
			Text: "`torch.cuda.set_device` chooses among CUDA devices. Given `\"cpu\"` it ends with a ValueError; it cannot turn the GPU off.\n\n" +
				"Put the model and the data onto `torch.device(\"cpu\")`, or hide the devices with `CUDA_VISIBLE_DEVICES=-1`.",
			From: []string{"https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_device.html", "pytorch/pytorch: torch/cuda/_utils.py (_get_device_index)"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"cpu.py", "import torch\ntorch.cuda.set_device('cpu')\n"},
			{"cpu.py", "from torch import cuda, device\ncuda.set_device(device(\"cpu\"))\n"},
		},
		Good: []Example{{"cpu.py", "import torch\nmodel = torch.nn.Linear(2, 2).to(\"cpu\")\ntorch.cuda.set_device(0)\n"}},
		Look: func(f File) (all []Finding) {
			for _, s := range f.Steps {
				if a, ok := s.arg(0, "device"); ok && s.Do == Call && s.Name == "torch.cuda.set_device" && a.Value.Known && (a.Value.Text == "cpu" || strings.HasPrefix(a.Value.Text, "cpu:")) {
					all = append(all, Finding{Finding: check.Finding{Code: code, Severity: check.Error, Seen: "torch.cuda.set_device is given the CPU",
						Why: "it takes CUDA devices only and ends with a ValueError",
						Do:  "use torch.device(\"cpu\") for the model and the data, or hide the devices: CUDA_VISIBLE_DEVICES=-1"}, At: s.At})
				}
			}
			return all
		},
	}
}

func indexRule() Rule {
	const code = "device-beyond-mask"
	return Rule{
		Page: check.Page{
			Code: code,
			Text: "In Python the number is that of `cuda:1`, `.cuda(1)`, `torch.cuda.set_device(1)` and their like, where the same file sets the list before.",
			From: []string{torchCuda},
		},
		Bad: []Example{
			{"train.py", "import os\nos.environ[\"CUDA_VISIBLE_DEVICES\"] = \"1\"\nimport torch\nmodel = torch.nn.Linear(2, 2).to(\"cuda:1\")\n"},
			{"train.py", "import os\nos.environ[\"CUDA_VISIBLE_DEVICES\"] = \"2,3\"\nimport torch\ntorch.cuda.set_device(2)\n"},
			{"train.py", "import os\nos.environ[\"CUDA_VISIBLE_DEVICES\"] = \"1\"\nimport torch\ndevice = torch.device(\"cuda:1\" if torch.cuda.is_available() else \"cpu\")\n"},
		},
		Good: []Example{
			{"train.py", "import os\nos.environ[\"CUDA_VISIBLE_DEVICES\"] = \"2,3\"\nimport torch\nmodel = torch.nn.Linear(2, 2).to(\"cuda:1\")\n"},
			{"train.py", "import os\nos.environ.setdefault(\"CUDA_VISIBLE_DEVICES\", \"0\")\nimport torch\nmodel = torch.nn.Linear(2, 2).to(\"cuda:1\")\n"},
		},
		Look: func(f File) (all []Finding) {
			seen := map[Place]bool{}
			torch := slices.ContainsFunc(f.Steps, func(s Step) bool { return s.Do == Import && library(s.Name) == "torch" })
			for _, w := range flows(f) {
				for i, m := range w.moments {
					for _, c := range m.choices() {
						if m.Name == ".to" && !torch && number(c.value.Raw) >= 0 {
							continue // other libraries have such a method too
						}
						if i < w.from || c.index < 0 || seen[c.value.At] || m.counted() {
							continue
						}
						set, entries, ok := visibleAt(w.moments, i)
						if !ok || c.index < len(entries) {
							continue
						}
						seen[c.value.At] = true
						do := "use cuda:0"
						if len(entries) > 1 {
							do = fmt.Sprintf("use a number from 0 to %d", len(entries)-1)
						}
						all = append(all, Finding{Finding: check.Finding{Code: code, Severity: check.Error,
							Seen: fmt.Sprintf("%s names device %d, and CUDA_VISIBLE_DEVICES=%s of line %d leaves %s", m.shown(c.value), c.index, set.Value.Text, set.At.Line, prose.Count(len(entries), "device")),
							Why:  "visible devices are numbered from 0 in the order of the list", Do: do}, At: c.value.At, Edits: c.first(len(entries))})
					}
				}
			}
			return all
		},
	}
}

// unmarked is the name that a value is made of, without the mark of how often it was given another value.
func unmarked(from string) string {
	name, _, _ := strings.Cut(from, "#")
	return name
}

// first writes device 0 instead of a number, if there is only one. The meaning of .to(1) depends on the type of the
// value.
func (c chosen) first(devices int) []Edit {
	old := strconv.Itoa(c.index)
	if devices != 1 || c.method == ".to" && c.value.Raw == old || c.value.Raw != old && c.value.Raw != `"cuda:`+old+`"` && c.value.Raw != "'cuda:"+old+"'" {
		return nil
	}
	return []Edit{{At: c.value.At, Text: strings.Replace(c.value.Raw, old, "0", 1)}}
}

// shown is a call with the one argument that matters.
func (s Step) shown(v Value) string {
	if strings.Contains(v.Raw, "\n") || len(v.Raw) > 40 {
		return s.called()
	}
	return strings.TrimSuffix(s.called(), ")") + v.Raw + ")"
}

func rankRule() Rule {
	const code = "rank-with-own-mask"
	return Rule{
		Page: check.Page{
			Code: code,
			Text: "A Python program that sets its own list to its rank must use device 0 from then on; the same is true of any other number, such as one from the command line, that is used for both. torchrun and Accelerate expect the list to be left alone and `cuda:LOCAL_RANK` to be used.",
			From: []string{"pytorch/pytorch: torch/distributed/run.py"},
		},
		Bad: []Example{
			{"ddp.py", "import os\nos.environ[\"CUDA_VISIBLE_DEVICES\"] = os.environ[\"LOCAL_RANK\"]\nimport torch\ntorch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))\n"},
			{"ddp.py", "import os\nlocal_rank = int(os.getenv(\"LOCAL_RANK\", 0))\nos.environ[\"CUDA_VISIBLE_DEVICES\"] = str(local_rank)\nimport torch\ndevice = torch.device(f\"cuda:{local_rank}\")\n"},
		},
		Good: []Example{
			{"ddp.py", "import os\nimport torch\nlocal_rank = int(os.environ[\"LOCAL_RANK\"])\ntorch.cuda.set_device(local_rank)\n"},
			{"ddp.py", "import os\nos.environ[\"CUDA_VISIBLE_DEVICES\"] = os.environ[\"LOCAL_RANK\"]\nimport torch\ntorch.cuda.set_device(0)\n"},
		},
		Look: func(f File) (all []Finding) {
			seen := map[Place]bool{}
			for _, w := range flows(f) {
				var mask moment
				for i, m := range w.moments {
					if (m.Do == Set || m.Do == Unset) && m.Name == "CUDA_VISIBLE_DEVICES" && m.Shell == 0 {
						mask = m
					}
					for _, c := range m.choices() {
						if i < w.from || c.index >= 0 || mask.Do != Set || mask.Value.Known || mask.Value.From != c.value.From || mask.How == "os.environ.setdefault" ||
							!mask.reaches(m) || !mask.surely(m) || seen[c.value.At] {
							continue
						}
						seen[c.value.At] = true
						all = append(all, Finding{Finding: check.Finding{Code: code, Severity: check.Error,
							Seen: fmt.Sprintf("%s chooses a device by %s, and line %d makes that one the only visible device", m.shown(c.value), unmarked(c.value.From), mask.At.Line),
							Why:  "behind a mask of one device its number is 0, so this works only where " + unmarked(c.value.From) + " is 0",
							Do:   "use device 0 here, or leave CUDA_VISIBLE_DEVICES alone"}, At: c.value.At})
					}
				}
			}
			return all
		},
	}
}
