package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/check"
)

func lookFractionsInPython(f File) (all []Finding) {
	ways := traceFlows(f)
	for _, w := range ways {
		all = append(all, engineFractionFindings(w)...)
		all = append(all, poolFractionFindings(f, w, ways)...)
		all = append(all, limitFractionFindings(w, ways)...)
	}

	return all
}

// engineFractionFindings adds what the vLLM engines of one process take, as long as none is given back and the mask stays.
func engineFractionFindings(w flow) (all []Finding) {
	sum := 0.0
	var before []flowStep

	for i, m := range w.moments {
		switch {
		case m.Do == Set && strings.HasSuffix(m.Name, "VISIBLE_DEVICES"), m.Do == Call && (m.Name == "del" || strings.Contains(m.Name, "shutdown") || strings.Contains(m.Name, "destroy") || strings.Contains(m.Name, "cleanup")):
			sum, before = 0, nil
			continue
		case m.Do != Call || m.Name != "vllm.LLM" || i < w.from:
			continue
		}

		part := 0.9
		if a, ok := m.findArg(-1, "gpu_memory_utilization"); ok {
			n, err := strconv.ParseFloat(a.Value.Text, 64)
			if !a.Value.Known || err != nil {
				return all
			}
			part = n
		}

		if slices.ContainsFunc(before, func(b flowStep) bool { return !b.alwaysPrecedes(m) || !b.canReach(m) || b.In != m.In }) {
			sum, before = 0, nil
		}

		sum += part
		before = append(before, m)
		if len(before) > 1 && sum > 1.0001 {
			all = append(all, Finding{Finding: check.Finding{
				Seen: fmt.Sprintf("the engines up to here take %.2g of the GPU's memory together", sum),
				Why:  "each takes its fraction of the whole card; the last one finds too little",
				Do:   "give each a gpu_memory_utilization so that the sum stays below 1"}, At: m.At})
		}
	}

	return all
}

// poolFractionFindings multiplies a fraction that the environment says by the processes that take it over.
func poolFractionFindings(f File, w flow, ways []flow) (all []Finding) {
	if !slices.ContainsFunc(f.Steps, func(s Step) bool { return s.Do == Import && rootModule(s.Name) == "jax" }) {
		return nil
	}

	workers := 0
	var set flowStep

	for i, m := range w.moments {
		switch {
		case m.Do == Set && m.Shell == 0 && (m.Name == "XLA_CLIENT_MEM_FRACTION" || m.Name == "XLA_PYTHON_CLIENT_MEM_FRACTION"):
			set = m
			continue
		case i < w.from || m.childStartMethod() == "":
			continue
		}

		if n := m.poolSize(); n > 0 {
			workers = n
		}

		part, err := strconv.ParseFloat(set.Value.Text, 64)
		if err != nil || !set.Value.Known || workers < 2 || part*float64(workers) <= 1.0001 || !set.alwaysPrecedes(m) || m.masksItself(ways) || !m.workersUseLibrary(ways, "jax") {
			continue
		}

		all = append(all, Finding{Finding: check.Finding{
			Seen: fmt.Sprintf("%d processes take %s=%s each, together %.3g of the GPU's memory", workers, set.Name, set.Value.Text, part*float64(workers)),
			Why:  "each takes its fraction of the whole card at its first operation",
			Do:   fmt.Sprintf("set it to %.2g or less, or give each process a GPU of its own", 1/float64(workers)-0.005)}, At: set.At})
	}

	return all
}

// poolSize is how many processes a call keeps, where that is written down.
func (s Step) poolSize() int {
	position := 0
	if s.Name == "torch.multiprocessing.spawn" {
		position = 2
	}

	if !strings.HasSuffix(s.Name, "Pool") && !strings.HasSuffix(s.Name, "Executor") && position == 0 {
		return 0
	}

	a, ok := s.findArg(position, "processes", "max_workers", "nprocs")
	if !ok {
		return 0
	}

	return max(0, a.decimalValue())
}

// workersUseLibrary reports whether a function that the call starts in other processes uses a library.
func (m flowStep) workersUseLibrary(ways []flow, root string) bool {
	return slices.ContainsFunc(ways, func(w flow) bool {
		return w.worker && len(w.moments) > 0 && slices.ContainsFunc(m.Args, func(a Arg) bool { return a.Ref == w.moments[0].In }) &&
			slices.ContainsFunc(w.moments, func(s flowStep) bool { return s.Do == Call && rootModule(s.Name) == root })
	})
}

// limitFractionFindings multiplies the fraction that each worker takes of one and the same device by their number.
func limitFractionFindings(w flow, ways []flow) (all []Finding) {
	n := 0
	for i, m := range w.moments {
		if m.childStartMethod() != "" && m.poolSize() > 0 {
			n = m.poolSize()
		}
		if i < w.from || n < 2 || m.childStartMethod() == "" || m.masksItself(ways) {
			continue
		}

		for _, own := range ways {
			if !own.worker || len(own.moments) == 0 || !slices.ContainsFunc(m.Args, func(a Arg) bool { return a.Ref == own.moments[0].In }) {
				continue
			}

			c, part := own.memoryFraction()
			if part*float64(n) <= 1.0001 {
				continue
			}

			all = append(all, Finding{Finding: check.Finding{
				Seen: fmt.Sprintf("%d processes may take %.2g of the memory of one GPU each, together %.2g", n, part, part*float64(n)),
				Why:  "each counts its fraction from the whole card",
				Do:   fmt.Sprintf("set it to %.2g or less, or give each process a GPU of its own", 1/float64(n)-0.005)}, At: c.At})
		}
	}
	return all
}

// memoryFraction is the part of one device's memory that a worker limits itself to, where it does not choose among devices.
func (w flow) memoryFraction() (at flowStep, part float64) {
	for _, m := range w.moments {
		if m.Do != Call {
			continue
		}
		first, _ := m.findArg(0, "device")
		switch m.Name {
		case "torch.cuda.set_device", "torch.cuda.device":
			if !first.Value.Known {
				return flowStep{}, 0
			}
		case "torch.cuda.set_per_process_memory_fraction", "torch.cuda.memory.set_per_process_memory_fraction":
			value, _ := m.findArg(0, "fraction")
			device, given := m.findArg(1, "device")
			n, err := strconv.ParseFloat(value.Value.Text, 64)
			if err != nil || !value.Value.Known || m.Maybe || given && !device.Value.Known {
				return flowStep{}, 0
			}

			at, part = m, n
		}
	}
	return at, part
}
