package visible

import (
	"testing"

	"gpuard/internal/core/gpu"
)

// TestDoubtful: a guess is marked, and a surprise that every driver agrees on is not.
func TestDoubtful(t *testing.T) {
	one := gpu.Machine{Devices: []gpu.Device{
		{Index: 0, Vendor: gpu.NVIDIA, Name: "NVIDIA A100-SXM4-80GB", UUID: "GPU-00000000-0000-0000-0000-000000000000"},
		{Index: 1, Vendor: gpu.NVIDIA, Name: "NVIDIA A100-SXM4-80GB", UUID: "GPU-11111111-0000-0000-0000-000000000000"},
	}}
	mixed, split := one, one
	mixed.Devices = append([]gpu.Device{}, one.Devices...)
	mixed.Devices[1].Name = "NVIDIA L4"
	split.Devices = append([]gpu.Device{}, one.Devices...)
	split.Devices[0].MIG = []gpu.MIGDevice{
		{Index: 0, Profile: "1g.10gb", UUID: "MIG-00000000-0000-0000-0000-000000000000"},
		{Index: 1, Profile: "1g.10gb", UUID: "MIG-11111111-0000-0000-0000-000000000000"},
	}
	for _, c := range []struct {
		machine gpu.Machine
		env     Env
		want    bool
	}{
		{one, Env{"CUDA_VISIBLE_DEVICES=1"}, false},
		{one, Env{"CUDA_VISIBLE_DEVICES=1,7"}, false},
		{one, Env{"CUDA_VISIBLE_DEVICES=0,0"}, false},
		{one, Env{"CUDA_VISIBLE_DEVICES=-1"}, false},
		{one, Env{"CUDA_VISIBLE_DEVICES=0x1"}, false},
		{one, Env{"CUDA_VISIBLE_DEVICES=MIG-1"}, true},
		{one, Env{"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1"}, true},
		{one, Env{"CUDA_VISIBLE_DEVICES=0", "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"}, true},
		{mixed, Env{"CUDA_VISIBLE_DEVICES=1"}, true},
		{mixed, Env{"CUDA_VISIBLE_DEVICES=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}, false},
		{mixed, Env{"CUDA_VISIBLE_DEVICES=GPU-1"}, false},
		{split, Env{"CUDA_VISIBLE_DEVICES=0"}, true},
		{split, Env{"CUDA_VISIBLE_DEVICES=1"}, true}, // whole ones may come first
	} {
		v := CUDA(c.env, c.machine)
		got := false
		for _, n := range v.Notes {
			got = got || n.IsDoubtful()
		}
		if got != c.want {
			t.Errorf("%q: doubtful %v, want %v: %+v", c.env, got, c.want, v.Notes)
		}
	}
}
