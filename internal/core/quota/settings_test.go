package quota

import (
	"reflect"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/visible"
)

func TestSettings(t *testing.T) {
	const own = "GPUARD_LIMITS"
	written := []visible.Var{
		{Name: "XLA_PYTHON_CLIENT_MEM_FRACTION", Value: "0.312"}, {Name: "CUPY_GPU_MEMORY_LIMIT", Value: "8053063680"},
		{Name: "TF_FORCE_GPU_ALLOW_GROWTH", Value: "true"},
		{Name: own, Value: "XLA_PYTHON_CLIENT_MEM_FRACTION=0.312;CUPY_GPU_MEMORY_LIMIT=8053063680;TF_FORCE_GPU_ALLOW_GROWTH=true"},
	}
	inside := visible.Env{}
	for _, v := range written {
		inside = append(inside, v.Name+"="+v.Value)
	}
	for _, c := range []struct {
		name         string
		env          visible.Env
		share, total gpu.Bytes
		want         []visible.Var
	}{
		{"nothing set", nil, 8 * gpu.GiB, 24 * gpu.GiB, written},
		{"an exclusive lease", nil, 0, 24 * gpu.GiB, nil},
		{"the user's own", visible.Env{"XLA_PYTHON_CLIENT_MEM_FRACTION=.9", "CUPY_GPU_MEMORY_LIMIT=1", "TF_FORCE_GPU_ALLOW_GROWTH=false"}, 8 * gpu.GiB, 24 * gpu.GiB, nil},
		{"the newer name of JAX", visible.Env{"XLA_CLIENT_MEM_FRACTION=.9", "CUPY_GPU_MEMORY_LIMIT=", "TF_FORCE_GPU_ALLOW_GROWTH="}, 8 * gpu.GiB, 24 * gpu.GiB, nil},
		{"no total", visible.Env{"CUPY_GPU_MEMORY_LIMIT=1", "TF_FORCE_GPU_ALLOW_GROWTH=true"}, 8 * gpu.GiB, 0, nil},
		{"a share within a share", inside, 4 * gpu.GiB, 24 * gpu.GiB, []visible.Var{
			{Name: "XLA_PYTHON_CLIENT_MEM_FRACTION", Value: "0.145"}, {Name: "CUPY_GPU_MEMORY_LIMIT", Value: "3758096384"},
			{Name: "TF_FORCE_GPU_ALLOW_GROWTH", Value: "true"},
			{Name: own, Value: "XLA_PYTHON_CLIENT_MEM_FRACTION=0.145;CUPY_GPU_MEMORY_LIMIT=3758096384;TF_FORCE_GPU_ALLOW_GROWTH=true"}}},
		{"whole devices from a shell with a share", inside, 0, 24 * gpu.GiB, []visible.Var{
			{Name: "XLA_PYTHON_CLIENT_MEM_FRACTION", Unset: true}, {Name: "CUPY_GPU_MEMORY_LIMIT", Unset: true},
			{Name: "TF_FORCE_GPU_ALLOW_GROWTH", Unset: true}, {Name: own, Unset: true}}},
		{"ours, and the user's newer name", append(visible.Env{"XLA_CLIENT_MEM_FRACTION=.5"}, inside...), 8 * gpu.GiB, 24 * gpu.GiB, append(append([]visible.Var{},
			written[1], written[2], visible.Var{Name: "XLA_PYTHON_CLIENT_MEM_FRACTION", Unset: true}),
			visible.Var{Name: own, Value: "CUPY_GPU_MEMORY_LIMIT=8053063680;TF_FORCE_GPU_ALLOW_GROWTH=true"})},
	} {
		if got := ShareVars(c.env, c.share, c.total, nil); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%+v, want\n%+v", c.name, got, c.want)
		}
	}
}

// TestThroughMPS: the variables for MPS are the lease's, and removed in an inner lease that does not use MPS.
func TestThroughMPS(t *testing.T) {
	devices := []job.Given{{UUID: "GPU-a"}, {UUID: "GPU-b"}}
	through := MPSVars(devices, 8*gpu.GiB, 50)
	want := []visible.Var{{Name: "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", Value: "GPU-a=7680M,GPU-b=7680M"}, {Name: "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", Value: "50"}}
	if !reflect.DeepEqual(through, want) {
		t.Errorf("%+v, want %+v", through, want)
	}
	if got := MPSVars(devices[:1], gpu.GiB, 0); len(got) != 1 || got[0].Value != "GPU-a=512M" {
		t.Errorf("without threads: %+v", got)
	}
	outer := visible.Env{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=90"} // the user's own value differs from ours
	for _, v := range ShareVars(outer, 8*gpu.GiB, 24*gpu.GiB, through[:1]) {
		outer = append(outer, v.Name+"="+v.Value)
	}
	inner := ShareVars(outer, 0, 24*gpu.GiB, nil)
	unset := map[string]bool{}
	for _, v := range inner {
		unset[v.Name] = v.Unset
	}
	for _, name := range []string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUPY_GPU_MEMORY_LIMIT", OwnVariable} {
		if !unset[name] {
			t.Errorf("%s stays: %+v", name, inner)
		}
	}
	if _, touched := unset["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]; touched {
		t.Errorf("the user's own is changed: %+v", inner)
	}
}
