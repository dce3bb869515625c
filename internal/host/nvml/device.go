package nvml

import (
	"fmt"
	"unsafe"

	"gpuard/internal/core/gpu"
)

// reader asks the driver about one device. It belongs to one goroutine; only copies of its answer leave it.
type reader struct {
	lib    *Library
	slices []uintptr // handles of device.MIG, by position
	answer
}

// parts is how many parts a reading has at most: identity, size, load, processes, health and links.
const parts = 6

func (r *reader) parts(what gpu.What) []func() {
	list := []func(){r.identity, func() { r.size(what) }}
	for _, part := range []struct {
		of   gpu.What
		read func()
	}{{gpu.Load, r.load}, {gpu.Processes, r.readProcesses}, {gpu.Health, r.health}, {gpu.Links, r.readEnds}} {
		if what&part.of != 0 {
			list = append(list, part.read)
		}
	}
	return list
}

// ok notes what a call answered. A device that is gone stops the reading; a reading that this device does not have is
// silent; everything else is a problem worth showing.
func (r *reader) ok(name string, s status) bool {
	if s == success {
		return true
	}
	if words, fatal := s.fatal(); fatal {
		r.device.Problem = words
	} else if !s.absent() {
		r.problems = append(r.problems, fmt.Sprintf("cannot read %s: %s", name, r.lib.words(s)))
	}
	return false
}

// gone reports that the driver has given this device up, so that asking on is pointless and may be slow.
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
	if n := r.number(name); n != nil {
		return new(*n != 0)
	}
	return nil
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

// identity finds the handle and what names the device. The handle itself is part of it because getting it starts the
// device, which takes seconds without persistence mode, and hangs on a sick one.
func (r *reader) identity() {
	const byIndex = "nvmlDeviceGetHandleByIndex_v2"
	switch s := r.lib.call(byIndex, uintptr(r.index), uintptr(unsafe.Pointer(&r.handle))); {
	case s == noPermission:
		r.device.Problem = denied
	case s != success:
		if r.ok(byIndex, s); !r.gone() {
			r.device.Problem = "cannot open the device: " + r.lib.words(s)
		}
	}
	if r.gone() {
		return
	}
	uuid, s := r.lib.text("nvmlDeviceGetUUID", r.handle, uuidSize)
	if s != success {
		if r.ok("nvmlDeviceGetUUID", s); !r.gone() {
			r.device.Problem = "cannot read its UUID: " + r.lib.words(s)
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

// size reads how large the device is and how it is split: a device that hangs here keeps its name.
func (r *reader) size(what gpu.What) {
	d := &r.device
	m := r.memory(r.handle)
	d.MemoryTotal = m.total
	if what&gpu.Load != 0 {
		d.MemoryUsed, d.MemoryReserved = m.used, m.reserved
	}
	r.mig(what)
}

// pci is the address as the kernel writes it in /sys/bus/pci/devices, which NVML writes in capitals and with a longer domain.
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

// memorySizes are the readings of one device or slice; nil is absent.
type memorySizes struct{ total, used, reserved *gpu.Bytes }

// memory asks version 2 first: version 1 counts the driver's own reserve as used.
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
