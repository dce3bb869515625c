package nvml

import (
	"fmt"
	"math"
	"strings"
	"unsafe"

	"gpuard/internal/core/gpu"
)

// maxSlices is far more than any device can be divided into.
const maxSlices = 64

// readMIG reads the MIG mode and, if it is on, the MIG devices.
func (r *deviceReader) readMIG(what gpu.What) {
	current, _, ok := r.readPair("nvmlDeviceGetMigMode")
	if !ok {
		return
	}

	r.device.MIGMode = boolFromState(current)
	if current != 1 {
		return
	}

	most := r.readNumber("nvmlDeviceGetMaxMigDeviceCount")
	if most == nil {
		return
	}

	if *most > maxSlices {
		r.problems = append(r.problems, fmt.Sprintf("cannot read its MIG devices: the driver says that there may be %d", *most))
		return
	}

	const byIndex = "nvmlDeviceGetMigDeviceHandleByIndex"

	for i := range *most {
		var handle uintptr
		s := r.lib.callDriver(byIndex, r.handle, uintptr(i), uintptr(unsafe.Pointer(&handle)))
		if !r.recordResult(byIndex, s) {
			if r.isLost() {
				return
			}

			// "not found" is an unused index.
			continue
		}
		if slice, ok := r.readSlice(handle, i, what); ok {
			r.device.MIG = append(r.device.MIG, slice)
			r.slices = append(r.slices, handle)
		} else {
			r.unnamed = append(r.unnamed, handle)
		}
	}
}

// readSlice reads one MIG device. Without a UUID it cannot be leased, so it is only reported as a problem, and its
// processes are those of the whole device.
func (r *deviceReader) readSlice(handle uintptr, index int, what gpu.What) (gpu.MIGDevice, bool) {
	uuid, s := r.lib.readText("nvmlDeviceGetUUID", handle, uuidSize)
	if s != success {
		r.recordResult("nvmlDeviceGetUUID", s)
		if !r.isLost() {
			r.problems = append(r.problems, fmt.Sprintf("its MIG device %d cannot be named, so no job gets it and its processes count for the whole GPU: the driver says of its UUID: %s; see whether sudo nvidia-smi -L names it", index, r.lib.errorText(s)))
		}
		return gpu.MIGDevice{}, false
	}

	slice := gpu.MIGDevice{Index: index, UUID: gpu.UUID(uuid), Profile: r.readProfile(handle)}
	slice.GPUInstance = r.readInstanceID("nvmlDeviceGetGpuInstanceId", handle)
	slice.ComputeInstance = r.readInstanceID("nvmlDeviceGetComputeInstanceId", handle)
	m := r.readMemory(handle)
	slice.MemoryTotal = m.total
	if what&gpu.Load != 0 {
		slice.MemoryUsed = m.used
	}

	return slice, true
}

func (r *deviceReader) readInstanceID(name string, handle uintptr) int {
	var value uint32
	r.recordResult(name, r.lib.callDriver(name, handle, uintptr(unsafe.Pointer(&value))))
	return int(value)
}

// readProfile is the end of the slice's name ("NVIDIA A100-SXM4-80GB MIG 1g.10gb"), or is made from its attributes.
func (r *deviceReader) readProfile(handle uintptr) string {
	name, s := r.lib.readText("nvmlDeviceGetName", handle, nameSize)
	if _, profile, found := strings.Cut(name, " MIG "); found && r.recordResult("nvmlDeviceGetName", s) {
		return profile
	}

	var a attributes
	const all = "nvmlDeviceGetAttributes_v2"
	if r.device.MemoryTotal == nil || !r.recordResult(all, r.lib.callDriver(all, handle, uintptr(unsafe.Pointer(&a)))) {
		return ""
	}

	return a.profileName(*r.device.MemoryTotal)
}

// profileName names the slice as nvidia-smi does. The memory in the name is not the size of the slice, but its share of
// the device in eighths, times the size of the device in whole GiB (NVIDIA/go-nvlib pkg/nvlib/device/mig_profile.go).
func (a *attributes) profileName(device gpu.Bytes) string {
	eighths := math.Round(float64(a.memoryMiB) * float64(gpu.MiB) / float64(device) * 8)
	size := math.Round(eighths / 8 * math.Ceil(float64(device)/float64(gpu.GiB)))
	name := fmt.Sprintf("%dg.%.0fgb", a.gpuSlices, size)
	if a.computeSlices != a.gpuSlices {
		name = fmt.Sprintf("%dc.%s", a.computeSlices, name)
	}

	return name
}
