package visible

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// DecidingVariables lists, as NAME=value and in the order in which they apply, the variables that decide what programs
// of a runtime see (the names of Entry.Runtime; "tinygrad:0.11" is tinygrad of that version). beaten lists those that
// are set but have no effect because another wins. m is the machine and inside the part of it that the process can
// open. If that is less, the variables of Slurm and of container runtimes that explain it come first.
func DecidingVariables(env Env, runtime string, m, inside gpu.Machine) (deciding, beaten []string) {
	runtime, version, _ := strings.Cut(runtime, ":")
	deciding = outerVariables(env, runtime, m, inside)
	first := func(names ...string) {
		won := false
		for _, name := range names {
			value, set := env.Lookup(name)
			switch {
			case !set:
			case won:
				beaten = append(beaten, variable{name, value}.String())
			default:
				deciding, won = append(deciding, variable{name, value}.String()), true
			}
		}
	}

	switch runtime {
	case "cuda":
		first(cudaVariable)
		if dependsOnOrder(env) {
			first("CUDA_DEVICE_ORDER")
		}
	case "rocr":
		first(rocrVariable)
	case "hip":
		first(rocrVariable)
		first("HIP_VISIBLE_DEVICES", cudaVariable)
	case "opencl":
		first(rocrVariable)
		first("GPU_DEVICE_ORDINAL")
	case "level_zero":
		first("ZE_AFFINITY_MASK")
		first("ZE_FLAT_DEVICE_HIERARCHY")
		first(pciOrderVariable)
	case "sycl":
		first("ZE_AFFINITY_MASK")
		first(pciOrderVariable)
		first(cudaVariable)
		first(rocrVariable)
		first("HIP_VISIBLE_DEVICES")
		first("ONEAPI_DEVICE_SELECTOR")
	case "ascend":
		first("ASCEND_RT_VISIBLE_DEVICES")
	case "tinygrad":
		for _, names := range tinygradVariables(env, tinygradMinor(version)) {
			first(names...)
		}
	}

	return deciding, beaten
}

// tinygradVariables are those that a version reads, of each group the first that is set.
func tinygradVariables(env Env, minor int) [][]string {
	switch {
	case usesCUDABackend(env, minor):
		return [][]string{{"DEV"}, {cudaVariable}}
	case minor >= 13:
		return [][]string{{"DEV"}}
	case minor == 12:
		return [][]string{{"HCQ_VISIBLE_DEVICES"}}
	case env.hasAny("VISIBLE_DEVICES"):
		return [][]string{{"VISIBLE_DEVICES", cudaVariable, "HIP_VISIBLE_DEVICES"}}
	}

	// For NV, and for AMD.
	return [][]string{{cudaVariable}, {"HIP_VISIBLE_DEVICES"}}
}

