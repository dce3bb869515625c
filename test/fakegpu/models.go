package fakegpu

import (
	"fmt"
	"maps"
)

// GPU is what a device's folder holds: file name to content. A name that is missing is a reading that the driver does
// not support. README.md lists the names.
type GPU map[string]string

// A100 is an idle NVIDIA A100-SXM4-80GB; i makes its UUID, PCI id and minor number, always the same ones.
func A100(i int) GPU {
	return dataCentre(i, "NVIDIA A100-SXM4-80GB", "8.0").withValues(GPU{
		"memory_total": "81920M", "memory_reserved": "600M",
		"power_limit_mw": "400000", "clock_sm_max": "1410", "clock_mem": "1593", "clock_mem_max": "1593",
		"slowdown": "89", "shutdown": "92", "gpu_max": "85", "memory_max": "95",
	})
}

// H100 is an idle NVIDIA H100 80GB HBM3: a device that reports a temperature margin instead of thresholds.
func H100(i int) GPU {
	return dataCentre(i, "NVIDIA H100 80GB HBM3", "9.0").withValues(GPU{
		"memory_total": "81559M", "memory_reserved": "520M",
		"power_limit_mw": "700000", "clock_sm_max": "1980", "clock_mem": "2619", "clock_mem_max": "2619",
		"margin": "54", "tlimit_shutdown": "-8", "tlimit_slowdown": "-2", "tlimit_gpu_max": "0",
		"recovery": "0", "pci_device_id": "0x233010DE",
	})
}

// GeForce is an idle NVIDIA GeForce RTX 3090: no ECC, no MIG, no row remapping.
func GeForce(i int) GPU {
	g := dataCentre(i, "NVIDIA GeForce RTX 3090", "8.6").withValues(GPU{
		"memory_total": "24576M", "memory_reserved": "310M",
		"power_limit_mw": "350000", "clock_sm_max": "2100", "clock_mem": "405", "clock_mem_max": "9751",
		"slowdown": "95", "shutdown": "98", "gpu_max": "93", "pci_device_id": "0x220410DE",
	})
	for _, key := range []string{"ecc", "ecc_corrected", "ecc_uncorrected", "ecc_corrected_aggregate", "ecc_uncorrected_aggregate", "remapped", "mig_mode"} {
		delete(g, key)
	}
	return g
}

// dataCentre is what the models above share.
func dataCentre(i int, name, compute string) GPU {
	return GPU{
		"uuid": fmt.Sprintf("GPU-fa4e0000-0000-4000-8000-%012x", i), "name": name,
		"pci": fmt.Sprintf("0000:%02x:00.0", 0x10+i), "minor": fmt.Sprint(i), "compute": compute,
		"utilization": "0 0", "temperature": fmt.Sprint(30 + i), "memory_used": "0",
		"power_mw": "61030", "clock_sm": "210", "events": "0x1",
		"ecc": "1", "ecc_corrected": "0", "ecc_uncorrected": "0", "ecc_corrected_aggregate": "0", "ecc_uncorrected_aggregate": "0",
		"remapped": "0 0 0 0", "persistence": "1", "compute_mode": "0", "mig_mode": "0",
	}
}

// With returns a copy that differs in one value; an empty value takes the reading away.
func (g GPU) With(key, value string) GPU {
	if value == "" {
		out := maps.Clone(g)
		delete(out, key)
		return out
	}
	return g.withValues(GPU{key: value})
}

func (g GPU) withValues(values GPU) GPU {
	out := maps.Clone(g)
	maps.Copy(out, values)
	return out
}

// MIG returns a copy with MIG mode on and one MIG device per profile, such as "1g.10gb" or "1c.2g.20gb". The memory is
// the profile's, and GPU instance IDs count from 1.
func (g GPU) MIG(profiles ...string) GPU {
	out := g.With("mig_mode", "1")
	var base uint64
	_, _ = fmt.Sscanf(g["uuid"], "GPU-fa4e0000-0000-4000-8000-%x", &base)
	for j, profile := range profiles {
		slices, computeSlices, gigabytes := 1, 0, 0
		if n, _ := fmt.Sscanf(profile, "%dc.%dg.%dgb", &computeSlices, &slices, &gigabytes); n != 3 {
			_, _ = fmt.Sscanf(profile, "%dg.%dgb", &slices, &gigabytes)
			computeSlices = slices
		}
		maps.Copy(out, GPU{
			fmt.Sprintf("mig/%d/uuid", j):            fmt.Sprintf("MIG-fa4e0000-0000-5000-8000-%06x%06x", base, j),
			fmt.Sprintf("mig/%d/profile", j):         profile,
			fmt.Sprintf("mig/%d/gi", j):              fmt.Sprint(j + 1),
			fmt.Sprintf("mig/%d/ci", j):              "0",
			fmt.Sprintf("mig/%d/slices", j):          fmt.Sprint(slices),
			fmt.Sprintf("mig/%d/ci_slices", j):       fmt.Sprint(computeSlices),
			fmt.Sprintf("mig/%d/multiprocessors", j): fmt.Sprint(14 * slices),
			fmt.Sprintf("mig/%d/memory_total", j):    fmt.Sprintf("%dM", gigabytes*1024-512),
		})
	}
	return out
}
