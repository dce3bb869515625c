package quota

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/visible"
)

// OwnVariable is the variable that lists the settings made here, as NAME=VALUE separated by semicolons, so that a job
// inside the lease can distinguish them from the user's own.
const OwnVariable = "GPUARD_LIMITS"

// The names of JAX's fraction of a device's memory. With both set it fails (jax-ml/jax, jaxlib/xla_client.py). The
// older one is written: every version reads it, and most programs that set one set that.
const (
	jaxFractionVar      = "XLA_PYTHON_CLIENT_MEM_FRACTION"
	jaxNewerFractionVar = "XLA_CLIENT_MEM_FRACTION"
)

// setting is one framework's limit that is set by the environment alone, in every version that has the name.
type setting struct {
	name string
	// Other names of the same thing.
	also  []string
	value func(room, total gpu.Bytes) string
}

// frameworkSettings lists them. PyTorch is not among them: versions without per_process_memory_fraction in
// PYTORCH_CUDA_ALLOC_CONF fail on it, and the version that a job will load is not known.
func frameworkSettings() []setting {
	return []setting{
		{jaxFractionVar, []string{jaxNewerFractionVar}, func(room, total gpu.Bytes) string {
			if total <= 0 {
				return ""
			}
			return fmt.Sprintf("%.3f", max(0.001, math.Floor(1000*float64(room)/float64(total))/1000))
		}},
		// Bytes per device (cupy/cupy docs/source/reference/environment.rst).
		{"CUPY_GPU_MEMORY_LIMIT", nil, func(room, _ gpu.Bytes) string { return fmt.Sprint(int64(room)) }},
		// No limit, but without it TensorFlow takes the whole device when it starts (tensorflow.org/guide/gpu).
		{"TF_FORCE_GPU_ALLOW_GROWTH", nil, func(gpu.Bytes, gpu.Bytes) string { return "true" }},
	}
}

// Variables of NVIDIA's Multi-Process Service (docs.nvidia.com/deploy/mps, Appendix: Environment Variables).
const (
	PinnedVariable  = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
	threadsVariable = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
)

// MPSVars returns the limits of a client: memory on each device, by UUID because daemon and client may number
// devices differently, and the percentage of its processors, 0 for all.
func MPSVars(devices []job.Given, share gpu.Bytes, threads int) []visible.Var {
	limits := prose.Texts(devices, func(d job.Given) string { return fmt.Sprintf("%s=%dM", d.UUID, RoomInShare(share)/gpu.MiB) })

	out := []visible.Var{{Name: PinnedVariable, Value: strings.Join(limits, ",")}}
	if threads > 0 {
		out = append(out, visible.Var{Name: threadsVariable, Value: fmt.Sprint(threads)})
	}

	return out
}

// ShareVars returns the variables with which a job limits itself to its share of each device: those of frameworks,
// where env has none of the names, and through, which connects it to MPS. Settings of an outer lease are replaced, or
// removed where this lease has none: a job with share 0 has whole devices. total is the memory of the largest device, 0
// where a device does not report it.
func ShareVars(env visible.Env, share, total gpu.Bytes, through []visible.Var) []visible.Var {
	ours, _ := env.Lookup(OwnVariable)
	before := strings.Split(ours, ";")
	mine := func(name string) bool {
		v, set := env.Lookup(name)
		return set && slices.Contains(before, name+"="+v)
	}

	out := frameworkVars(env, share, total, mine)
	out = append(out, through...)
	for _, entry := range before {
		name, _, _ := strings.Cut(entry, "=")
		if mine(name) && !slices.ContainsFunc(out, func(v visible.Var) bool { return v.Name == name }) {
			out = append(out, visible.Var{Name: name, Unset: true})
		}
	}

	var made []string
	for _, v := range out {
		if !v.Unset {
			made = append(made, v.Name+"="+v.Value)
		}
	}

	if ours != "" || len(made) > 0 {
		out = append(out, visible.Var{Name: OwnVariable, Value: strings.Join(made, ";"), Unset: len(made) == 0})
	}

	return out
}

// frameworkVars returns the settings that the user has not made; mine reports those that an outer lease has made.
func frameworkVars(env visible.Env, share, total gpu.Bytes, mine func(string) bool) (out []visible.Var) {
	for _, s := range frameworkSettings() {
		users := slices.ContainsFunc(append([]string{s.name}, s.also...), func(name string) bool {
			_, set := env.Lookup(name)
			return set && !mine(name)
		})
		if share == 0 || users {
			continue
		}
		if value := s.value(RoomInShare(share), total); value != "" {
			out = append(out, visible.Var{Name: s.name, Value: value})
		}
	}
	return out
}
