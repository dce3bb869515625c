package quota

import (
	"slices"
	"time"

	"gpuard/internal/core/gpu"
)

// How measurements lead to the end of a process.
//
// What counts is the memory of all processes of the lease on one device, by the driver's list. The first sum above the
// share gives a warning. If the sum is above the share when the grace is over, the measured processes get SIGTERM.
// Those that are still there after the grace once more get SIGKILL, while the sum is still above the share. The sum
// must be within the share for as long as the grace before the warning is forgotten, or a program that takes and frees
// memory every second would never be ended. Nothing happens on a measurement that is not above the share.
//
// A sub-lease with a share of its own was promised that memory: its processes are ended only when no other processes of
// the lease remain.
//
// A process without a figure adds nothing, so the sum is a lower bound. If it is not above the share, the owner is told
// once that the share cannot be checked.

// Limits of one lease.
type Limits struct {
	Share gpu.Bytes // on each device
	// The time from the warning to SIGTERM, and from there to SIGKILL.
	Grace time.Duration
}

// Use is one process of a lease on a device.
type Use struct {
	PID     int
	Start   uint64 // ticks since boot
	Command string
	// nil: the driver does not report it.
	Memory *gpu.Bytes
	// It is in a sub-lease with a share of its own.
	Keeps bool
}

// Sample is one measurement of one device.
type Sample struct {
	// The time since any fixed moment, on one clock that never goes back.
	At time.Duration
	// The processes of the lease on it.
	Uses []Use
	// Why they could not be listed; "" when they were.
	Blind string
}

// Order is the result of one measurement. More than one field may be set.
type Order struct {
	// The sum is above the share for the first time.
	Warn bool
	// Set once: why it cannot be checked whether the share is kept.
	Blind     string
	Terminate []Use // to be sent SIGTERM
	// The processes that get SIGKILL: still there after SIGTERM and the grace.
	Kill []Use
	Sum  gpu.Bytes
}

// Case is the history of one lease on one device between two measurements. The zero value has none.
type Case struct {
	over bool
	// The time of the first sum above the share.
	since time.Duration
	// The time since when the sum is within the share again; only while within.
	back   time.Duration
	within bool
	// Processes that were sent SIGTERM.
	asked []askedProcess
	blind bool // Blind was reported
}

type askedProcess struct {
	pid   int
	start uint64
	at    time.Duration
}

// IsUnmeasured reports that the last measurement could not show whether the share is kept.
func (c Case) IsUnmeasured() bool { return c.blind }

// Over reports that the sum was above the share, and not within it for long enough since.
func (c Case) Over() bool { return c.over }

// JudgeSample judges one measurement, and returns the new history.
func (c Case) JudgeSample(l Limits, s Sample) (Case, Order) {
	sum, missing := sumMemory(s.Uses)
	o := Order{Sum: sum}
	switch {
	case s.Blind != "":
		return c.recordBlind(o, s.Blind)
	case sum <= l.Share && missing:
		return c.recordBlind(o, "the driver does not say how much memory each process uses")
	case sum <= l.Share:
		return c.recordWithinShare(l, s.At), o
	}

	c.within, c.blind = false, false
	if !c.over {
		c.over, c.since = true, s.At
		o.Warn = true
		return c, o
	}

	if s.At-c.since < l.Grace {
		return c, o
	}

	c.asked = slices.Clone(c.asked)

	for _, u := range processesToEnd(s.Uses) {
		i := slices.IndexFunc(c.asked, func(t askedProcess) bool { return t.pid == u.PID && t.start == u.Start })
		switch {
		case i < 0:
			c.asked = append(c.asked, askedProcess{u.PID, u.Start, s.At})
			o.Terminate = append(o.Terminate, u)
		case s.At-c.asked[i].at >= l.Grace:
			o.Kill = append(o.Kill, u)
		}
	}

	return c, o
}

// processesToEnd lists those with memory. Processes in sub-leases with a share of their own are among them only if
// there are no others.
func processesToEnd(uses []Use) []Use {
	all := slices.DeleteFunc(slices.Clone(uses), func(u Use) bool { return u.Memory == nil || *u.Memory == 0 })
	some := slices.DeleteFunc(slices.Clone(all), func(u Use) bool { return u.Keeps })
	if len(some) == 0 {
		return all
	}

	return some
}

// recordWithinShare handles a sum within the share, which after the grace clears the history.
func (c Case) recordWithinShare(l Limits, at time.Duration) Case {
	c.blind = false
	if c.over && !c.within {
		c.within, c.back = true, at
	}
	if c.over && at-c.back >= l.Grace {
		return Case{}
	}

	return c
}

func (c Case) recordBlind(o Order, why string) (Case, Order) {
	if !c.blind {
		c.blind, o.Blind = true, why
	}
	return c, o
}

// sumMemory adds the known figures; missing reports a process without one.
func sumMemory(uses []Use) (sum gpu.Bytes, missing bool) {
	for _, u := range uses {
		if u.Memory == nil {
			missing = true
			continue
		}
		sum += *u.Memory
	}
	return sum, missing
}
