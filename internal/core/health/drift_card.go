package health

import (
	"fmt"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
)

// deviceHistory is the history of one device.
type deviceHistory struct {
	level sampleLevel
	// The time of the last sample that was bad or fine.
	at time.Time
	// When it was bad last.
	lastBad time.Time
	// Bad time less fine time, from 0 to the time that counts as trouble.
	trouble time.Duration
	// The part of its own speed while bad, smoothed; unknownRate unless measured.
	rate     float64
	measured bool
	// While it was not slowed down, oldest first.
	clocks []clockReading
	// How often the trouble was reported.
	asked int
	// When it was reported last.
	last time.Time
}

// clockReading is one reading of the clock under load.
type clockReading struct {
	at  time.Time
	mhz int
	// bandOf the utilization.
	load int
}

// sampleLevel is the result of one sample.
type sampleLevel int

const (
	levelUnseen sampleLevel = iota // no sample yet
	levelNeither
	levelFine
	levelBad
	levelBroken
)

// sample is one reading of one device.
type sample struct {
	level sampleLevel
	kind  Kind
	why   []string
	// How much warmer than the median of the neighbours, C.
	warmer *float64
	rate   *float64 // of its own speed
}

// Times of a card's history, in minutes of Drift.Minute.
const (
	recentMinutes = 30.0
	// Readings must span this before a clock is compared with them.
	settledMinutes = 1.0
	// Trouble whose last bad sample is older is forgotten, even without a fine one.
	staleMinutes = 5.0
	// Readings are kept no closer together.
	apartMinutes  = 0.25
	settledClocks = 4
)

// takeSample makes one sample, and remembers the clock of a device that is not slowed down.
func (d *Drift) takeSample(c *deviceHistory, m gpu.Machine, dev gpu.Device, now time.Time) sample {
	if state, reasons := StateOf(dev, now); state == Unhealthy && d.wantsKind(Sick) {
		return sample{level: levelBroken, kind: Sick, why: reasons}
	}

	switch {
	case dev.Problem != "":
		return sample{level: levelUnseen}
	case dev.Utilization != nil && *dev.Utilization < minLoad:
		return sample{level: levelNeither}
	}

	if !c.lastBad.IsZero() && now.Sub(c.lastBad) > d.scaledMinutes(staleMinutes) {
		c.trouble = 0
	}

	var s sample
	if dev.ClockEvents == nil && dev.ClockSM == nil {
		s = d.judgeByHeat(dev)
	} else {
		s = d.judgeBySpeed(c, dev, now)
	}

	return compareNeighbours(s, degreesWarmer(m, dev), dev)
}

func (d *Drift) wantsKind(k Kind) bool { return slices.Contains(d.Kinds, k) }

// judgeBySpeed judges by the driver's reasons and by the clock.
func (d *Drift) judgeBySpeed(c *deviceHistory, dev gpu.Device, now time.Time) sample {
	c.clocks = slices.DeleteFunc(c.clocks, func(k clockReading) bool { return now.Sub(k.at) > d.scaledMinutes(recentMinutes) })
	usual := c.usualClock(dev, now, d.scaledMinutes(settledMinutes))
	s := sample{level: levelFine, rate: relativeSpeed(dev, usual)}
	reasons := slowdownReasons(dev)
	for _, r := range reasons {
		if d.wantsKind(r.kind) && (s.level != levelBad || r.kind == Hot) {
			s.level, s.kind = levelBad, r.kind
		}
		s.why = append(s.why, r.text)
	}

	margin, why := marginOf(dev)
	if margin != nil && *margin <= 0 && d.wantsKind(Hot) {
		if s.level != levelBad {
			// Its clock does not show yet what it will lose.
			s.level, s.rate = levelBad, nil
		}
		s.kind, s.why = Hot, append(s.why, why)
	}

	if len(reasons) > 0 && s.level != levelBad {
		// The job is not moved for this, but it is not fine either.
		s.level = levelNeither
	}

	if usual > 0 && dev.ClockSM != nil && canExplainClock(dev) && !hasNormalLimit(dev) {
		switch is := float64(*dev.ClockSM) / float64(usual); {
		case is < slowClock && d.wantsKind(Slow):
			if s.level != levelBad {
				s.level, s.kind = levelBad, Slow
			}
			s.why = append(s.why, fmt.Sprintf("runs at %d MHz where it ran at %d", *dev.ClockSM, usual))
		case is < goodClock && s.level == levelFine:
			s.level = levelNeither
		}
	}

	if s.level == levelFine {
		c.keepClock(dev, now, d.scaledMinutes(apartMinutes))
		if margin != nil && *margin < goodMargin {
			s.level = levelNeither
		}
	}

	return s
}

