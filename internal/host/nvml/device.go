package nvml

import (
	"fmt"
	"slices"
	"unsafe"

	"gpuard/internal/core/gpu"
)

// reader reads one device. It belongs to one goroutine, which sends only copies of its answer.
type reader struct {
	lib     *Library
	slices  []uintptr // handles of device.MIG, by position
	unnamed []uintptr // of slices that are not in device.MIG
	answer
}

// parts is the highest number of parts in a reading: identity, size, and the seven below.
const parts = 9

func (r *reader) parts(what gpu.What) []func() {
	type part struct {
		of   gpu.What
		read func()
	}
	load, processes := part{gpu.Quick, func() { r.readLoad(what) }}, part{gpu.Processes, func() { r.readProcesses(what) }}
	order := []part{load, {gpu.Clocks, r.readClocks}, {gpu.Power, r.power}, processes, {gpu.Faults, func() { r.readFaults(what) }}, {gpu.Modes, r.readModes}, {gpu.Links, r.readEnds}}
	if what&gpu.Deciding != 0 { // whether the load has to be known
		order[0], order[3] = processes, load
	}
	list := []func(){r.identity, func() { r.size(what) }}
	for _, p := range order {
		if what&p.of != 0 {
			list = append(list, p.read)
		}
	}
	return list
}

// ok records the result of a call and reports whether it succeeded. A lost device gets a Problem, which ends its
// reading. A reading that this device does not have is ignored. Every other failure becomes a problem of the machine.
func (r *reader) ok(name string, s status) bool {
	if s == success {
		return true
	}
	if words, fatal := s.fatal(); fatal {
		r.device.Problem = words
	} else if !s.absent() {
		r.addProblem(fmt.Sprintf("cannot read %s: %s", name, r.lib.errorText(s)))
	}
	return false
}

// addProblem adds a problem of the machine, once: some calls are made for several sensors.
func (r *reader) addProblem(problem string) {
	if !slices.Contains(r.problems, problem) {
		r.problems = append(r.problems, problem)
	}
}

// gone reports that the device is lost, so that further calls would fail and may be slow.
func (r *reader) gone() bool { return r.device.Problem != "" }

// number calls f(device, unsigned int *). The pointer is nil when the reading is absent.
func (r *reader) number(name string) *int {
	var value uint32
	if r.gone() || !r.ok(name, r.lib.call(name, r.handle, uintptr(unsafe.Pointer(&value)))) {
		return nil
	}
	return new(int(value))
}

// numberOf calls f(device, which, unsigned int *).
func (r *reader) numberOf(name string, which uintptr) *int {
	var value uint32
	if r.gone() || !r.ok(name, r.lib.call(name, r.handle, which, uintptr(unsafe.Pointer(&value)))) {
		return nil
	}
	return new(int(value))
}

// flag calls f(device, nvmlEnableState_t *).
func (r *reader) flag(name string) *bool {
	n := r.number(name)
	if n == nil {
		return nil
	}
	return yesOrNo(uint32(*n))
}

// yesOrNo is nil for a value that is neither, such as "not available".
func yesOrNo(value uint32) *bool {
	if value > 1 {
		return nil
	}
	return new(value == 1)
}

// pair calls f(device, unsigned int *, unsigned int *); the second may be written although only the first is wanted.
func (r *reader) pair(name string) (first, second uint32, ok bool) {
	if r.gone() {
		return 0, 0, false
	}
	ok = r.ok(name, r.lib.call(name, r.handle, uintptr(unsafe.Pointer(&first)), uintptr(unsafe.Pointer(&second))))
	return first, second, ok
}

// denied is the problem of a device that this process may not open.
const denied = "no permission to use this GPU"

// identity gets the handle and reads what identifies the device. The call that gets the handle initialises the device,
// which takes seconds without persistence mode and can hang if the device is broken.
func (r *reader) identity() {
	const byIndex = "nvmlDeviceGetHandleByIndex_v2"
	switch s := r.lib.call(byIndex, uintptr(r.index), uintptr(unsafe.Pointer(&r.handle))); {
	case s == noPermission:
		r.device.Problem = denied
	case s != success:
		if r.ok(byIndex, s); !r.gone() {
			r.device.Problem = "cannot open the device: " + r.lib.errorText(s)
		}
	}
	if r.gone() {
		return
	}
	uuid, s := r.lib.text("nvmlDeviceGetUUID", r.handle, uuidSize)
	if s != success {
		if r.ok("nvmlDeviceGetUUID", s); !r.gone() {
			r.device.Problem = "cannot read its UUID: " + r.lib.errorText(s)
		}
		return
	}
	d := &r.device
	d.UUID = gpu.UUID(uuid)
	d.Name, s = r.lib.text("nvmlDeviceGetName", r.handle, nameSize)
	r.ok("nvmlDeviceGetName", s)
	d.PCI = r.pci()
	d.Minor = r.number("nvmlDeviceGetMinorNumber")
	if major, minor, ok := r.pair("nvmlDeviceGetCudaComputeCapability"); ok {
		d.Compute = &gpu.Capability{Major: int(major), Minor: int(minor)}
	}
}

// size reads memory and MIG devices. It is a part of its own, so that a device that hangs here keeps its identity.
func (r *reader) size(what gpu.What) {
	d := &r.device
	m := r.memory(r.handle)
	d.MemoryTotal = m.total
	if what&gpu.Load != 0 {
		d.MemoryUsed, d.MemoryReserved = m.used, m.reserved
	}
	r.mig(what)
}

// pci returns the PCI address in the form of /sys/bus/pci/devices; NVML's own form has capitals and a longer domain.
func (r *reader) pci() string {
	var info pciInfo
	if r.gone() || !r.ok("nvmlDeviceGetPciInfo_v3", r.lib.call("nvmlDeviceGetPciInfo_v3", r.handle, uintptr(unsafe.Pointer(&info)))) {
		return ""
	}
	return info.address()
}

func (p *pciInfo) address() string {
	return fmt.Sprintf("%04x:%02x:%02x.0", p.domain, p.bus, p.device)
}

// memorySizes is the memory of one device or slice; nil means that it cannot be read.
type memorySizes struct{ total, used, reserved *gpu.Bytes }

// memory prefers version 2: version 1 counts the memory that the driver reserves as used.
func (r *reader) memory(handle uintptr) memorySizes {
	if r.gone() {
		return memorySizes{}
	}
	v2 := memoryV2{version: memoryV2Version}
	s := r.lib.call("nvmlDeviceGetMemoryInfo_v2", handle, uintptr(unsafe.Pointer(&v2)))
	if s == success {
		return memorySizes{new(gpu.Bytes(v2.total)), new(gpu.Bytes(v2.used)), new(gpu.Bytes(v2.reserved))}
	}
	if !s.absent() {
		r.ok("nvmlDeviceGetMemoryInfo_v2", s)
		return memorySizes{}
	}
	var v1 memory
	if !r.ok("nvmlDeviceGetMemoryInfo", r.lib.call("nvmlDeviceGetMemoryInfo", handle, uintptr(unsafe.Pointer(&v1)))) {
		return memorySizes{}
	}
	return memorySizes{total: new(gpu.Bytes(v1.total)), used: new(gpu.Bytes(v1.used))}
}
