package trend

import (
	"maps"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
)

// Counts add up what the reports of one process show, since its first.
type Counts struct {
	// How long the clocks of a device were lowered, by reason.
	Throttled map[Reason]time.Duration
	// Errors of the driver.
	XIDs map[XID]Seen
	// Processes that appeared on a device that somebody else has leased.
	Foreign int
	// Leases that went above their share.
	Over int
	// The waits of requests that got their devices.
	Waits Waits
	// How many there were.
	Reports int
}

// Reason is why the clocks of one device are lowered.
type Reason struct {
	Device gpu.UUID
	// The reason as gpu.Device.ClockEvents has it.
	Why string
}

// XID is one kind of error of one device.
type XID struct {
	Device gpu.UUID
	Code   int
}

// Seen is how often an error was reported, and when last.
type Seen struct {
	Times int
	Last  time.Time // zero: not known
}

// Waits is a histogram of how long requests waited.
type Waits struct {
	// The waits below each of WaitBounds; each contains those before it.
	Below []int
	Sum   time.Duration
	N     int
}

// WaitBounds are the upper bounds of the histogram.
func WaitBounds() []time.Duration {
	return []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}
}

// WithReport are the counts when now follows before; the first report has no before. c is not changed.
func (c Counts) WithReport(before, now *status.Report) Counts {
	out := Counts{maps.Clone(c.Throttled), maps.Clone(c.XIDs), c.Foreign, c.Over, c.Waits, c.Reports + 1}
	out.Waits.Below = slices.Clone(c.Waits.Below)
	if out.Throttled == nil {
		out.Throttled, out.XIDs, out.Waits.Below = map[Reason]time.Duration{}, map[XID]Seen{}, make([]int, len(WaitBounds()))
	}

	out.countXIDs(before, now)
	if before == nil {
		return out
	}

	passed := now.Taken.Sub(before.Taken)
	if passed < 0 || passed > time.Minute {
		// Nobody looked meanwhile.
		passed = 0
	}

	for i := range now.Devices {
		d := &now.Devices[i]
		for _, why := range d.Throttled {
			out.Throttled[Reason{d.UUID, why}] += passed
		}
	}

	out.countViolations(before, now)
	out.countWaits(before, now)

	return out
}

// countXIDs counts the XIDs that before has not.
func (c *Counts) countXIDs(before, now *status.Report) {
	known := map[gpu.UUID]map[int]int{}
	if before != nil {
		for i := range before.Devices {
			known[before.Devices[i].UUID] = xidCounts(&before.Devices[i])
		}
	}

	for i := range now.Devices {
		d := &now.Devices[i]
		for code, n := range xidCounts(d) {
			had := known[d.UUID][code]
			seen := c.XIDs[XID{d.UUID, code}]
			seen.Times += max(0, n-had)

			for _, x := range d.XIDs {
				if x.Code == code && x.At != nil && x.At.After(seen.Last) {
					seen.Last = *x.At
				}
			}

			c.XIDs[XID{d.UUID, code}] = seen
		}
	}
}

func xidCounts(d *status.Device) map[int]int {
	n := map[int]int{}
	for _, x := range d.XIDs {
		n[x.Code]++
	}
	return n
}

// countViolations counts what before has not: processes on devices of others, and leases above their share.
func (c *Counts) countViolations(before, now *status.Report) {
	foreign, over := findOffenders(before)
	alien, above := findOffenders(now)
	for p := range alien {
		if !foreign[p] {
			c.Foreign++
		}
	}
	for l := range above {
		if !over[l] {
			c.Over++
		}
	}
}

type deviceProcess struct {
	device gpu.UUID
	pid    int
}

func findOffenders(s *status.Report) (foreign map[deviceProcess]bool, over map[string]bool) {
	foreign, over = map[deviceProcess]bool{}, map[string]bool{}
	s.EachDevice(func(d *status.Device) {
		for _, p := range d.Processes {
			owns := func(l status.Lease) bool { return l.User == p.User }
			if p.Foreign && len(d.Leases) > 0 && !slices.ContainsFunc(d.Leases, owns) {
				foreign[deviceProcess{d.UUID, p.PID}] = true
			}
		}
		for _, l := range d.Leases {
			if l.Share > 0 && l.Memory != nil && *l.Memory > l.Share {
				over[l.ID+" "+string(d.UUID)] = true
			}
		}
	})
	return foreign, over
}

// countWaits takes a request that is not in the line any more as served if a new lease of its user has its command.
func (c *Counts) countWaits(before, now *status.Report) {
	still := map[string]bool{}
	for _, w := range now.Waiting {
		still[w.ID] = true
	}

	type whose struct{ user, command string }
	old, fresh := map[string]bool{}, map[whose]map[string]bool{}
	before.EachDevice(func(d *status.Device) {
		for _, l := range d.Leases {
			old[l.ID] = true
		}
	})

	now.EachDevice(func(d *status.Device) {
		for _, l := range d.Leases {
			if by := (whose{l.User, l.Command}); !old[l.ID] {
				if fresh[by] == nil {
					fresh[by] = map[string]bool{}
				}
				fresh[by][l.ID] = true
			}
		}
	})

	for _, w := range before.Waiting {
		mine := fresh[whose{w.User, w.Command}]
		if still[w.ID] || w.Since == nil || len(mine) == 0 {
			continue
		}

		for id := range mine {
			// Each lease serves one request.
			delete(mine, id)
			break
		}
		c.Waits.addWait(now.Taken.Sub(*w.Since))
	}
}

func (w *Waits) addWait(d time.Duration) {
	d = max(0, d)
	for i, bound := range WaitBounds() {
		if d <= bound {
			w.Below[i]++
		}
	}
	w.Sum += d
	w.N++
}
