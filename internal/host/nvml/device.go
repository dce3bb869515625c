package nvml

import (
	"fmt"
	"slices"
	"unsafe"

	"gpuard/internal/core/gpu"
)

// deviceReader reads one device. It belongs to one goroutine, which sends only copies of its answer.
type deviceReader struct {
	lib *Library
	// Handles of device.MIG, by position.
	slices []uintptr
	// The handles of slices that are not in device.MIG.
	unnamed []uintptr
	deviceAnswer
}

// maxParts is the highest number of parts in a reading: identity, size, and the seven below.
const maxParts = 9

func (r *deviceReader) readingParts(what gpu.What) []func() {
	type part struct {
		of   gpu.What
		read func()
	}

	load, processes := part{gpu.Quick, func() { r.readLoad(what) }}, part{gpu.Processes, func() { r.readProcesses(what) }}
	order := []part{load, {gpu.Clocks, r.readClocks}, {gpu.Power, r.readPower}, processes, {gpu.Faults, func() { r.readFaults(what) }}, {gpu.Modes, r.readModes}, {gpu.Links, r.readLinkEnds}}
	if what&gpu.Deciding != 0 {
		// Whether the load has to be known.
		order[0], order[3] = processes, load
	}

	list := []func(){r.readIdentity, func() { r.readSize(what) }}
	for _, p := range order {
		if what&p.of != 0 {
			list = append(list, p.read)
		}
	}

	return list
}

// recordResult records the result of a call and reports whether it succeeded. A lost device gets a Problem, which ends
// its reading. A reading that this device does not have is ignored. Every other failure becomes a problem of the
// machine.
func (r *deviceReader) recordResult(name string, s returnCode) bool {
	if s == success {
		return true
	}
	if words, fatal := s.fatalProblem(); fatal {
		r.device.Problem = words
	} else if !s.isAbsent() {
		r.addProblem(fmt.Sprintf("cannot read %s: %s", name, r.lib.errorText(s)))
	}
	return false
}

// addProblem adds a problem of the machine, once: some calls are made for several sensors.
func (r *deviceReader) addProblem(problem string) {
	if !slices.Contains(r.problems, problem) {
		r.problems = append(r.problems, problem)
	}
}

// isLost reports that the device is lost, so that further calls would fail and may be slow.
func (r *deviceReader) isLost() bool { return r.device.Problem != "" }

// readNumber calls f(device, unsigned int *). The pointer is nil when the reading is absent.
func (r *deviceReader) readNumber(name string) *int {
	var value uint32
	if r.isLost() || !r.recordResult(name, r.lib.callDriver(name, r.handle, uintptr(unsafe.Pointer(&value)))) {
		return nil
	}
	return new(int(value))
}

// readNumberOf calls f(device, which, unsigned int *).
func (r *deviceReader) readNumberOf(name string, which uintptr) *int {
	var value uint32
	if r.isLost() || !r.recordResult(name, r.lib.callDriver(name, r.handle, which, uintptr(unsafe.Pointer(&value)))) {
		return nil
	}
	return new(int(value))
}

// readFlag calls f(device, nvmlEnableState_t *).
func (r *deviceReader) readFlag(name string) *bool {
	n := r.readNumber(name)
	if n == nil {
		return nil
	}
	return boolFromState(uint32(*n))
}

// boolFromState is nil for a value that is neither, such as "not available".
func boolFromState(value uint32) *bool {
	if value > 1 {
		return nil
	}
	return new(value == 1)
}

// readPair calls f(device, unsigned int *, unsigned int *); the second may be written although only the first is
// wanted.
func (r *deviceReader) readPair(name string) (first, second uint32, ok bool) {
	if r.isLost() {
		return 0, 0, false
	}
	ok = r.recordResult(name, r.lib.callDriver(name, r.handle, uintptr(unsafe.Pointer(&first)), uintptr(unsafe.Pointer(&second))))
	return first, second, ok
}

