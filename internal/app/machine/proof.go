package machine

import (
	"fmt"

	"gpuard/internal/core/devfile"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

// ProveUse returns nil if a process has the device open, or the device of the slice. Whoever signals a process that a
// driver has listed asks for that first, with the process's pidfd open and its start compared: a driver's number may be
// that of another process here, and outside of the first PID namespace it mostly is.
func (h *Host) ProveUse(m gpu.Machine, pid int, id gpu.UUID) error {
	d, _, known := m.FindDevice(id)
	if !known {
		return fmt.Errorf("nothing proves that it uses a GPU: device %s is gone", prose.Clean(string(id)))
	}

	files, err := h.Proc.HeldDeviceFiles(pid)
	switch {
	case err != nil:
		return fmt.Errorf("nothing proves that it uses %s: %w", DeviceName(m, *d), err)
	case !devfile.HasOpen(*d, files):
		return fmt.Errorf("it has not opened %s (%s), so the driver may mean another process by that number", DeviceName(m, *d), devfile.FileName(*d))
	}

	return nil
}