// outerVariables names the variables that explain why the process cannot open every device.
func outerVariables(env Env, runtime string, m, inside gpu.Machine) []string {
	vendors := map[string][]gpu.Vendor{
		"cuda": {gpu.NVIDIA}, "rocr": {gpu.AMD}, "hip": {gpu.AMD}, "opencl": {gpu.AMD},
		"sycl": {gpu.NVIDIA, gpu.AMD}, "tinygrad": {gpu.NVIDIA, gpu.AMD},
	}[runtime]
	var out []string
	for _, layer := range []struct {
		narrow func(Env, gpu.Machine) (gpu.Machine, []Note)
		names  []string
	}{
		{InsideAllocation, []string{"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}},
		{InsideContainer, []string{containerVariable}},
	} {
		less, _ := layer.narrow(env, m)
		if !lacksDevices(less, m, vendors) || lacksDevices(less, inside, vendors) {
			continue
		}
		m = less

		for _, name := range layer.names {
			if value, _ := env.Lookup(name); value != "" {
				out = append(out, variable{name, value}.String())
				break
			}
		}
	}

	return out
}

// lacksDevices reports whether a lacks a device of b of one of the vendors.
func lacksDevices(a, b gpu.Machine, vendors []gpu.Vendor) bool {
	return slices.ContainsFunc(b.Devices, func(d gpu.Device) bool {
		own, _, there := a.FindDevice(d.UUID)
		return slices.Contains(vendors, d.Vendor) && (!there || len(own.MIG) < len(d.MIG))
	})
}

// dependsOnOrder reports whether the value depends on the device order: numbers and an absent list do.
func dependsOnOrder(env Env) bool {
	value, _ := env.Lookup(cudaVariable)
	return !isIdentifier(value)
}

// hipWinsNotes notes both variables set with different values. There is no note when one is -1, which hides one
// vendor's devices from programs for the other, or when NVIDIA devices are present, where each variable has its own
// purpose.
func hipWinsNotes(env Env, m gpu.Machine) []Note {
	hip, _ := env.Lookup("HIP_VISIBLE_DEVICES")
	cuda, also := env.Lookup(cudaVariable)
	if !hipReads(env, "HIP_VISIBLE_DEVICES") || !also || hip == cuda || hip == "-1" || cuda == "-1" || len(devicesOf(m, gpu.NVIDIA)) > 0 {
		return nil
	}

	return []Note{{codeBeaten, variable{"HIP_VISIBLE_DEVICES", hip}.String() + " wins over " + variable{cudaVariable, cuda}.String() + " for HIP programs"}}
}

// mpsNotes notes that numbers count within the MPS server's devices ("CUDA_VISIBLE_DEVICES" in NVIDIA's MPS
// documentation, appendix "Environment Variables"). A client knows its server by the pipe directory.
func mpsNotes(env Env, l cudaList) []Note {
	pipes, _ := env.Lookup("CUDA_MPS_PIPE_DIRECTORY")
	switch {
	case pipes == "" || l.set && !l.byNumber:
		return nil
	case !l.set && len(l.chosen) < 2:
		// The one that is there, or nothing works at all.
		return nil
	case !l.set:
		return []Note{{codeMPS, fmt.Sprintf("%s is not set: with an MPS server (CUDA_MPS_PIPE_DIRECTORY=%s) a program sees the GPUs that its control daemon was given, which may be fewer than the machine has", cudaVariable, quoteIfNeeded(pipes))}}
	}
	return []Note{l.variable.newNote(codeMPS, "with an MPS server (CUDA_MPS_PIPE_DIRECTORY=%s) these numbers count within the GPUs that its control daemon was given, not within the machine; identifiers are right in both", quoteIfNeeded(pipes))}
}

// InsideAllocation returns the machine as a process of another scheduler's job can open it, seen from outside the job.
// Slurm's device cgroup shows a job only its own GPUs, and then numbers count within them. Numbers that already match
// the job's list are taken as the machine's. For the caller's own environment it changes nothing that the machine, read
// from inside, does not show already.
//
// Source: SchedMD/slurm src/plugins/gres/common/gres_common.c.
func InsideAllocation(env Env, m gpu.Machine) (inside gpu.Machine, notes []Note) {
	vendor, given, notes := slurmMask(env, m)
	if vendor == "" {
		return m, notes
	}

	read := cudaMask
	if vendor == gpu.AMD {
		read = rocrMask
		if !env.hasAny(rocrVariable) {
			read = hipMask
		}
	}

	own := read(env, m)
	outside := func(c choice) bool {
		return !slices.ContainsFunc(given.allowed, func(g choice) bool { return g.dev == c.dev })
	}

	if own.set && len(own.allowed) > 0 && !slices.ContainsFunc(own.allowed, outside) {
		return m, notes
	}

	for _, c := range given.allowed {
		for j := range c.dev.MIG {
			given.allowed = append(given.allowed, choice{c.dev, &c.dev.MIG[j]})
		}
	}

	name, _, _ := strings.Cut(given.because, "=")
	notes = append(notes, Note{codeSlurmRelative, given.because + ": the job can open these GPUs only, so that numbers count within " + name})

	return keepChosen(m, vendor, given.allowed), notes
}
