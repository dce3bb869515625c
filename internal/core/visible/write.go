package visible

import (
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
)

// Target is a device, or MIG device, that a job is given.
type Target struct {
	// The index of the whole device.
	Index int
	// The UUID of the device, or of the MIG device.
	UUID   gpu.UUID
	MIG    bool
	Vendor gpu.Vendor
}

// Var is one change to an environment: a value to set, or a name to remove.
type Var struct {
	Name  string
	Value string // "" when Unset
	Unset bool
}

// TargetVars returns the variables that show a job exactly the targets, in their order, whatever it inherits: apply all
// of them. No targets means no GPU of any vendor. Of m, the whole machine, only the vendors matter: a job on one
// vendor's devices must see none of the others'. The targets are whole devices or MIG devices, not both.
func TargetVars(targets []Target, ids job.IDs, m gpu.Machine) []Var {
	by := map[gpu.Vendor][]Target{}
	for _, t := range targets {
		by[t.Vendor] = append(by[t.Vendor], t)
	}

	hide := func(v gpu.Vendor) bool { return len(targets) == 0 || len(devicesOf(m, v)) > 0 }
	nvidia, amd := by[gpu.NVIDIA], by[gpu.AMD]
	if ids == job.AutoIDs && !hasSureNumbers(m) {
		ids = job.UUIDs
	}

	out := writeNVIDIA(nvidia, ids, hide(gpu.NVIDIA))
	cuda := slices.ContainsFunc(out, func(v Var) bool { return v.Name == cudaVariable })
	switch {
	case len(amd) > 0:
		out = append(out, writeAMD(amd, ids, cuda)...)
	case hide(gpu.AMD):
		// ROCm stops a list at an invalid number, so -1 is "none" (ROCm/ROCR-Runtime amd_filter_device.cpp).
		out = append(out, Var{Name: "ROCR_VISIBLE_DEVICES", Value: "-1"}, Var{Name: "HIP_VISIBLE_DEVICES", Value: "-1"}, Var{Name: "GPU_DEVICE_ORDINAL", Value: "-1"})
	}

	out = append(out, writeIntel(by[gpu.Intel], hide(gpu.Intel), len(targets) == 0)...)
	out = append(out, writeAscend(by[gpu.Ascend], hide(gpu.Ascend))...)

	// tinygrad reads these before, or instead of, the vendors' variables; no value suits all its versions. Without them
	// its own drivers from 0.12 on open every GPU, since they read none of the variables written here.
	return append(out, Var{Name: "VISIBLE_DEVICES", Unset: true}, Var{Name: "HCQ_VISIBLE_DEVICES", Unset: true})
}

// writeOver is TargetVars for a job that inherits env. An inherited DEV with numbers, which only tinygrad from 0.13 on
// reads, gets those of the targets. A DEV without numbers stays as it is: its purpose and the version that reads it are
// not known, and older versions fail on numbers in it.
func writeOver(env Env, targets []Target, ids job.IDs, m gpu.Machine) []Var {
	out := TargetVars(targets, ids, m)
	value, _ := env.Lookup("DEV")
	if t := readTarget(value); t.numbers != "" {
		dev := t.valueForJob(targets)
		out = append(out, Var{Name: "DEV", Value: dev, Unset: dev == ""})
	}

	out = append(out, writeJAX(env, len(targets) == 0)...)
	if mujoco, given := env.Lookup(mujocoVariable); given && mujoco != "" {
		// Without it MuJoCo draws on the device that the list of CUDA shows first (google-deepmind/mujoco:
		// python/mujoco/egl/__init__.py).
		out = append(out, Var{Name: mujocoVariable, Unset: true})
	}

	return append(out, containerVars(env, out)...)
}

const (
	mujocoVariable = "MUJOCO_EGL_DEVICE_ID"
	jaxVariable    = "JAX_PLATFORMS"
)

// writeJAX keeps JAX on the CPU where no device is given: a JAX that was told to use CUDA, or has its plugin, ends or
// warns otherwise (docs.jax.dev, "Configuration options": jax_platforms). A job with devices that is started within
// such a one does not inherit that.
func writeJAX(env Env, none bool) []Var {
	if none {
		return []Var{{Name: jaxVariable, Value: "cpu"}}
	}

	platforms, _ := env.Lookup(jaxVariable)
	given, isJob := env.Lookup("GPUARD_GPUS")
	if platforms == "cpu" && isJob && given == "" {
		return []Var{{Name: jaxVariable, Unset: true}}
	}

	return nil
}

// containerVars gives an inherited variable for the inside of an Apptainer or Singularity container the value that the
// job has outside: it would count more there (apptainer.org, user guide: "Environment and Metadata").
func containerVars(env Env, vars []Var) (out []Var) {
	for _, v := range vars {
		for _, prefix := range []string{"APPTAINERENV_", "SINGULARITYENV_"} {
			_, given := env.Lookup(prefix + v.Name)
			if given {
				out = append(out, Var{Name: prefix + v.Name, Value: v.Value, Unset: v.Unset})
			}
		}
	}
	return out
}

// valueForJob leaves the choice of backend to tinygrad only where it must: tinygrad takes the first backend that opens,
// and its own drivers open GPUs that CUDA and ROCm would hide.
func (t tinygradTarget) valueForJob(targets []Target) string {
	of := func(backend string) []Target {
		return slices.DeleteFunc(slices.Clone(targets), func(d Target) bool { return d.Vendor.TinygradName() != backend })
	}

	backend := strings.ToUpper(t.device)
	mine := of(backend)
	switch {
	case len(targets) == 0:
		return "CPU"
	case backend == "CUDA" && len(of("NV")) > 0:
		// CUDA_VISIBLE_DEVICES chooses for libcuda.
		return tinygradTarget{device: t.device, renderer: t.renderer}.String()
	case len(mine) == 0:
		backend = targets[0].Vendor.TinygradName()
		mine, t = of(backend), tinygradTarget{device: backend}
	}

	switch {
	case backend == "":
		return ""
	case mine[0].MIG:
		// Tinygrad's own driver has no MIG devices.
		return "CUDA"
	}

	t.numbers = indexList(mine)

	return t.String()
}

