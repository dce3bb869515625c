package visible

import (
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

// Allocation names the other scheduler that gave this process its devices: "slurm:1234", or "" outside a job.
func Allocation(env Env) string {
	for _, name := range []string{"SLURM_JOB_ID", "SLURM_JOBID"} {
		id, _ := env.Lookup(name)
		strange := func(r rune) bool { return r != '_' && r != '.' && (r < '0' || r > '9') }
		if id != "" && len(id) <= 32 && strings.IndexFunc(id, strange) < 0 {
			return "slurm:" + id
		}
	}
	return ""
}

// slurmMask returns the mask of Slurm's own list of global numbers and its vendor. The vendor is "" where only the
// other variables decide: outside Slurm, and where the node's device cgroup already shows no more devices than were
// given, so that CUDA_VISIBLE_DEVICES counts from 0 (SchedMD/slurm src/plugins/gres/common/gres_common.c).
func slurmMask(env Env, m gpu.Machine) (gpu.Vendor, mask, []Note) {
	if Allocation(env) == "" || len(m.Devices) == 0 {
		return "", mask{}, nil
	}
	if value, _ := env.Lookup(cudaVariable); isIdentifier(value) {
		// Identifiers are absolute; with MIG the numbers of the job count slices, not GPUs.
		return "", mask{}, nil
	}

	for _, name := range []string{"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"} {
		if value, _ := env.Lookup(name); value != "" {
			return slurmList(variable{name, value}, slurmDevices(env, m))
		}
	}

	if env.hasAny("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK", "SLURM_GPUS", "SLURM_GPUS_ON_NODE") {
		return "", mask{}, nil
	}

	return "", mask{}, []Note{{codeSlurm, "this Slurm job has no GPU variables: it was probably given no GPU (ask with sbatch --gpus=1), yet nothing hides the GPUs of this machine from it"}}
}

func slurmList(v variable, devices []*gpu.Device) (gpu.Vendor, mask, []Note) {
	numbers, ok := slurmNumbers(v.value)
	if ok && len(devices) > 0 && len(devices) <= len(numbers) {
		return "", mask{}, nil
	}

	given, all := devicesByIndex(devices, numbers)
	if !ok || !all {
		return "", mask{}, []Note{v.newNote(codeSlurmList, "this list of the Slurm job does not fit the GPUs of this machine; it is not applied")}
	}

	return given[0].Vendor, mask{set: true, because: v.String(), among: devices, allowed: wholeChoices(given)}, nil
}

// maskWithin is the vendor's own mask inside an allocation on a node that shows all devices: absolute if it is within
// the given devices, else relative to them.
func maskWithin(read func(Env, gpu.Machine) mask, env Env, m gpu.Machine, given mask) mask {
	own := read(env, m)
	part := gpu.Machine{}
	for _, c := range given.allowed {
		part.Devices = append(part.Devices, *c.dev)
	}

	inside := func(c choice) bool {
		return slices.ContainsFunc(given.allowed, func(g choice) bool { return g.dev == c.dev })
	}

	if len(own.allowed) == 0 || slices.ContainsFunc(own.allowed, func(c choice) bool { return !inside(c) }) {
		own = read(env, part)
	}

	own.among = nil

	for _, c := range given.allowed {
		own.among = append(own.among, c.dev)
	}

	return own
}

// slurmDevices are the devices that Slurm's numbers mean: of the only vendor on this machine, or of the vendor whose
// variable is set.
func slurmDevices(env Env, m gpu.Machine) []*gpu.Device {
	nvidia, amd := pciOrder(devicesOf(m, gpu.NVIDIA)), devicesOf(m, gpu.AMD)
	switch {
	case len(amd) == 0:
		return nvidia
	case len(nvidia) == 0:
		return amd
	case env.hasAny("ROCR_VISIBLE_DEVICES") && !env.hasAny(cudaVariable):
		return amd
	case env.hasAny(cudaVariable) && !env.hasAny("ROCR_VISIBLE_DEVICES"):
		return nvidia
	}
	return nil
}

// devicesByIndex finds the devices with these numbers; all is false when one is missing.
func devicesByIndex(devices []*gpu.Device, numbers []int) (found []*gpu.Device, all bool) {
	for _, n := range numbers {
		i := slices.IndexFunc(devices, func(d *gpu.Device) bool { return d.Index == n })
		if i < 0 {
			return nil, false
		}
		found = append(found, devices[i])
	}
	return found, len(found) > 0
}

// slurmNumbers reads "0,2" and "0-3,6".
func slurmNumbers(value string) ([]int, bool) {
	var out []int
	for _, part := range strings.Split(value, ",") {
		low, high, dash := strings.Cut(strings.TrimSpace(part), "-")
		if !dash {
			high = low
		}

		a, err := strconv.ParseUint(low, 10, 10)
		b, err2 := strconv.ParseUint(high, 10, 10)
		if err != nil || err2 != nil || b < a {
			return nil, false
		}

		for n := a; n <= b; n++ {
			if !slices.Contains(out, int(n)) {
				out = append(out, int(n))
			}
		}
	}
	return out, true
}
