package runs

import (
	"cmp"
	"slices"
	"time"

	"gpuard/internal/core/queue"
)

// past is how long runs that ended with 0 took.
type past struct {
	kinds  map[uint32][2]time.Duration // the last two of a kind; 0 where there was one
	recent []time.Duration             // the last of all, up to many
	median time.Duration
	news   bool // a kind ended for the first time
}

// many is how many runs the median is of.
const many = 99

func (p *past) add(kind uint32, took time.Duration) {
	if p.kinds == nil {
		return
	}
	took = max(took, time.Millisecond)
	if p.recent = append(p.recent, took); len(p.recent) > many {
		p.recent = slices.Delete(p.recent, 0, 1)
	}
	p.median = queue.Median(p.recent)
	last, known := p.kinds[kind]
	p.kinds[kind], p.news = [2]time.Duration{took, last[0]}, p.news || !known
}

// Estimate is how long a run may take: what its owner said, else the mean of the last two runs of the same command,
// else the median of the last runs of the queue; 0 where none of them is known.
func (s *State) Estimate(run int) time.Duration {
	return cmp.Or(s.Runs[run].Time, s.EstimateOf(s.Class(run).Kind))
}

// EstimateOf is the estimate of a class.
func (s *State) EstimateOf(kind uint64) time.Duration {
	if kind >= said {
		return time.Duration(kind - said)
	}
	if last := s.past.kinds[uint32(kind)]; last[0] > 0 { //nolint:gosec // it is a Kind
		if last[1] == 0 {
			return last[0]
		}
		return (last[0] + last[1]) / 2
	}
	return s.past.median
}

// said is added to an estimate of the owner, which makes a class of its own.
const said = 1 << 32

// Class is what the run's estimate depends on. It changes when News is true.
func (s *State) Class(run int) queue.Class {
	r := &s.Runs[run]
	c := queue.Class{Nice: r.Nice, Count: r.GPUs}
	if _, known := s.past.kinds[r.Kind]; known {
		c.Kind = uint64(r.Kind)
	}
	if r.Time > 0 {
		c.Kind = said + uint64(r.Time) //nolint:gosec // positive
	}
	return c
}

// News reports whether since the last call a command has ended for the first time.
func (s *State) News() bool {
	news := s.past.news
	s.past.news = false
	return news
}
