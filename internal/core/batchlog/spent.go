package batchlog

import "gpuard/internal/core/gpu"

// Spent is how long a run had devices, in seconds of one device.
type Spent struct {
	Granted float64
	// How much of Granted was used, by the measured load.
	Used float64
	// Likewise; what is neither was not measured.
	Idle float64
	Peak gpu.Bytes
}

func (s *Spent) addEvent(e Event) {
	granted := e.Seconds * float64(len(e.Devices))
	s.Granted += granted
	s.Peak = max(s.Peak, e.Peak)
	if e.Load != nil {
		s.Used += granted * *e.Load
		s.Idle += granted * (1 - *e.Load)
	}
}
