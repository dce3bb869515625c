package machine

import (
	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
)

// giveMainMemory replaces the memory of devices that have none of their own by that of the machine. Some drivers give no
// size for such a device, and others that of the machine, with what everything on it uses.
func (h *Host) giveMainMemory(m *gpu.Machine) {
	var total, available gpu.Bytes
	for i := range m.Devices {
		d := &m.Devices[i]
		if !compat.InMainMemory(*d) {
			continue
		}
		if total == 0 {
			var err error
			if total, available, err = h.Proc.MainMemory(); err != nil {
				m.Problems = append(m.Problems, err.Error())
				return
			}
		}
		d.Integrated, d.MainMemory, d.MainAvailable = new(true), new(total), new(available)
		d.MemoryTotal, d.MemoryUsed, d.MemoryReserved = nil, nil, nil
	}
}
