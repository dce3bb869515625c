package lint

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/check"
)

func fractionsOverOne() Rule {
	return Rule{
		Page: check.Page{
			Code:  "fractions-over-one",
			Title: "Programs that run at the same time want more than one GPU's memory",
			Text: "vLLM and JAX reserve a share of the whole GPU's memory when they start: vLLM 0.9 unless `--gpu-memory-utilization` says less, JAX what XLA_CLIENT_MEM_FRACTION says. Two programs on one GPU whose shares add up to more than 1 cannot both start.\n\n" +
				"Give each a smaller share, so that the sum stays below 1, or a GPU of its own.",
			From: []string{"https://docs.vllm.ai/en/stable/cli/serve/", "vllm-project/vllm: vllm/engine/arg_utils.py", "https://docs.jax.dev/en/latest/gpu_memory_allocation.html"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"serve.sh", "#!/bin/bash\nvllm serve first --port 8001 --gpu-memory-utilization 0.6 &\nvllm serve second --port 8002 --gpu_memory_utilization=0.6 &\nwait\n"},
			{"default.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0 vllm serve first --port 8001 &\nCUDA_VISIBLE_DEVICES=0 python -m vllm.entrypoints.openai.api_server --model second --port 8002 &\nwait\n"},
			{"jax.sh", "#!/bin/bash\nexport XLA_CLIENT_MEM_FRACTION=.6\nCUDA_VISIBLE_DEVICES=1 python a.py &\nCUDA_VISIBLE_DEVICES=1 python b.py &\nwait\n"},
		},
		Good: []Example{
			{"serve.sh", "#!/bin/bash\nvllm serve first --port 8001 --gpu-memory-utilization 0.45 &\nvllm serve second --port 8002 --gpu-memory-utilization=0.45 &\nwait\n"},
			{"apart.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0 vllm serve first --port 8001 &\nCUDA_VISIBLE_DEVICES=1 vllm serve second --port 8002 &\nwait\n"},
			{"turns.sh", "#!/bin/bash\nvllm serve first --port 8001 &\nserver=$!\npython bench.py\nkill \"$server\"\nwait\nvllm serve second --port 8001 &\npython bench.py\nkill $!\n"},
			{"stopped.sh", "#!/bin/bash\nfinish() { ps aux | grep vllm | awk '{print $2}' | xargs kill -9; }\nvllm serve first &\npython bench.py\nfinish\nvllm serve second &\npython bench.py\npgrep -f vllm | xargs -r kill\nvllm serve third &\npython bench.py\n./stop_server.sh\nvllm serve fourth &\n"},
			{"machines.sh", "#!/bin/bash\nsrun --nodes=1 --ntasks=1 -w \"$first\" vllm serve model &\nsrun --nodes=1 --ntasks=1 -w \"$second\" vllm serve model &\nwait\n"},
			{"choice.sh", "#!/bin/bash\ncase $1 in\nsmall) vllm serve first & ;;\nlarge) vllm serve second & ;;\nesac\nwait\n"},
		},
		Look: lookFractions,
	}
}

// share is one program's part of the memory of the GPUs that it uses.
type share struct {
	at      Place
	part    float64
	devices []string
}

func lookFractions(f File) []Finding {
	a := lookAround(f)
	var all []Finding
	var running []share
	own := map[string]bool{} // functions of the script, which may end what runs
	for _, s := range f.Steps {
		own[s.Name] = own[s.Name] || s.Do == Define
	}
	shell, in := 0, ""
	for i, s := range f.Steps {
		if s.Do != Command {
			continue
		}
		if s.Shell != shell || s.In != in || ends(s) || len(s.Words) > 0 && own[s.Words[0].Text] {
			running, shell, in = nil, s.Shell, s.In
			if ends(s) {
				continue
			}
		}
		part, ok := shareOf(a, i)
		if !ok || s.Maybe || !inShell(f, s) {
			continue
		}
		device, sum := crowded(append(running, part))
		if sum > 1.001 && len(running) > 0 && part.part <= 1 {
			all = append(all, Finding{Finding: check.Finding{Code: "fractions-over-one", Severity: check.Error,
				Seen: fmt.Sprintf("with those still running before it, programs want %.2g of the memory of GPU %s", sum, device),
				Why:  "each reserves its share of the whole GPU when it starts, so the last one finds too little", Do: "give each a share so that the sum is below 1, or a GPU of its own"}, At: part.at})
			running = nil
			continue
		}
		if s.Beside {
			running = append(running, part)
		}
	}
	return all
}

// ends reports whether a command may end what runs in the background, or waits for it.
func ends(s Step) bool {
	if len(s.Words) == 0 {
		return false
	}
	name := strings.ToLower(s.Words[0].Text)
	return slices.Contains([]string{"wait", "fuser", "exit", "ssh"}, name) || mentions(path.Base(name), "kill", "stop", "clean", "down", "terminat", "quit") ||
		slices.ContainsFunc(s.Words, func(w Word) bool {
			return w.Text == "kill" || w.Text == "pkill" || w.Text == "stop" || w.Text == "down"
		})
}

func crowded(all []share) (device string, most float64) {
	sum := map[string]float64{}
	for _, s := range all {
		for _, d := range s.devices {
			if sum[d] += s.part; sum[d] > most {
				device, most = d, sum[d]
			}
		}
	}
	return device, most
}

// shareOf returns what part of which GPUs a program reserves; ok is false if it reserves none, or if the GPUs are
// unknown.
func shareOf(a around, i int) (share, bool) {
	s := a.Steps[i]
	p := started(s)
	mask, masked := a.maskOf(i, p)
	l, launched := asLaunch(s)
	vllm := launched && l.kind == "vllm" && (p.name != "vllm" || len(l.own) > 0 && l.own[0].Text == "serve")
	if slices.Contains(p.by, "srun") {
		return share{}, false // Slurm gives each step devices of its own
	}
	part := share{at: s.At}
	switch {
	case vllm:
		part.part = 0.9
		if v, ok := option(l.args, "gpu-memory-utilization"); ok {
			n, err := strconv.ParseFloat(v.Text, 64)
			if err != nil || !v.Known {
				return share{}, false
			}
			part.part, part.at = n, v.At
		}
	case p.usesGPUs():
		for _, name := range []string{"XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"} {
			if v, ok := a.effective(i, p, name); ok && v.Known {
				n, err := strconv.ParseFloat(strings.TrimSpace(v.Text), 64)
				if err != nil {
					return share{}, false
				}
				part.part = n
			}
		}
		if part.part <= 0 || part.part > 1 { // more than one is for unified memory
			return share{}, false
		}
	default:
		return share{}, false
	}
	count := 1
	if n, ok := l.processes(); vllm && ok {
		count = n
	}
	if masked {
		if _, known := devices(mask); !known || hides(mask) {
			return share{}, false
		}
		part.devices = strings.Split(mask.Text, ",")
		if vllm {
			part.devices = part.devices[:min(count, len(part.devices))]
		}
		return part, true
	}
	if _, sure := a.inherited(i, "CUDA_VISIBLE_DEVICES"); !sure {
		return share{}, false
	}
	for d := range count {
		part.devices = append(part.devices, strconv.Itoa(d))
	}
	return part, true
}