// marginOf is how many degrees Celsius the device has left before it slows down by itself, with the words for it; nil
// where the driver names no limit.
func marginOf(dev gpu.Device) (margin *int, why string) {
	switch {
	case dev.TempMargin != nil && *dev.TempMargin < 0:
		return dev.TempMargin, fmt.Sprintf("is %d C over the temperature at which it slows down", -*dev.TempMargin)
	case dev.TempMargin != nil:
		return dev.TempMargin, fmt.Sprintf("has %d C left before it slows down", *dev.TempMargin)
	case dev.Temperature != nil && dev.TempSlowdown != nil && *dev.TempSlowdown > 0:
		return new(*dev.TempSlowdown - *dev.Temperature), fmt.Sprintf("is at %d C and slows down at %d C", *dev.Temperature, *dev.TempSlowdown)
	}
	return nil, ""
}

// judgeByHeat judges where neither reasons nor clocks can be read.
func (d *Drift) judgeByHeat(dev gpu.Device) sample {
	hot, mild, known := false, false, true
	margin, why := marginOf(dev)
	switch {
	case dev.TempMargin != nil:
		hot, mild = *margin <= smallestMargin, *margin >= goodMargin
	case margin != nil:
		hot, mild = *margin <= closeToSlowdown, *margin >= goodToSlowdown
	case dev.Temperature != nil:
		hot, mild = *dev.Temperature >= fixedHot, *dev.Temperature <= fixedCool
		why = fmt.Sprintf("is at %d C", *dev.Temperature)
	default:
		known = false
	}

	switch {
	case known && hot && d.wantsKind(Hot):
		return sample{level: levelBad, kind: Hot, why: []string{why}}
	case known && mild:
		return sample{level: levelFine}
	}

	return sample{level: levelNeither}
}

// compareNeighbours compares the device with its neighbours: if all are slow, a move does not help. Without neighbours,
// only the driver's own reasons count.
func compareNeighbours(s sample, than *float64, dev gpu.Device) sample {
	s.warmer = than
	switch {
	case than == nil:
		if s.level == levelBad && len(slowdownReasons(dev)) == 0 && dev.TempMargin == nil {
			s.level = levelNeither
		}
	case *than <= coolDegrees:
		if s.level != levelNeither || len(s.why) > 0 {
			s.level = levelFine
		}
	case *than < hotterDegrees && s.level == levelBad:
		s.level = levelNeither
	}
	return s
}

// degreesWarmer is how much hotter the device is than the median of the vendor's others here, nil when that is not
// known.
func degreesWarmer(m gpu.Machine, dev gpu.Device) *float64 {
	var others []int
	for _, o := range m.Devices {
		if o.UUID != dev.UUID && o.Vendor == dev.Vendor && o.Problem == "" && o.Temperature != nil {
			others = append(others, *o.Temperature)
		}
	}

	if dev.Temperature == nil || len(others) == 0 {
		return nil
	}

	slices.Sort(others)
	n := len(others)

	return new(float64(*dev.Temperature) - float64(others[(n-1)/2]+others[n/2])/2)
}

// slowdownReason is one of the driver's for a lower clock.
type slowdownReason struct {
	kind Kind
	text string
}

// slowdownReasons are the driver's reasons that cost speed and are not normal. Idle clocks, power limits and clocks set
// by a user are normal. Names as in nvmlClocksEventReasons of NVIDIA/go-nvml gen/nvml/nvml.h.
func slowdownReasons(d gpu.Device) (out []slowdownReason) {
	has := func(e string) bool { return slices.Contains(d.ClockEvents, e) }
	for _, e := range d.ClockEvents {
		switch e {
		case "hw_thermal_slowdown", "sw_thermal_slowdown":
			out = append(out, slowdownReason{Hot, "is slowed down because of heat (" + e + ")"})
		case "hw_slowdown":
			// The driver sets it together with the two specific ones.
			if !has("hw_thermal_slowdown") && !has("hw_power_brake_slowdown") {
				out = append(out, slowdownReason{Slow, "is slowed down by its hardware (hw_slowdown)"})
			}
		case "hw_power_brake_slowdown":
			out = append(out, slowdownReason{Slow, "is slowed down by its power supply (hw_power_brake_slowdown)"})
		}
	}
	return out
}

