package visible

import (
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// With returns the environment with the variables of vars in place of its own of these names, each name once.
func (e Env) With(vars []Var) Env {
	set := make(map[string]bool, len(vars))
	for _, v := range vars {
		set[v.Name] = true
	}

	out := make(Env, 0, len(e)+len(vars))
	for _, pair := range e {
		if name, _, _ := strings.Cut(pair, "="); !set[name] {
			out = append(out, pair)
		}
	}

	for _, v := range vars {
		if !v.Unset {
			out = append(out, v.Name+"="+v.Value)
		}
	}

	return out
}

// WithRestart is the environment of a command that was started so often before, and why it is started again; "" says
// nothing of that.
func (e Env) WithRestart(before int, why string) Env {
	count, reason := strconv.Itoa(before), Var{Name: "GPUARD_DRIFT_REASON", Value: why, Unset: why == ""}
	return e.With([]Var{{Name: "GPUARD_RESTART", Value: count, Unset: before == 0}, reason})
}

// ForJob returns the variables of a job that inherits env and has the devices of the plan on m: those of every vendor,
// and gpuard's own. lease is "" for a job without one.
func ForJob(env Env, lease string, p job.Plan, ids job.IDs, m gpu.Machine) []Var {
	targets, uuids := make([]Target, len(p.Devices)), make([]string, len(p.Devices))
	for i, d := range p.Devices {
		targets[i] = Target{UUID: d.UUID, Index: d.Index, Vendor: d.Vendor, MIG: d.Parent != ""}
		uuids[i] = string(d.UUID)
	}
	if p.Isolation != job.NoIsolation {
		countWithin(targets)
	}

	return append(writeOver(env, targets, ids, m),
		Var{Name: "GPUARD_LEASE", Value: lease, Unset: lease == ""}, Var{Name: "GPUARD_GPUS", Value: strings.Join(uuids, ",")})
}

// countWithin numbers the devices of AMD as its library does where it can open no others, in its own order. A device
// without an identifier of ROCm's can only be named by number there. NVIDIA's are named by identifier behind a wall.
func countWithin(targets []Target) {
	indices := make([]int, 0, len(targets))
	for _, t := range targets {
		if t.Vendor == gpu.AMD {
			indices = append(indices, t.Index)
		}
	}
	slices.Sort(indices)

	for i := range targets {
		if targets[i].Vendor == gpu.AMD {
			targets[i].Index = slices.Index(indices, targets[i].Index)
		}
	}
}
