package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
)

// When a job should leave its device.
//
// A slow hot card raises no error: the driver reports that it slows the card down, or only the clock shows it. Each
// sample puts each device of the job into one of three levels:
//
//	bad      it is slowed down (the driver reports so, or its clock is below 85 % of this card's recent
//	         clock at the same load and no power limit explains that) or has reached the temperature at
//	         which it slows down, and it is 3 C hotter than the median of its neighbours
//	fine     none of that by a margin: no reason, the clock is back at 92 %, and 5 C are left before it
//	         slows down; or it is within 1 C of its neighbours
//	neither  between the two, or idle
//
// Time between two bad samples counts up, time between two fine ones counts down, and nothing else counts. So a card at
// the edge does neither, a failed reading is left out, and a short event is soon forgotten. A full minute is trouble.
// Where a driver reports neither reasons nor clocks, the margin to the slowdown temperature is used, then that
// temperature, then a fixed one. A fixed temperature means little: on desktop cards 85 C is normal, in a data centre 80
// C is not (on AcmeTrace's A100 machines, 80 C is above the 99.9th percentile).
//
// A job in trouble moves only if that pays: the seconds that a move costs, divided by the share of speed that is lost,
// must be less than the remaining time of the job. It moves at most once in 30 minutes, and never back to a device that
// it left, so a run moves less often than there are devices. A broken device (state unhealthy) is left immediately, but
// after the same pause: a job that breaks devices must not go through the whole machine.

// Kind is why a job leaves a device.
type Kind string

// Kinds of trouble.
const (
	// Slowed down because of heat.
	Hot Kind = "hot"
	// Slowed down by its power supply, or only by its clock.
	Slow Kind = "slow"
	Sick Kind = "sick" // unhealthy
)

// Kinds lists all of them.
func Kinds() []Kind { return []Kind{Hot, Slow, Sick} }

// Limits. The times are in minutes of Drift.Minute.
const (
	// Of the card's own clock at this load: below it is slow.
	slowClock = 0.85
	// At and above it is not.
	goodClock = 0.92
	// C above the median of the neighbours.
	hotterDegrees = 3.0
	coolDegrees   = 1.0 // C above it
	// Utilization from which a clock means something.
	minLoad = 0.3
	// C, where nothing else is known.
	fixedHot  = 90
	fixedCool = 85 // C
	// C before slowdown; smallestMargin is the lower limit.
	goodMargin = 5
	// C before the slowdown temperature; closeToSlowdown is the lower limit.
	goodToSlowdown = 8
	// Of the limit: the limit explains a low clock.
	fullPower = 0.95

	troubleMinutes = 1.0
	// Longest time between two samples that is counted.
	gapMinutes  = 0.25
	restMinutes = 30.0 // after a move
	// Of a job that does not say how long it takes.
	remainingMinutes = 30.0
	// Of a move: end, start, read the checkpoint.
	costMinutes = 2.0
	// Before the same trouble is reported again; doubled each time.
	askMinutes     = 5.0
	longAskMinutes = 60.0
	// Speed of a device whose clock is not readable.
	unknownRate = slowClock
)

// Drift watches the devices of one job over time. Machine.Taken is its clock.
type Drift struct {
	// The kinds of trouble for which the job is moved.
	Kinds []Kind
	// Length of a minute in the limits; 0 means one. Tests shorten it.
	Minute time.Duration

	cards map[gpu.UUID]*deviceHistory
	// The last move; zero none.
	moved time.Time
	left  []gpu.UUID
}

// Move is advice to leave a device.
type Move struct {
	Kind Kind
	// The whole device that is in trouble.
	GPU gpu.UUID
	// The rest of a sentence that begins with the device's name.
	Reason string
	// Whole devices that would be no better, and those that the job has left.
	Avoid []gpu.UUID
}

