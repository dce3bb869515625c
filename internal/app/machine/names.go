package machine

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
)

// DeviceName is "GPU 2", or "GPU amd:2" where the machine has GPUs of several vendors.
func DeviceName(m gpu.Machine, d gpu.Device) string {
	if slices.ContainsFunc(m.Devices, func(o gpu.Device) bool { return o.Vendor != d.Vendor }) {
		return fmt.Sprintf("GPU %s:%d", d.Vendor, d.Index)
	}
	return fmt.Sprintf("GPU %d", d.Index)
}

// Names resolves owners of leases for people; the number is the identity.
func (h *Host) Names(uid uint32) string { return h.Proc.User(uid) }

// BaseName is the name of the program of a command, for texts; "" for none.
func BaseName(command []string) string {
	if len(command) == 0 {
		return ""
	}
	return prose.Clean(filepath.Base(command[0]))
}

// JobName is what a job is called in its lease, which all users can read: no arguments.
func JobName(spec job.Spec) string { return cmp.Or(spec.Name, BaseName(spec.Command)) }

// NameOf is what people call a device; its UUID where it cannot be read.
func NameOf(m gpu.Machine, id gpu.UUID) string {
	if d, _, ok := m.FindDevice(id); ok {
		return DeviceName(m, *d)
	}
	return string(id)
}