// deniedProblem is the problem of a device that this process may not open.
const deniedProblem = "no permission to use this GPU"

// readIdentity gets the handle and reads what identifies the device. The call that gets the handle initialises the
// device, which takes seconds without persistence mode and can hang if the device is broken.
func (r *deviceReader) readIdentity() {
	const byIndex = "nvmlDeviceGetHandleByIndex_v2"
	switch s := r.lib.callDriver(byIndex, uintptr(r.index), uintptr(unsafe.Pointer(&r.handle))); {
	case s == noPermission:
		r.device.Problem = deniedProblem
	case s != success:
		r.recordResult(byIndex, s)
		if !r.isLost() {
			r.device.Problem = "cannot open the device: " + r.lib.errorText(s)
		}
	}

	if r.isLost() {
		return
	}

	uuid, s := r.lib.readText("nvmlDeviceGetUUID", r.handle, uuidSize)
	if s != success {
		r.recordResult("nvmlDeviceGetUUID", s)
		if !r.isLost() {
			r.device.Problem = "cannot read its UUID: " + r.lib.errorText(s)
		}
		return
	}

	d := &r.device
	d.UUID = gpu.UUID(uuid)
	d.Name, s = r.lib.readText("nvmlDeviceGetName", r.handle, nameSize)
	r.recordResult("nvmlDeviceGetName", s)
	d.PCI = r.readPCI()
	d.Minor = r.readNumber("nvmlDeviceGetMinorNumber")
	if major, minor, ok := r.readPair("nvmlDeviceGetCudaComputeCapability"); ok {
		d.Compute = &gpu.Capability{Major: int(major), Minor: int(minor)}
	}
}

// readSize reads memory and MIG devices. It is a part of its own, so that a device that hangs here keeps its identity.
func (r *deviceReader) readSize(what gpu.What) {
	d := &r.device
	m := r.readMemory(r.handle)
	d.MemoryTotal = m.total
	if what&gpu.Load != 0 {
		d.MemoryUsed, d.MemoryReserved = m.used, m.reserved
	}

	r.readMIG(what)
}

// readPCI returns the PCI address in the form of /sys/bus/pci/devices; NVML's own form has capitals and a longer
// domain.
func (r *deviceReader) readPCI() string {
	var info pciInfo
	if r.isLost() || !r.recordResult("nvmlDeviceGetPciInfo_v3", r.lib.callDriver("nvmlDeviceGetPciInfo_v3", r.handle, uintptr(unsafe.Pointer(&info)))) {
		return ""
	}
	return info.pciAddress()
}

func (p *pciInfo) pciAddress() string {
	return fmt.Sprintf("%04x:%02x:%02x.0", p.domain, p.bus, p.device)
}

// memorySizes is the memory of one device or slice; nil means that it cannot be read.
type memorySizes struct{ total, used, reserved *gpu.Bytes }

// readMemory prefers version 2: version 1 counts the memory that the driver reserves as used.
func (r *deviceReader) readMemory(handle uintptr) memorySizes {
	if r.isLost() {
		return memorySizes{}
	}

	v2 := memoryV2{version: memoryV2Version}
	s := r.lib.callDriver("nvmlDeviceGetMemoryInfo_v2", handle, uintptr(unsafe.Pointer(&v2)))
	if s == success {
		return memorySizes{new(gpu.Bytes(v2.total)), new(gpu.Bytes(v2.used)), new(gpu.Bytes(v2.reserved))}
	}

	if !s.isAbsent() {
		r.recordResult("nvmlDeviceGetMemoryInfo_v2", s)
		return memorySizes{}
	}

	var v1 memory
	if !r.recordResult("nvmlDeviceGetMemoryInfo", r.lib.callDriver("nvmlDeviceGetMemoryInfo", handle, uintptr(unsafe.Pointer(&v1)))) {
		return memorySizes{}
	}

	return memorySizes{total: new(gpu.Bytes(v1.total)), used: new(gpu.Bytes(v1.used))}
}
