package leftover

import (
	"slices"
	"time"

	"gpuard/internal/core/gpu"
)

// Sighting is when a process last worked, from two samples of its CPU time. Times are CLOCK_BOOTTIME.
type Sighting struct {
	PID int `json:"pid"`
	// Ticks since boot; with PID one process of this boot.
	Start uint64 `json:"start"`
	// CPU time used until Look.
	CPU   time.Duration `json:"cpu_ns"`
	First time.Duration `json:"first_ns"` // first sample
	// Last sample that counted.
	Look time.Duration `json:"look_ns"`
	// Last sample at which it worked; First when it never did.
	Busy time.Duration `json:"busy_ns"`
}

// A process that feeds a GPU uses most of a core; an idle notebook answers its heartbeat, which takes a few thousandths
// of one.
const minWorkingShare = 0.02

// minSampleGap is the least time between two samples that are compared: the kernel counts CPU time in ticks of 10 ms.
const minSampleGap = time.Second

// AddSample adds one sample at now to the sightings. cpu is the CPU time of each process so far; processes without one
// are dropped. A process that runs or waits for a processor works, however little of one it gets on a busy machine; a
// busy device (more than 5 %) with a single process shows that this process works.
func AddSample(before []Sighting, m gpu.Machine, cpu map[int]time.Duration, now time.Duration) []Sighting {
	var after []Sighting
	for _, p := range m.Processes {
		used, ok := cpu[p.PID]
		same := func(s Sighting) bool { return s.PID == p.PID && s.Start == p.Start }
		if !ok || slices.ContainsFunc(after, same) {
			continue
		}

		fresh := Sighting{PID: p.PID, Start: p.Start, CPU: used, First: now, Look: now, Busy: now}
		i := slices.IndexFunc(before, same)
		if i < 0 || before[i].Look > now {
			// New, or written by another clock.
			after = append(after, fresh)
			continue
		}

		after = append(after, before[i].withSample(used, now, p.State == "R" || isAloneAndBusy(m, p)))
	}
	return after
}

func (s Sighting) withSample(used, now time.Duration, atWork bool) Sighting {
	passed := now - s.Look
	if passed < minSampleGap {
		if atWork {
			s.Busy = now
		}
		return s
	}

	if atWork || float64(used-s.CPU) > minWorkingShare*float64(passed) {
		s.Busy = now
	}

	s.CPU, s.Look = used, now

	return s
}

// isAloneAndBusy reports whether a device is busy and the process is the only one on it.
func isAloneAndBusy(m gpu.Machine, p gpu.Process) bool {
	const idle = 0.05
	d, _, ok := m.FindDevice(p.GPU)
	if !ok || d.Utilization == nil || *d.Utilization <= idle {
		return false
	}

	return !slices.ContainsFunc(m.ProcessesOn(d.UUID), func(o gpu.Process) bool { return o.PID != p.PID })
}

// idleTime is how long a process has not worked, as far as sampled; nil after a single sample.
func idleTime(seen []Sighting, p gpu.Process) *time.Duration {
	i := slices.IndexFunc(seen, func(s Sighting) bool { return s.PID == p.PID && s.Start == p.Start })
	if i < 0 || seen[i].Look == seen[i].First {
		return nil
	}
	return new(seen[i].Look - seen[i].Busy)
}
