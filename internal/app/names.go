package app

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// gpuName is "GPU 2", or "GPU amd:2" where the machine has GPUs of several vendors.
func gpuName(m gpu.Machine, d gpu.Device) string {
	if slices.ContainsFunc(m.Devices, func(o gpu.Device) bool { return o.Vendor != d.Vendor }) {
		return fmt.Sprintf("GPU %s:%d", d.Vendor, d.Index)
	}
	return fmt.Sprintf("GPU %d", d.Index)
}

// Names resolves owners of leases for people; the number is the identity.
func (a *App) Names(uid uint32) string { return a.Proc.User(uid) }

func baseName(command []string) string {
	if len(command) == 0 {
		return ""
	}
	return gpu.Clean(filepath.Base(command[0]))
}

// commandWord is the base name of a command line. It is cut, for a line longer than PIPE_BUF may block its writer (pipe(7)).
func commandWord(line string) string { return gpu.Brief(baseName(strings.Fields(line))) }

// deviceName is what people call a device; its UUID where it cannot be read.
func deviceName(m gpu.Machine, id gpu.UUID) string {
	if d, _, ok := m.Find(id); ok {
		return gpuName(m, *d)
	}
	return string(id)
}
