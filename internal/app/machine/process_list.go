package machine

import (
	"fmt"
	"slices"

	"gpuard/internal/core/gpu"
)

// UnlistedReason says why the driver's list of processes is no witness for these devices, "" when it is. In WSL, too,
// that list may be empty although memory is in use.
func (h *Host) UnlistedReason(m gpu.Machine, ids []gpu.UUID) string {
	initial, err := h.Proc.InitialPIDNamespace()
	inside := err == nil && !initial
	for _, d := range m.Devices {
		meant := slices.ContainsFunc(ids, func(id gpu.UUID) bool {
			o, _, ok := m.FindDevice(id)
			return ok && o.UUID == d.UUID
		})
		switch {
		case !meant:
		case d.Problem != "":
			return fmt.Sprintf("%s: %s", DeviceName(m, d), d.Problem)
		case d.Unlisted != "":
			return fmt.Sprintf("%s: %s", DeviceName(m, d), d.Unlisted)
		case inside && hasStrangers(m, d):
			return fmt.Sprintf("this is a container, and the driver lists the processes on %s under the numbers they have outside, or not at all; verify outside", DeviceName(m, d))
		}
	}

	return ""
}

// hasStrangers: in a PID namespace of its own a driver's list can name processes that are not known here, or be empty
// although memory is in use (more than a display or the driver itself needs).
func hasStrangers(m gpu.Machine, d gpu.Device) bool {
	list := m.ProcessesOn(d.UUID)
	if len(list) == 0 {
		return d.MemoryUsed != nil && *d.MemoryUsed > 128*gpu.MiB
	}
	return slices.ContainsFunc(list, func(p gpu.Process) bool { return p.Outside != 0 })
}
