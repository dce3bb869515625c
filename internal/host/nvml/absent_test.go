package nvml

import (
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/test/fakegpu"
)

// TestNotAvailable: a driver that answers "success" with NVML_VALUE_NOT_AVAILABLE has not said that the card is hot, loaded,
// full or broken. The call that it is asked with is as large as 4294967295 MIG devices would be, and is not made.
func TestNotAvailable(t *testing.T) {
	t.Parallel()
	const none = "4294967295"
	d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1))
	for key, value := range map[string]string{
		"utilization": none + " " + none, "temperature": none, "slowdown": none, "margin": none, "power_mw": none, "power_limit_mw": none,
		"clock_sm": none, "clock_sm_max": none, "clock_mem": none, "events": "-1", "memory_used": "-1", "memory_reserved": "-1",
		"ecc": none, "ecc_corrected": "-1", "ecc_uncorrected": none, "remapped": none + " 0 0 0", "retired": none + " 0 0",
		"recovery": none, "persistence": none, "mig_mode": none,
	} {
		d.SetValue(1, key, value)
	}
	m := machine(t, d, gpu.Everything)
	same(t, "the problems", m.Problems, []string(nil))
	same(t, "device 1", m.Devices[1], gpu.Device{
		Index: 1, UUID: "GPU-fa4e0000-0000-4000-8000-000000000001", Name: "NVIDIA A100-SXM4-80GB", Vendor: gpu.NVIDIA,
		PCI: "0000:11:00.0", Minor: new(1), MemoryTotal: new(81920 * gpu.MiB), ComputeMode: "default",
		Compute: &gpu.Capability{Major: 8}, NUMA: m.Devices[1].NUMA, Links: []gpu.Link{gpu.LinkSwitch, gpu.LinkSelf},
	})
	if first := m.Devices[0]; first.Temperature == nil || first.Utilization == nil || first.MemoryUsed == nil {
		t.Errorf("the other device has lost its readings: %+v", first)
	}

	d.SetValue(0, "remapped", "1 1 "+none+" 0")
	d.SetValue(1, "memory_total", "-1")
	m = machine(t, d, gpu.Everything)
	same(t, "rows of which nothing is known", m.Devices[0].RemappedRows, (*gpu.RemappedRows)(nil))
	same(t, "memory of which nothing is known", m.Devices[1].MemoryTotal, (*gpu.Bytes)(nil))
}
