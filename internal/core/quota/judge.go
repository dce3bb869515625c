package quota

import (
	"slices"
	"time"

	"gpuard/internal/core/gpu"
)

// How one measurement after another becomes an end.
//
// What counts is the sum of all processes of the lease on one device, by the driver's list. The first sum above the share
// is said at once. If it is above the share again when the grace is over, the processes that were measured are asked to end
// (SIGTERM), and those that are still there, while the sum is still above, are ended (SIGKILL) after the grace once more.
// Being back within the share must last as long as the grace to be forgiven, or a program that takes and returns memory
// every second would never be ended. Nothing ever happens on a measurement that is not above the share.
//
// A part of the lease that keeps to a share of its own was promised it: its processes are ended only where nobody else is left.
//
// What cannot be measured is not judged. A process without a figure adds nothing, so the sum is what is certain; where
// that is not above the share, its owner is told once that nobody can tell.

// Limits of one lease.
type Limits struct {
	Share gpu.Bytes     // on each device
	Grace time.Duration // from the message to SIGTERM, and from there to SIGKILL
}

// Use is one process of a lease on a device.
type Use struct {
	PID     int
	Start   uint64 // ticks since boot
	Command string
	Memory  *gpu.Bytes // nil: the driver does not say
	Keeps   bool       // it is in a part of the lease that keeps to a share of its own
}

// Sample is one look at one device.
type Sample struct {
	At    time.Duration // since any fixed moment, on one clock that never goes back
	Uses  []Use         // the processes of the lease on it
	Blind string        // why they could not be listed; "" when they were
}

// Order is what one look asks for. More than one part may be set.
type Order struct {
	Warn      bool   // the sum is above the share for the first time
	Blind     string // said once: why nobody can tell whether the share is kept
	Terminate []Use  // to be asked to end
	Kill      []Use  // were asked, and are still there
	Sum       gpu.Bytes
}

// Case is what is remembered of one lease on one device between two looks. The zero value has seen nothing.
type Case struct {
	over   bool
	since  time.Duration // of the first sum above the share
	back   time.Duration // since when the sum is within it again; only while within
	within bool
	told   []told
	blind  bool // it was said that this cannot be measured
}

type told struct {
	pid   int
	start uint64
	at    time.Duration
}

// Unmeasured reports that the last look could not tell whether the share is kept.
func (c Case) Unmeasured() bool { return c.blind }

// See judges one look, and returns what to remember.
func (c Case) See(l Limits, s Sample) (Case, Order) {
	sum, missing := total(s.Uses)
	o := Order{Sum: sum}
	switch {
	case s.Blind != "":
		return c.blinded(o, s.Blind)
	case sum <= l.Share && missing:
		return c.blinded(o, "the driver does not say how much memory each process uses")
	case sum <= l.Share:
		return c.kept(l, s.At), o
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
	c.told = slices.Clone(c.told)
	for _, u := range guilty(s.Uses) {
		i := slices.IndexFunc(c.told, func(t told) bool { return t.pid == u.PID && t.start == u.Start })
		switch {
		case i < 0:
			c.told = append(c.told, told{u.PID, u.Start, s.At})
			o.Terminate = append(o.Terminate, u)
		case s.At-c.told[i].at >= l.Grace:
			o.Kill = append(o.Kill, u)
		}
	}
	return c, o
}

// guilty are those who are ended when it is too much.
func guilty(uses []Use) []Use {
	all := slices.DeleteFunc(slices.Clone(uses), func(u Use) bool { return u.Memory == nil || *u.Memory == 0 })
	some := slices.DeleteFunc(slices.Clone(all), func(u Use) bool { return u.Keeps })
	if len(some) == 0 {
		return all
	}
	return some
}

// kept: the sum is within the share, and forgotten after a while is that it was not.
func (c Case) kept(l Limits, at time.Duration) Case {
	c.blind = false
	if c.over && !c.within {
		c.within, c.back = true, at
	}
	if c.over && at-c.back >= l.Grace {
		return Case{}
	}
	return c
}

func (c Case) blinded(o Order, why string) (Case, Order) {
	if !c.blind {
		c.blind, o.Blind = true, why
	}
	return c, o
}

// total counts what is known; missing says that a process has no figure.
func total(uses []Use) (sum gpu.Bytes, missing bool) {
	for _, u := range uses {
		if u.Memory == nil {
			missing = true
			continue
		}
		sum += *u.Memory
	}
	return sum, missing
}
