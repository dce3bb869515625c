package visible

import (
	"slices"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// TestOtherEnumerations: what a job inherits for JAX, MuJoCo and containers does not lead it out of its lease.
func TestOtherEnumerations(t *testing.T) {
	m := gpu.Machine{Devices: []gpu.Device{{Index: 0, UUID: "GPU-0", Vendor: gpu.NVIDIA}, {Index: 1, UUID: "GPU-1", Vendor: gpu.NVIDIA}}}
	one := job.Plan{Devices: []job.Given{{UUID: "GPU-1", Index: 1, Vendor: gpu.NVIDIA}}}
	for name, c := range map[string]struct {
		env  Env
		plan job.Plan
		want Var
		none bool // no such variable is written
	}{
		"JAX without a device":              {nil, job.Plan{}, Var{Name: "JAX_PLATFORMS", Value: "cpu"}, false},
		"JAX for CUDA without a device":     {Env{"JAX_PLATFORMS=cuda"}, job.Plan{}, Var{Name: "JAX_PLATFORMS", Value: "cpu"}, false},
		"JAX within a job without a device": {Env{"JAX_PLATFORMS=cpu", "GPUARD_GPUS="}, one, Var{Name: "JAX_PLATFORMS", Unset: true}, false},
		"JAX on the CPU by the user":        {Env{"JAX_PLATFORMS=cpu"}, one, Var{Name: "JAX_PLATFORMS"}, true},
		"JAX on the CPU within a job":       {Env{"JAX_PLATFORMS=cpu", "GPUARD_GPUS=GPU-0"}, one, Var{Name: "JAX_PLATFORMS"}, true},
		"MuJoCo":                            {Env{"MUJOCO_EGL_DEVICE_ID=0"}, one, Var{Name: "MUJOCO_EGL_DEVICE_ID", Unset: true}, false},
		"MuJoCo, which nobody told":         {nil, one, Var{Name: "MUJOCO_EGL_DEVICE_ID"}, true},
		"Apptainer":                         {Env{"APPTAINERENV_CUDA_VISIBLE_DEVICES=0"}, one, Var{Name: "APPTAINERENV_CUDA_VISIBLE_DEVICES", Value: "1"}, false},
		"Singularity":                       {Env{"SINGULARITYENV_CUDA_VISIBLE_DEVICES=0"}, job.Plan{}, Var{Name: "SINGULARITYENV_CUDA_VISIBLE_DEVICES", Value: "-1"}, false},
		"Apptainer, which nobody told":      {nil, one, Var{Name: "APPTAINERENV_CUDA_VISIBLE_DEVICES"}, true},
	} {
		vars := ForJob(c.env, "k3f9", c.plan, job.IndexIDs, m)
		i := slices.IndexFunc(vars, func(v Var) bool { return v.Name == c.want.Name })
		switch {
		case c.none && i >= 0:
			t.Errorf("%s: %+v", name, vars[i])
		case !c.none && (i < 0 || vars[i] != c.want):
			t.Errorf("%s: %+v, want %+v", name, vars, c.want)
		}
	}
}
