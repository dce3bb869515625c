package leftover

import (
	"slices"
	"time"

	"gpuard/internal/core/gpu"
)

// Sighting is what two looks at a process tell about when it last worked. Times are CLOCK_BOOTTIME.
type Sighting struct {
	PID   int           `json:"pid"`
	Start uint64        `json:"start"`    // ticks since boot; with PID one process of this boot
	CPU   time.Duration `json:"cpu_ns"`   // used until Look
	First time.Duration `json:"first_ns"` // first look
	Look  time.Duration `json:"look_ns"`  // last look that counted
	Busy  time.Duration `json:"busy_ns"`  // last look at which it was at work; First when it never was
}

// A process that feeds a GPU keeps a core busy or nearly so; a sleeping notebook answers its heartbeat, which takes a few
// thousandths of one.
const working = 0.02

// shortest is between two looks that are compared: a tick of the kernel's count is 10 ms.
const shortest = time.Second

// Look adds one look at now to the sightings. cpu is what each process has used so far; whoever is not in it is forgotten.
// A device that is at work (more than 5 %) with a single process on it shows that this one works.
func Look(before []Sighting, m gpu.Machine, cpu map[int]time.Duration, now time.Duration) []Sighting {
	var after []Sighting
	for _, p := range m.Processes {
		used, ok := cpu[p.PID]
		same := func(s Sighting) bool { return s.PID == p.PID && s.Start == p.Start }
		if !ok || slices.ContainsFunc(after, same) {
			continue
		}
		fresh := Sighting{PID: p.PID, Start: p.Start, CPU: used, First: now, Look: now, Busy: now}
		i := slices.IndexFunc(before, same)
		if i < 0 || before[i].Look > now { // new, or written by a clock that is not this one
			after = append(after, fresh)
			continue
		}
		after = append(after, before[i].again(used, now, alone(m, p)))
	}
	return after
}

func (s Sighting) again(used, now time.Duration, atWork bool) Sighting {
	passed := now - s.Look
	if passed < shortest {
		if atWork {
			s.Busy = now
		}
		return s
	}
	if atWork || float64(used-s.CPU) > working*float64(passed) {
		s.Busy = now
	}
	s.CPU, s.Look = used, now
	return s
}

// alone reports whether a device is at work and the process is the only one on it.
func alone(m gpu.Machine, p gpu.Process) bool {
	const idle = 0.05
	d, _, ok := m.Find(p.GPU)
	if !ok || d.Utilization == nil || *d.Utilization <= idle {
		return false
	}
	return !slices.ContainsFunc(m.On(d.UUID), func(o gpu.Process) bool { return o.PID != p.PID })
}

// idle is how long a process has not worked, as far as it was looked at; nil after a single look.
func idle(seen []Sighting, p gpu.Process) *time.Duration {
	i := slices.IndexFunc(seen, func(s Sighting) bool { return s.PID == p.PID && s.Start == p.Start })
	if i < 0 || seen[i].Look == seen[i].First {
		return nil
	}
	return new(seen[i].Look - seen[i].Busy)
}
