package lint

import (
	"fmt"

	"gpuard/internal/core/check"
)

func forkedRule() Rule {
	return Rule{
		Page: check.Page{
			Code:  codeForked,
			Title: "A forked worker sets a variable that its parent's driver has read already",
			Text: "A process that is made by fork takes over its parent's memory. Where the parent has started the driver, the worker's `CUDA_VISIBLE_DEVICES` " +
				"is not read again, and CUDA does not work in the worker at all: PyTorch says \"Cannot re-initialize CUDA in forked subprocess\".\n\n" +
				"Use the start method `spawn` (`torch.multiprocessing.spawn`, `multiprocessing.get_context(\"spawn\")`), or do nothing with the GPU in the parent. " +
				"fork is what Python chooses on Linux before version 3.14.",
			From: []string{
				"https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#cuda-in-multiprocessing", "pytorch/pytorch: torch/cuda/__init__.py (_lazy_init)",
				"https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods",
			},
		},
		Severity: check.Error,
		Bad: []Example{{"workers.py", "import os\nimport torch\nfrom multiprocessing import Process\n\n\ndef work(rank):\n    os.environ[\"CUDA_VISIBLE_DEVICES\"] = str(rank)\n    torch.zeros(1).cuda()\n\n\n" +
			"if __name__ == \"__main__\":\n    print(torch.cuda.get_device_name(0))\n    for rank in range(2):\n        Process(target=work, args=(rank,)).start()\n"}},
		Good: []Example{{"workers.py", "import os\nimport torch\nimport torch.multiprocessing as mp\n\n\ndef work(rank):\n    os.environ[\"CUDA_VISIBLE_DEVICES\"] = str(rank)\n    torch.zeros(1).cuda()\n\n\n" +
			"if __name__ == \"__main__\":\n    print(torch.cuda.get_device_name(0))\n    mp.spawn(work, nprocs=2)\n"}},
		Look: forked,
	}
}

func forked(f File) (all []Finding) {
	if !f.forks() {
		return nil
	}
	seen := map[Place]bool{}
	own := map[string][]moment{}
	ways := flows(f)
	for _, w := range ways {
		if w.worker && len(w.moments) > 0 {
			own[w.moments[0].In] = w.moments
		}
	}
	for _, w := range ways {
		torch := false
		var started []moment
		for _, m := range w.moments {
			torch = torch || m.Do == Import && library(m.Name) == "torch"
			if m.starts(torch, false) != "" {
				started = append(started, m)
			}
			if m.starter() != "fork" {
				continue
			}
			for _, parent := range started {
				if !parent.surely(m) || !parent.reaches(m) {
					continue
				}
				for _, a := range m.Args {
					for _, s := range own[a.Ref] {
						by, _ := frozen(s.Name)
						if s.Do != Set || by != "driver" || seen[s.At] {
							continue
						}
						seen[s.At] = true
						all = append(all, Finding{Finding: check.Finding{Code: codeForked, Severity: check.Error,
							Seen: fmt.Sprintf("%s is set in a worker that is forked after %s in line %d started the driver", s.Name, parent.called(), parent.At.Line),
							Why:  "the worker takes over a driver that has read the variable, and cannot start it again",
							Do:   "start the workers with the method spawn, or do nothing with the GPU before they are started"}, At: s.At})
					}
				}
			}
		}
	}
	return all
}
