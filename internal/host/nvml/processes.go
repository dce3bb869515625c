package nvml

import (
	"slices"
	"unsafe"

	"gpuard/internal/core/gpu"
)

// processList is one of the driver's process lists. Clients of the multi-process service (MPS) have a list of their
// own.
type processList struct {
	// The name of the function without its version.
	function string
	kind     gpu.Kind
	// Every driver has it, so it is a problem if it is missing.
	expected bool
	// A server, which is in the first list, serves these processes.
	served bool
}

func processLists() [3]processList {
	return [3]processList{
		{"nvmlDeviceGetComputeRunningProcesses", gpu.ComputeProcess, true, false},
		{"nvmlDeviceGetGraphicsRunningProcesses", gpu.GraphicsProcess, false, false},
		{"nvmlDeviceGetMPSComputeRunningProcesses", gpu.ComputeProcess, false, true},
	}
}

// readProcesses reads the processes of the device, or of each of its slices. Only administrators may read the list of a
// device in MIG mode (nvml.h, nvmlDeviceGetComputeRunningProcesses_v3), so it is used only for slices that do not
// answer.
func (r *deviceReader) readProcesses(what gpu.What) {
	for _, l := range processLists() {
		if l.served && what&gpu.Deciding != 0 && r.isEmpty() {
			continue
		}
		if len(r.slices)+len(r.unnamed) == 0 {
			found, s := r.readProcessList(r.handle, l.function)
			if l.expected && s != success {
				r.device.Unlisted = "cannot list its processes: " + r.lib.errorText(s)
			}

			if l.expected && s.isAbsent() {
				r.problems = append(r.problems, r.device.Unlisted)
			}

			r.recordResult(l.function, s)
			r.addProcesses(r.device.UUID, l.kind, found...)
			continue
		}
		r.readSliceProcesses(l)
	}

	// The driver says that a program draws also where no screen shows it.
	if slices.ContainsFunc(r.processes, func(p gpu.Process) bool { return p.Kind != gpu.ComputeProcess }) {
		r.device.DisplayActive = r.readFlag("nvmlDeviceGetDisplayActive")
	}
}

// minContextMemory is less memory than a program takes on a device before it computes anything: a CUDA context alone is
// some 100 MiB and more.
const minContextMemory = 32 * gpu.MiB

// isEmpty reports that no process is known, nor memory that one would need.
func (r *deviceReader) isEmpty() bool {
	return len(r.processes) == 0 && r.device.MemoryUsed != nil && *r.device.MemoryUsed < minContextMemory
}

// readSliceProcesses reads the processes of each slice. Those of a slice without a name are added to the device, so
// that they do not disappear.
func (r *deviceReader) readSliceProcesses(l processList) {
	allAnswer := true
	for i, handle := range slices.Concat(r.slices, r.unnamed) {
		id := r.device.UUID
		if i < len(r.slices) {
			id = r.device.MIG[i].UUID
		}

		found, s := r.readProcessList(handle, l.function)
		allAnswer = allAnswer && s == success
		r.addProcesses(id, l.kind, found...)
	}

	if allAnswer {
		return
	}

	found, s := r.readProcessList(r.handle, l.function)
	if !r.recordResult(l.function, s) {
		if l.expected {
			r.device.Unlisted = "cannot list the processes of its MIG devices: " + r.lib.errorText(s)
		}
		if l.expected && s.isAbsent() {
			r.problems = append(r.problems, r.device.Unlisted)
		}
		return
	}

	for _, p := range found {
		r.addProcesses(r.sliceOf(p), l.kind, p)
	}
}

// sliceOf is the slice that a process of the device's list is on, or the device where no slice with a name is that.
func (r *deviceReader) sliceOf(p processInfo) gpu.UUID {
	for _, slice := range r.device.MIG {
		if int(p.gpuInstance) == slice.GPUInstance && int(p.computeInstance) == slice.ComputeInstance {
			return slice.UUID
		}
	}
	return r.device.UUID
}

// readProcessList fetches one list. Versions 2 and 3 fill the same structure; drivers before 510 have only version 2.
func (r *deviceReader) readProcessList(handle uintptr, function string) ([]processInfo, returnCode) {
	s := functionNotFound
	for _, version := range []string{"_v3", "_v2"} {
		var found []processInfo
		found, s = r.fetchProcessList(handle, function+version)
		if !s.isAbsent() {
			return found, s
		}
	}
	return nil, s
}

// maxProcesses is far more than can use a device; a larger list would fill the memory.
const maxProcesses = 1 << 16

// fetchProcessList calls again with a larger buffer until the list fits, because processes start between two calls.
func (r *deviceReader) fetchProcessList(handle uintptr, name string) ([]processInfo, returnCode) {
	s := success
	room := uint32(32)
	for range 8 {
		if r.isLost() {
			return nil, gpuIsLost
		}

		infos := make([]processInfo, room)
		count := room
		s = r.lib.callDriver(name, handle, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&infos[0])))
		if s == success {
			return infos[:min(count, room)], s
		}
		if s != insufficientSize {
			return nil, s
		}
		if count > maxProcesses {
			return nil, unknown
		}

		room = max(2*room, count+8)
	}

	return nil, s
}

// addProcesses adds processes of a device or slice.
func (r *deviceReader) addProcesses(id gpu.UUID, kind gpu.Kind, infos ...processInfo) {
	for _, info := range infos {
		p := gpu.Process{PID: int(info.pid), GPU: id, Kind: kind}
		if info.memory != notAvailable {
			p.Memory = new(gpu.Bytes(info.memory))
		}
		r.processes = p.AddTo(r.processes)
	}
}
