package timeline

import (
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/trend"
)

// LeasesWithin are the leases that lived between two moments, with the part of their hours that lies there. A lease whose end
// nobody saw has no hours, and is there when it began.
func LeasesWithin(list []trend.EndedLease, from, to time.Time) (out []trend.EndedLease) {
	for i := range list {
		e := list[i]
		if !e.Since.Before(to) || e.Unseen && e.Since.Before(from) || !e.Until.After(from) {
			continue
		}

		whole := e.Until.Sub(e.Since)
		part := earlierTime(e.Until, to).Sub(laterTime(e.Since, from))
		if whole > 0 && part < whole && !e.Unseen {
			e.Devices = slices.Clone(e.Devices)
			factor := float64(part) / float64(whole)
			for j := range e.Devices {
				d := &e.Devices[j]
				d.Granted, d.Busy, d.Idle = d.Granted*factor, d.Busy*factor, d.Idle*factor
			}
		}

		out = append(out, e)
	}
	return out
}

// earlierTime is the earlier of two moments.
func earlierTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// laterTime is the later of two moments.
func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// StateSince is when the state that a device has had in all of the last minutes began; zero where that is not known: it is not in
// this state, was so before the first minute, or nobody looked in between.
func StateSince(minutes []trend.Minute, id gpu.UUID, state string) (at time.Time) {
	for i := len(minutes) - 1; i >= 0; i-- {
		if minutes[i].Devices[id].State != state {
			return at
		}
		if !at.IsZero() && at.Sub(minutes[i].At) > 2*time.Minute {
			return time.Time{}
		}
		at = minutes[i].At
	}
	return time.Time{}
}

// MarkedSince is when a trouble of a kind began last on a device; zero where no minute has marked it.
func MarkedSince(minutes []trend.Minute, id gpu.UUID, what string) (at time.Time) {
	for i := range minutes {
		for _, m := range minutes[i].Devices[id].Marks {
			if m.What == what && m.At.After(at) {
				at = m.At
			}
		}
	}
	return at
}