// canExplainClock reports whether the readings can show that the power limit lowers the clock. Without them a low clock
// says nothing.
func canExplainClock(d gpu.Device) bool {
	return d.ClockEvents != nil || d.Power != nil && d.PowerLimit != nil
}

// hasNormalLimit reports whether a low clock has a normal cause: the power limit, which depends on the work, or a clock
// set by a user.
func hasNormalLimit(d gpu.Device) bool {
	normal := []string{"gpu_idle", "applications_clocks", "sw_power_cap", "sync_boost", "display_clock_setting"}
	if slices.ContainsFunc(d.ClockEvents, func(e string) bool { return slices.Contains(normal, e) }) {
		return true
	}
	return d.Power != nil && d.PowerLimit != nil && *d.PowerLimit > 0 && *d.Power >= fullPower**d.PowerLimit
}

// relativeSpeed is the clock as a share of the usual one, or else of the highest; nil when unknown.
func relativeSpeed(d gpu.Device, usual int) *float64 {
	if usual == 0 && d.ClockSMMax != nil {
		usual = *d.ClockSMMax
	}
	if d.ClockSM == nil || usual <= 0 {
		return nil
	}
	return new(min(float64(*d.ClockSM)/float64(usual), 1))
}

// bandOf groups similar utilizations; unknown ones are a group of their own.
func bandOf(utilization *float64) int {
	switch {
	case utilization == nil:
		return -1
	case *utilization < 0.6:
		return 0
	case *utilization < 0.9:
		return 1
	}
	return 2
}

// usualClock is the median clock at the device's present load; 0 when too little is known.
func (c *deviceHistory) usualClock(d gpu.Device, now time.Time, settled time.Duration) int {
	load := bandOf(d.Utilization)
	var mhz []int
	var first time.Time
	for _, k := range c.clocks {
		if k.load != load {
			continue
		}
		if len(mhz) == 0 {
			first = k.at
		}
		mhz = append(mhz, k.mhz)
	}

	if len(mhz) < settledClocks || now.Sub(first) < settled {
		return 0
	}

	slices.Sort(mhz)

	return mhz[len(mhz)/2]
}

// keepClock records a good clock. A limited one is no reference.
func (c *deviceHistory) keepClock(d gpu.Device, now time.Time, apart time.Duration) {
	if d.ClockSM == nil || hasNormalLimit(d) {
		return
	}
	load := bandOf(d.Utilization)
	if !slices.ContainsFunc(c.clocks, func(k clockReading) bool { return k.load == load && now.Sub(k.at) < apart }) {
		c.clocks = append(c.clocks, clockReading{now, *d.ClockSM, load})
	}
}

// countTrouble adds the time since the last sample to the trouble, or subtracts it.
func (c *deviceHistory) countTrouble(s sample, now time.Time, gap, full time.Duration) {
	switch s.level {
	case levelUnseen:
		return
	case levelNeither:
		c.level = levelNeither
		return
	}

	since := min(max(now.Sub(c.at), 0), gap)
	if c.at.IsZero() || c.level != s.level {
		since = 0
	}

	c.level, c.at = s.level, now
	if s.level == levelFine {
		c.trouble = max(c.trouble-since, 0)
		if c.trouble == 0 {
			c.measured = false
		}
		return
	}

	c.trouble, c.lastBad = min(c.trouble+since, full), now

	switch {
	case s.rate == nil && !c.measured:
		c.rate = unknownRate
	case s.rate != nil && !c.measured:
		c.rate, c.measured = *s.rate, true
	case s.rate != nil:
		c.rate += (*s.rate - c.rate) / 4
	}
}

// shouldReport reports whether to report the trouble now: again after a while that doubles up to long, and from the
// start after no report for twice that.
func (c *deviceHistory) shouldReport(now time.Time, again, long time.Duration) bool {
	if now.Sub(c.last) > 2*long {
		c.asked = 0
	}
	if c.asked > 0 && now.Sub(c.last) < min(again<<min(c.asked-1, 8), long) {
		return false
	}
	c.asked, c.last = c.asked+1, now

	return true
}
