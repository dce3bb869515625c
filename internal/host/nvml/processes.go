package nvml

import (
	"slices"
	"unsafe"

	"gpuard/internal/core/gpu"
)

// processList is one of the driver's process lists. Clients of the multi-process service (MPS) have a list of their
// own.
type processList struct {
	function string // without its version
	kind     gpu.Kind
	expected bool // every driver has it, so it is a problem if it is missing
	served   bool // by a server, which is in the first list
}

func lists() [3]processList {
	return [3]processList{
		{"nvmlDeviceGetComputeRunningProcesses", gpu.ComputeProcess, true, false},
		{"nvmlDeviceGetGraphicsRunningProcesses", gpu.GraphicsProcess, false, false},
		{"nvmlDeviceGetMPSComputeRunningProcesses", gpu.ComputeProcess, false, true},
	}
}

// readProcesses reads the processes of the device, or of each of its slices. Only administrators may read the list of a
// device in MIG mode (nvml.h, nvmlDeviceGetComputeRunningProcesses_v3), so it is used only for slices that do not
// answer.
func (r *reader) readProcesses(what gpu.What) {
	for _, l := range lists() {
		if l.served && what&gpu.Deciding != 0 && r.isEmpty() {
			continue
		}
		if len(r.slices)+len(r.unnamed) == 0 {
			found, s := r.running(r.handle, l.function)
			if l.expected && s != success {
				r.device.Unlisted = "cannot list its processes: " + r.lib.errorText(s)
			}
			if l.expected && s.absent() {
				r.problems = append(r.problems, r.device.Unlisted)
			}
			r.ok(l.function, s)
			r.add(r.device.UUID, l.kind, found...)
			continue
		}
		r.onSlices(l)
	}
	// The driver says that a program draws also where no screen shows it.
	if slices.ContainsFunc(r.processes, func(p gpu.Process) bool { return p.Kind != gpu.ComputeProcess }) {
		r.device.DisplayActive = r.flag("nvmlDeviceGetDisplayActive")
	}
}

// leastContext is less memory than a program takes on a device before it computes anything: a CUDA context alone is some 100 MiB
// and more.
const leastContext = 32 * gpu.MiB

// isEmpty reports that no process is known, nor memory that one would need.
func (r *reader) isEmpty() bool {
	return len(r.processes) == 0 && r.device.MemoryUsed != nil && *r.device.MemoryUsed < leastContext
}

// onSlices reads the processes of each slice. Those of a slice without a name are added to the device, so that they do not disappear.
func (r *reader) onSlices(l processList) {
	allAnswer := true
	for i, handle := range slices.Concat(r.slices, r.unnamed) {
		id := r.device.UUID
		if i < len(r.slices) {
			id = r.device.MIG[i].UUID
		}
		found, s := r.running(handle, l.function)
		allAnswer = allAnswer && s == success
		r.add(id, l.kind, found...)
	}
	if allAnswer {
		return
	}
	found, s := r.running(r.handle, l.function)
	if !r.ok(l.function, s) {
		if l.expected {
			r.device.Unlisted = "cannot list the processes of its MIG devices: " + r.lib.errorText(s)
		}
		if l.expected && s.absent() {
			r.problems = append(r.problems, r.device.Unlisted)
		}
		return
	}
	for _, p := range found {
		r.add(r.sliceOf(p), l.kind, p)
	}
}

// sliceOf is the slice that a process of the device's list is on, or the device where no slice with a name is that.
func (r *reader) sliceOf(p processInfo) gpu.UUID {
	for _, slice := range r.device.MIG {
		if int(p.gpuInstance) == slice.GPUInstance && int(p.computeInstance) == slice.ComputeInstance {
			return slice.UUID
		}
	}
	return r.device.UUID
}

// running fetches one list. Versions 2 and 3 fill the same structure; drivers before 510 have only version 2.
func (r *reader) running(handle uintptr, function string) ([]processInfo, status) {
	s := functionNotFound
	for _, version := range []string{"_v3", "_v2"} {
		var found []processInfo
		if found, s = r.fetch(handle, function+version); !s.absent() {
			return found, s
		}
	}
	return nil, s
}

// mostProcesses is far more than can use a device; a larger list would fill the memory.
const mostProcesses = 1 << 16

// fetch calls again with a larger buffer until the list fits, because processes start between two calls.
func (r *reader) fetch(handle uintptr, name string) ([]processInfo, status) {
	s := success
	room := uint32(32)
	for range 8 {
		if r.gone() {
			return nil, gpuIsLost
		}
		infos := make([]processInfo, room)
		count := room
		s = r.lib.call(name, handle, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&infos[0])))
		if s == success {
			return infos[:min(count, room)], s
		}
		if s != insufficientSize {
			return nil, s
		}
		if count > mostProcesses {
			return nil, unknown
		}
		room = max(2*room, count+8)
	}
	return nil, s
}

// add adds processes of a device or slice. A process that is in several lists is added once, with the larger memory.
func (r *reader) add(id gpu.UUID, kind gpu.Kind, infos ...processInfo) {
	for _, info := range infos {
		var size *gpu.Bytes
		if info.memory != notAvailable {
			size = new(gpu.Bytes(info.memory))
		}
		at := slices.IndexFunc(r.processes, func(p gpu.Process) bool { return p.PID == int(info.pid) && p.GPU == id })
		if at < 0 {
			r.processes = append(r.processes, gpu.Process{PID: int(info.pid), GPU: id, Memory: size, Kind: kind})
			continue
		}
		p := &r.processes[at]
		if p.Kind != kind {
			p.Kind = gpu.BothKinds
		}
		if p.Memory == nil || size != nil && *size > *p.Memory {
			p.Memory = size
		}
	}
}
