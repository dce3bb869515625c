package lint

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/check"
)

// memoryShare is one program's part of the memory of the GPUs that it uses.
type memoryShare struct {
	at      Place
	part    float64
	devices []string
}

func lookFractions(f File) (all []Finding) {
	a := indexVariables(f)
	var running []memoryShare

	// Functions of the script, which may end what runs.
	own := map[string]bool{}
	for _, s := range f.Steps {
		own[s.Name] = own[s.Name] || s.Do == Define
	}

	shell, in := 0, ""
	for i, s := range f.Steps {
		if s.Do != Command {
			continue
		}

		if s.Shell != shell || s.In != in || mayEndBackground(s) || len(s.Words) > 0 && own[s.Words[0].Text] {
			running, shell, in = nil, s.Shell, s.In
			if mayEndBackground(s) {
				continue
			}
		}

		part, ok := memoryShareOf(a, i)
		if !ok || s.Maybe || !isFromShell(f, s) {
			continue
		}

		device, sum := fullestDevice(append(running, part))
		if sum > 1.001 && len(running) > 0 && part.part <= 1 {
			all = append(all, Finding{Finding: check.Finding{
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

// mayEndBackground reports whether a command may end what runs in the background, or waits for it.
func mayEndBackground(s Step) bool {
	if len(s.Words) == 0 {
		return false
	}
	name := strings.ToLower(s.Words[0].Text)
	return slices.Contains([]string{"wait", "fuser", "exit", "ssh"}, name) || containsAny(path.Base(name), "kill", "stop", "clean", "down", "terminat", "quit") ||
		slices.ContainsFunc(s.Words, func(w Word) bool {
			return w.Text == "kill" || w.Text == "pkill" || w.Text == "stop" || w.Text == "down"
		})
}

func fullestDevice(all []memoryShare) (device string, most float64) {
	sum := map[string]float64{}
	for _, s := range all {
		for _, d := range s.devices {
			sum[d] += s.part
			if sum[d] > most {
				device, most = d, sum[d]
			}
		}
	}
	return device, most
}

// memoryShareOf returns what part of which GPUs a program reserves; ok is false if it reserves none, or if the GPUs are
// unknown.
func memoryShareOf(a indexedFile, i int) (memoryShare, bool) {
	s := a.Steps[i]
	p := programOf(s)
	mask, masked := a.deviceMask(i, p)
	l, launched := readLaunch(s)
	vllm := launched && l.kind == "vllm" && (p.name != "vllm" || len(l.own) > 0 && l.own[0].Text == "serve")
	if slices.Contains(p.by, "srun") {
		// Slurm gives each step devices of its own.
		return memoryShare{}, false
	}

	part := memoryShare{at: s.At}
	switch {
	case vllm:
		part.part = 0.9
		if v, ok := findOption(l.args, "gpu-memory-utilization"); ok {
			n, err := strconv.ParseFloat(v.Text, 64)
			if err != nil || !v.Known {
				return memoryShare{}, false
			}
			part.part, part.at = n, v.At
		}
	case p.usesGPUs():
		for _, name := range []string{"XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"} {
			if v, ok := a.effectiveValue(i, p, name); ok && v.Known {
				n, err := strconv.ParseFloat(strings.TrimSpace(v.Text), 64)
				if err != nil {
					return memoryShare{}, false
				}
				part.part = n
			}
		}
		if part.part <= 0 || part.part > 1 {
			// More than one is for unified memory.
			return memoryShare{}, false
		}
	default:
		return memoryShare{}, false
	}

	count := 1
	if n, _, ok := l.neededGPUs(a, i); vllm && ok {
		count = n
	}

	if masked {
		if _, known := countDevices(mask); !known || hidesEveryDevice(mask) {
			return memoryShare{}, false
		}
		part.devices = strings.Split(mask.Text, ",")
		if vllm {
			part.devices = part.devices[:min(count, len(part.devices))]
		}

		return part, true
	}

	if _, sure := a.outerSetting(i, "CUDA_VISIBLE_DEVICES"); !sure {
		return memoryShare{}, false
	}

	for d := range count {
		part.devices = append(part.devices, strconv.Itoa(d))
	}

	return part, true
}
