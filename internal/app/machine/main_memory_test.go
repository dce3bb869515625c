package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/host/proc"
)

// TestGiveMainMemory: only to devices without memory of their own, and nothing is invented where the kernel does not say it.
func TestGiveMainMemory(t *testing.T) {
	root := t.TempDir()
	h := &Host{Proc: proc.New(root)}
	machine := func() *gpu.Machine {
		return &gpu.Machine{Devices: []gpu.Device{
			{Vendor: gpu.NVIDIA, Name: "NVIDIA A100-SXM4-80GB", Compute: &gpu.Capability{Major: 8}, MemoryTotal: new(gpu.Bytes(5))},
			{Vendor: gpu.NVIDIA, Name: "Orin (nvgpu)", Compute: &gpu.Capability{Major: 8, Minor: 7}},
			{Vendor: gpu.NVIDIA, Name: "NVIDIA GB10", Compute: &gpu.Capability{Major: 12, Minor: 1}, MemoryTotal: new(gpu.Bytes(7)), MemoryUsed: new(gpu.Bytes(6))},
			{Vendor: gpu.NVIDIA, Name: "NVIDIA GH200 480GB", Compute: &gpu.Capability{Major: 9}, MemoryTotal: new(gpu.Bytes(5))},
			{Vendor: gpu.NVIDIA, Name: "NVIDIA GH200 480GB", Compute: &gpu.Capability{Major: 9}},
			{Vendor: gpu.NVIDIA, Name: "NVIDIA GH200 480GB", Compute: &gpu.Capability{Major: 9}, Problem: "GPU is lost"},
			{Vendor: gpu.NVIDIA, Name: "NVIDIA GB10"}, // as nvidia-smi gives it
			{Vendor: gpu.NVIDIA, Name: "NVIDIA GeForce GT 730"},
			{Vendor: gpu.AMD, Name: "AMD Radeon Graphics"},
		}}
	}
	for text, want := range map[string]string{
		"MemTotal:       125829120 kB\nMemFree: 7 kB\nMemAvailable:   104857600 kB\n": "-mm-m-m--",
		"MemTotal:       125829120 kB\nMemFree: 7 kB\nMemAvailable:   204857600 kB\n": "---------",
		"MemTotal:       -1 kB\nMemAvailable:   0 kB\n":                               "---------",
		"": "---------",
	} {
		if err := os.WriteFile(filepath.Join(root, "meminfo"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m, got := machine(), ""
		h.giveMainMemory(m)
		for _, d := range m.Devices {
			switch {
			case d.MainMemory == nil:
				got += "-"
			case *d.MainMemory == 120*gpu.GiB && *d.MainAvailable == 100*gpu.GiB && d.MemoryTotal == nil && d.MemoryUsed == nil && *d.Integrated:
				got += "m"
			default:
				got += "?"
			}
		}
		if got != want || (len(m.Problems) > 0) != !strings.Contains(want, "m") {
			t.Errorf("%q: %s, want %s; %q", text, got, want, m.Problems)
		}
	}
}