// hasSureNumbers reports whether CUDA surely numbers devices as NVML does. It may leave out a lost GPU, and it counts a
// GPU in MIG mode as a MIG device, so with such a GPU a number could mean the next one, or none.
func hasSureNumbers(m gpu.Machine) bool {
	return !slices.ContainsFunc(devicesOf(m, gpu.NVIDIA), func(d *gpu.Device) bool { return d.Problem != "" || d.UsesMIG() })
}

// writeNVIDIA writes numbers only together with the order they count in. "none" is -1 for CUDA, because an empty
// value has meant both none and all over time, and void for container runtimes (NVIDIA/nvidia-container-toolkit).
func writeNVIDIA(targets []Target, ids job.IDs, hide bool) []Var {
	if len(targets) == 0 {
		out := []Var{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}}
		if hide {
			out = append(out, Var{Name: cudaVariable, Value: "-1"})
		}
		return out
	}

	uuids, numbers := uuidList(targets), indexList(targets)
	value := numbers
	if ids == job.UUIDs || slices.ContainsFunc(targets, func(t Target) bool { return t.MIG }) {
		value = uuids
	}

	return []Var{{Name: "CUDA_DEVICE_ORDER", Value: "PCI_BUS_ID"}, {Name: cudaVariable, Value: value}, {Name: "NVIDIA_VISIBLE_DEVICES", Value: uuids}}
}

// writeAMD filters once, in ROCR, below HIP and OpenCL. The variables of these count within ROCR's list, so they are
// removed, or written as 0..n-1 where CUDA_VISIBLE_DEVICES is set for NVIDIA, since HIP obeys that one too when its own
// is absent (ROCm/clr rocclr/device/rocm/rocdevice.cpp).
func writeAMD(targets []Target, ids job.IDs, cuda bool) []Var {
	value := indexList(targets)
	if ids == job.UUIDs && !slices.ContainsFunc(targets, func(t Target) bool { return !isROCmUUID(string(t.UUID)) }) {
		value = uuidList(targets)
	}

	out := []Var{{Name: "ROCR_VISIBLE_DEVICES", Value: value}, {Name: "GPU_DEVICE_ORDINAL", Unset: true}}
	if !cuda {
		return append(out, Var{Name: "HIP_VISIBLE_DEVICES", Unset: true}, Var{Name: cudaVariable, Unset: true})
	}

	own := make([]Target, len(targets))
	for i := range own {
		own[i].Index = i
	}

	return append(out, Var{Name: "HIP_VISIBLE_DEVICES", Value: indexList(own)})
}

// isROCmUUID reports whether ROCm's parser takes this as an identifier: GPU- and 16 hexadecimal digits.
func isROCmUUID(s string) bool {
	digits, ok := strings.CutPrefix(s, "GPU-")
	_, err := strconv.ParseUint(digits, 16, 64)
	return ok && len(digits) == 16 && err == nil
}

// writeIntel has no value for none: the driver skips numbers that no device has, so a list of only such a number leaves
// nothing (intel/compute-runtime execution_environment.cpp). SYCL can express it for a job without any GPU. The numbers
// follow the driver's own order.
func writeIntel(targets []Target, hide, noGPU bool) []Var {
	const affinity, selector = "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"
	switch {
	case len(targets) > 0:
		return []Var{{Name: affinity, Value: indexList(targets)}, {Name: pciOrderVariable, Unset: true}, {Name: selector, Unset: true}}
	case noGPU:
		return []Var{{Name: affinity, Value: noIntelDevice}, {Name: selector, Value: "*:cpu"}}
	case hide:
		return []Var{{Name: affinity, Value: noIntelDevice}}
	}
	return nil
}

const noIntelDevice = "65535"

// writeAscend sorts, because CANN requires ascending numbers (hiascend.com, ASCEND_RT_VISIBLE_DEVICES), and removes
// ASCEND_DEVICE_ID, which would have to be a number within the list.
func writeAscend(targets []Target, hide bool) []Var {
	if len(targets) == 0 && !hide {
		return nil
	}
	sorted := slices.Clone(targets)
	slices.SortFunc(sorted, func(a, b Target) int { return a.Index - b.Index })

	return []Var{{Name: "ASCEND_RT_VISIBLE_DEVICES", Value: indexList(sorted)}, {Name: "ASCEND_DEVICE_ID", Unset: true}}
}

func indexList(targets []Target) string {
	return strings.Join(prose.Texts(targets, func(t Target) string { return strconv.Itoa(t.Index) }), ",")
}

func uuidList(targets []Target) string {
	return strings.Join(prose.Texts(targets, func(t Target) string { return string(t.UUID) }), ",")
}

// Variables lists every variable that chooses devices for a runtime read here, in a fixed order.
func Variables() []string {
	return []string{
		"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES",
		"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
		"ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY", pciOrderVariable, "ONEAPI_DEVICE_SELECTOR", "SYCL_DEVICE_FILTER",
		"ASCEND_RT_VISIBLE_DEVICES", "ASCEND_DEVICE_ID",
		"VISIBLE_DEVICES", "HCQ_VISIBLE_DEVICES", "DEV",
	}
}
