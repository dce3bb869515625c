package batchlog

import (
	"slices"
	"time"

	"gpuard/internal/core/queue"
)

// Past is how long runs took that ended well: what the time of others is estimated from. The zero value is empty.
type Past struct {
	// The last two of a kind; 0 where there was one.
	kinds map[uint32][2]time.Duration
	// The last on a number of devices, and on anyNumber, up to many.
	recent map[int][]time.Duration
	means  map[int]time.Duration // of recent
	// A kind ended for the first time.
	news bool
}

// maxSamples is how many runs a mean is of.
const maxSamples = 99

// anyNumber is in place of a number of devices.
const anyNumber = 0

// Add adds a run of a kind, 0 for one that is not known, on a number of devices.
func (p *Past) Add(kind uint32, devices int, took time.Duration) {
	if p.kinds == nil {
		p.kinds, p.recent, p.means = map[uint32][2]time.Duration{}, map[int][]time.Duration{}, map[int]time.Duration{}
	}
	took = max(took, time.Millisecond)
	for _, n := range []int{max(1, devices), anyNumber} {
		list := append(p.recent[n], took)
		if len(list) > maxSamples {
			list = slices.Delete(list, 0, 1)
		}
		p.recent[n], p.means[n] = list, meanDuration(list)
	}
	if kind != 0 {
		last, known := p.kinds[kind]
		p.kinds[kind], p.news = [2]time.Duration{took, last[0]}, p.news || !known
	}
}

// Parts of the number of a class of equal estimates: that of the owner, of a kind, or by the number of devices.
const (
	saidClass    = 1 << 32
	unknownClass = 1 << 63
)

// Class is of the runs with the same estimate. time is what the owner said; 0 nothing. It changes when a kind ends for
// the first time.
func (p *Past) Class(kind uint32, devices int, time time.Duration) uint64 {
	if time > 0 {
		return saidClass + uint64(time)
	}
	if _, known := p.kinds[kind]; known {
		return uint64(kind)
	}
	return unknownClass + uint64(max(1, devices)) //nolint:gosec // positive
}

// IsGuessed reports whether a class is of commands that have not ended yet, so that it may become another one.
func IsGuessed(class uint64) bool { return class >= unknownClass }

// EstimateOf is the estimate of a class: what the owner said, else the mean of the last two runs of the same kind, else
// the mean of the last runs on as many devices, else the mean of the last ones on any number; 0 where none has ended.
// It is the mean because a few long runs take most of the time, and what orders runs is the device time to be expected.
func (p *Past) EstimateOf(class uint64) time.Duration {
	switch {
	case class >= unknownClass:
		if usual, known := p.means[int(class-unknownClass)]; known { //nolint:gosec // a number of devices
			return usual
		}
		return p.means[anyNumber]
	case class >= saidClass:
		return time.Duration(class - saidClass)
	}
	last := p.kinds[uint32(class)] //nolint:gosec // it is a Kind
	if last[1] == 0 {
		return last[0]
	}

	return (last[0] + last[1]) / 2
}

func meanDuration(list []time.Duration) time.Duration {
	sum := 0.0
	for _, d := range list {
		sum += float64(d)
	}
	return time.Duration(sum / float64(len(list)))
}

// Estimate is how long a run may take, as Past.EstimateOf says.
func (s *State) Estimate(run int) time.Duration { return s.past.EstimateOf(s.Class(run).Kind) }

// EstimateOf is the estimate of a class.
func (s *State) EstimateOf(kind uint64) time.Duration { return s.past.EstimateOf(kind) }

// Class is what the run's estimate depends on. It changes when News is true.
func (s *State) Class(run int) queue.Class {
	r := &s.Runs[run]
	return queue.Class{Nice: r.Nice, Count: r.GPUs, Kind: s.past.Class(r.Kind, r.GPUs, r.Time)}
}

// TakeNews reports whether since the last call a command has ended for the first time.
func (s *State) TakeNews() bool {
	news := s.past.news
	s.past.news = false
	return news
}
