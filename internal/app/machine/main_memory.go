package machine

import (
	"context"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
	"gpuard/internal/host/proc"
)

// withMainMemory gives the device that has no memory of its own that of the machine. Some drivers give no size for such
// a device, and others that of the machine, with what everything on it uses.
func withMainMemory(read Reader, processes proc.FS) Reader {
	return func(ctx context.Context, query gpu.Query) (gpu.Machine, error) {
		m, err := read(ctx, query)
		for i := range m.Devices {
			d := &m.Devices[i]
			if err != nil || !compat.InMainMemory(*d) {
				continue
			}

			total, available, lost := processes.MainMemory()
			if lost != nil {
				m.Problems = append(m.Problems, lost.Error())
				continue
			}

			d.Integrated, d.MainMemory, d.MainAvailable = new(true), new(total), new(available)
			d.MemoryTotal, d.MemoryUsed, d.MemoryReserved = nil, nil, nil
		}
		return m, err
	}
}
