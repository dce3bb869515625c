package quota

import (
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// Measured is what was measured of a lease while it was live. The zero value is nothing.
type Measured struct {
	// Most memory of one device; 0 not measured.
	Peak gpu.Bytes `json:"peak,omitempty"`
	// Sum of the samples: each the mean utilisation of the devices, 0..1.
	Load    float64 `json:"load,omitempty"`
	Samples int     `json:"samples,omitempty"` // in Load
	// The time of the last reading.
	Until time.Time `json:"until"`
	// The worst verdict on where its job works: "outside-lease", "cpu", "partly-used"; "" none.
	Seen string `json:"seen,omitempty"`
}

// Add adds a reading of the machine. Who has a whole device has all that is used of it; of a share, a slice or the main
// memory, only what own says that its processes use.
func (u *Measured) Add(m gpu.Machine, l *job.Lease, own func(gpu.UUID) gpu.Bytes) {
	load, loads := 0.0, 0
	for _, id := range l.Devices {
		d, slice, ok := m.FindDevice(id)
		if !ok {
			continue
		}

		whole := l.Share == 0 && slice == nil
		if whole && d.Utilization != nil {
			load, loads = load+*d.Utilization, loads+1
		}

		if whole && d.MemoryUsed != nil {
			u.Peak = max(u.Peak, *d.MemoryUsed)
		} else {
			u.Peak = max(u.Peak, own(id))
		}
	}
	if loads > 0 {
		u.Load += load / float64(loads)
		u.Samples++
	}
	u.Until = m.Taken
}

// MeanLoad is the mean utilisation, 0..1; nil where nothing was measured.
func (u Measured) MeanLoad() *float64 {
	if u.Samples == 0 {
		return nil
	}
	mean := u.Load / float64(u.Samples)
	return &mean
}
