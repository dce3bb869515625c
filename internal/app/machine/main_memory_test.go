package machine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/host/proc"
)

// TestMainMemory: only to the device without memory of its own, and nothing is invented where the kernel does not say it.
func TestMainMemory(t *testing.T) {
	root := t.TempDir()
	machine := func(context.Context, gpu.Query) (gpu.Machine, error) {
		return gpu.Machine{Devices: []gpu.Device{
			{Vendor: gpu.NVIDIA, Name: "NVIDIA A100-SXM4-80GB", Compute: &gpu.Capability{Major: 8}, MemoryTotal: new(gpu.Bytes(5))},
			{Vendor: gpu.NVIDIA, Name: "Orin (nvgpu)", Compute: &gpu.Capability{Major: 8, Minor: 7}},
			{Vendor: gpu.NVIDIA, Name: "NVIDIA GB10", Compute: &gpu.Capability{Major: 12, Minor: 1}, MemoryTotal: new(gpu.Bytes(7)), MemoryUsed: new(gpu.Bytes(6))},
			{Vendor: gpu.NVIDIA, Name: "NVIDIA GB10", MemoryTotal: new(gpu.Bytes(7))}, // its capability could not be read
			{Vendor: gpu.NVIDIA, Name: "NVIDIA GH200 480GB", Compute: &gpu.Capability{Major: 9}},
			{Vendor: gpu.NVIDIA, Name: "NVIDIA GB200", Compute: &gpu.Capability{Major: 10}},
			{Vendor: gpu.NVIDIA, Name: "NVIDIA GeForce GT 730"},
			{Vendor: gpu.NVIDIA, Name: "NVIDIA Thor", Compute: &gpu.Capability{Major: 11}, MIGMode: new(true)},
			{Vendor: gpu.AMD, Name: "AMD Radeon Graphics"},
		}}, nil
	}
	for text, want := range map[string]string{
		"MemTotal:       125829120 kB\nMemFree: 7 kB\nMemAvailable:   104857600 kB\n": "-mmm-----",
		"MemTotal:       125829120 kB\nMemFree: 7 kB\nMemAvailable:   204857600 kB\n": "---------",
		"MemTotal:       -1 kB\nMemAvailable:   0 kB\n":                               "---------",
		"MemTotal:       125829120 kB\nMemFree: 7 kB\n":                               "---------", // Linux 3.10
		"": "---------",
	} {
		if err := os.WriteFile(filepath.Join(root, "meminfo"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := withMainMemory(machine, proc.New(root))(t.Context(), gpu.Query{})
		got := ""
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
		if got != want || (len(m.Problems) > 0) != !strings.Contains(want, "m") || err != nil {
			t.Errorf("%q: %s, want %s; %q, %v", text, got, want, m.Problems, err)
		}
	}
}
