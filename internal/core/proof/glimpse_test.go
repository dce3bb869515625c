package proof

import (
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
)

// TestGlimpse: what is said of a job in its first minute, and what is not.
func TestGlimpse(t *testing.T) {
	machine := gpu.Machine{Devices: []gpu.Device{{Index: 0, UUID: "GPU-0", Name: "A100"}, {Index: 1, UUID: "GPU-1", Name: "A100"}}}
	on := func(ids ...gpu.UUID) (all []Sighting) {
		for _, id := range ids {
			all = append(all, Sighting{PID: 42, Command: "python", GPU: id})
		}
		return all
	}
	torch := []string{"/x/torch/lib/libtorch_cpu.so"}
	for name, c := range map[string]struct {
		glimpse Glimpse
		want    Verdict
		text    string
	}{
		"right":                            {Glimpse{Facts: Facts{Leased: []gpu.UUID{"GPU-1"}, Sightings: on("GPU-1")}}, Proven, "is on GPU 1"},
		"another one":                      {Glimpse{Facts: Facts{Leased: []gpu.UUID{"GPU-1"}, Sightings: on("GPU-0")}}, OutsideLease, "which is not in lease k3f9: it has GPU 1"},
		"another one, which somebody has":  {Glimpse{Facts: Facts{Leased: []gpu.UUID{"GPU-1"}, Sightings: on("GPU-0"), Holders: map[gpu.UUID]string{"GPU-0": "bob"}}}, OutsideLease, "which bob has: lease k3f9 has GPU 1"},
		"one of two, early":                {Glimpse{Facts: Facts{Leased: []gpu.UUID{"GPU-0", "GPU-1"}, Sightings: on("GPU-0")}, Second: true}, Proven, ""},
		"one of two":                       {Glimpse{Facts: Facts{Leased: []gpu.UUID{"GPU-0", "GPU-1"}, Sightings: on("GPU-0")}, Second: true, Settled: true}, Partly, "GPU 1 (A100, GPU-1) of lease k3f9 is not used so far"},
		"both":                             {Glimpse{Facts: Facts{Leased: []gpu.UUID{"GPU-0", "GPU-1"}, Sightings: on("GPU-0", "GPU-1")}, Second: true, Settled: true}, Proven, ""},
		"loads":                            {Glimpse{Facts: Facts{Leased: []gpu.UUID{"GPU-1"}}, Second: true}, TooEarly, "is not on GPU 1 (A100, GPU-1) yet"},
		"loads, busily":                    {Glimpse{Facts: Facts{Leased: []gpu.UUID{"GPU-1"}, CPUTime: time.Minute}, Second: true}, TooEarly, ""},
		"loads with a PyTorch for CUDA":    {Glimpse{Facts: Facts{Leased: []gpu.UUID{"GPU-1"}, CPUTime: time.Minute, Libraries: append(torch, "/x/torch/lib/libtorch_cuda.so")}, Second: true}, TooEarly, ""},
		"a PyTorch for the CPU":            {Glimpse{Facts: Facts{Leased: []gpu.UUID{"GPU-1"}, CPUTime: time.Minute, Libraries: torch}, Second: true}, CPU, "works on the CPU: its PyTorch is built without support for GPUs"},
		"a PyTorch for the CPU beside JAX": {Glimpse{Facts: Facts{Leased: []gpu.UUID{"GPU-1"}, CPUTime: time.Minute, Libraries: append(torch, "/x/jaxlib/_jax.so")}, Second: true}, TooEarly, ""},
		"a PyTorch for the CPU, waiting":   {Glimpse{Facts: Facts{Leased: []gpu.UUID{"GPU-1"}, Libraries: torch}, Second: true}, TooEarly, ""},
		"shown none":                       {Glimpse{Facts: Facts{Leased: []gpu.UUID{"GPU-1"}}, Hides: "CUDA_VISIBLE_DEVICES=-1", Second: true}, CPU, "its environment shows it no GPU (CUDA_VISIBLE_DEVICES=-1)"},
		"shown none, early":                {Glimpse{Facts: Facts{Leased: []gpu.UUID{"GPU-1"}}, Hides: "CUDA_VISIBLE_DEVICES=-1"}, TooEarly, ""},
	} {
		g := c.glimpse
		g.PID, g.Command, g.Machine, g.Lease, g.Age = 42, "python", machine, "k3f9", 50*time.Second
		got := g.Judge()
		if got.Verdict != c.want || !strings.Contains(got.Text, c.text) || (got.Verdict.Bad() || got.Verdict == Partly) != (got.Remedy != "") {
			t.Errorf("%s: %+v, want %s: %s", name, got, c.want, c.text)
		}
	}
}