// AddSample takes one sample of the devices on (whole ones, or slices) of the job, and says whether to leave them. m
// needs Load and Health. remaining is how long the job would run where it is; 0 is unknown. Advice that is not followed
// is repeated, at growing intervals.
func (d *Drift) AddSample(m gpu.Machine, on []gpu.UUID, remaining time.Duration) (Move, bool) {
	if d.cards == nil {
		d.cards = map[gpu.UUID]*deviceHistory{}
	}

	var found *Move
	seen := map[gpu.UUID]bool{}
	for _, id := range on {
		dev, _, ok := m.FindDevice(id)
		if !ok || seen[dev.UUID] {
			continue
		}

		seen[dev.UUID] = true
		c := d.cards[dev.UUID]
		if c == nil {
			c = &deviceHistory{}
			d.cards[dev.UUID] = c
		}

		move, ok := d.sampleCard(c, m, *dev, remaining)
		if ok && (found == nil || move.Kind == Sick && found.Kind != Sick) {
			found = &move
		}
	}

	if found == nil {
		return Move{}, false
	}

	return *found, true
}

// RecordMove records that the job left the devices. Their history is dropped, and they are avoided from now on.
func (d *Drift) RecordMove(at time.Time, from []gpu.UUID) {
	d.moved, d.cards = at, nil
	d.left = append(d.left, from...)
}

// sampleCard samples one device.
func (d *Drift) sampleCard(c *deviceHistory, m gpu.Machine, dev gpu.Device, remaining time.Duration) (Move, bool) {
	now := m.Taken
	s := d.takeSample(c, m, dev, now)
	c.countTrouble(s, now, d.scaledMinutes(gapMinutes), d.scaledMinutes(troubleMinutes))
	if s.level != levelBroken && (s.level != levelBad || c.trouble < d.scaledMinutes(troubleMinutes) || !d.isWorthMoving(c.rate, remaining)) {
		return Move{}, false
	}
	if !d.moved.IsZero() && now.Sub(d.moved) < d.scaledMinutes(restMinutes) {
		return Move{}, false
	}
	if !c.shouldReport(now, d.scaledMinutes(askMinutes), d.scaledMinutes(longAskMinutes)) {
		return Move{}, false
	}

	return Move{Kind: s.kind, GPU: dev.UUID, Reason: c.reasonText(s), Avoid: d.devicesToAvoid(m, dev, s.kind)}, true
}

// isWorthMoving compares the cost of a move with the loss of staying.
func (d *Drift) isWorthMoving(rate float64, remaining time.Duration) bool {
	if remaining <= 0 {
		remaining = d.scaledMinutes(remainingMinutes)
	}
	return rate < 1 && float64(d.scaledMinutes(costMinutes))/(1-rate) < float64(remaining)
}

// devicesToAvoid lists the devices on which the job would be no better off. The claim itself checks which are free and
// healthy.
func (d *Drift) devicesToAvoid(m gpu.Machine, from gpu.Device, why Kind) []gpu.UUID {
	var out []gpu.UUID
	for _, dev := range m.Devices {
		if dev.UUID == from.UUID {
			continue
		}
		warm := why != Sick && dev.Temperature != nil && from.Temperature != nil && float64(*dev.Temperature) > float64(*from.Temperature)-hotterDegrees
		if warm || len(slowdownReasons(dev)) > 0 || slices.Contains(d.left, dev.UUID) {
			out = append(out, dev.UUID)
		}
	}
	return out
}

func (c *deviceHistory) reasonText(s sample) string {
	text := strings.Join(s.why, ", ")
	if s.level == levelBroken {
		return "is unhealthy: " + text
	}

	if s.warmer != nil {
		text += fmt.Sprintf(", %.0f C hotter than its neighbours", *s.warmer)
	}

	if c.measured {
		text += fmt.Sprintf(", at %.0f %% of its speed", 100*c.rate)
	}

	return text
}

// scaledMinutes are n minutes of this policy's length.
func (d *Drift) scaledMinutes(n float64) time.Duration {
	return time.Duration(n * float64(cmp.Or(d.Minute, time.Minute)))
}
