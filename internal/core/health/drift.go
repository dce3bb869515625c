package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
)

// When a job should leave its device.
//
// A slow hot card raises no error: the driver says that it slows the card down, or nothing but the clock tells. Each look at
// the machine makes of each device of the job one of three things:
//
//	bad      it is being slowed down (the driver's own reasons, or its clock is below 85 % of what this card ran at under
//	         the same load lately and no power limit explains it), and it is 3 C hotter than the median of its neighbours;
//	fine     none of that by a margin: no reason, and the clock is back at 92 %; or it is within 1 C of its neighbours;
//	neither  between the two, or idle.
//
// Time between two bad looks counts up, time between two fine ones counts down, and nothing else counts: a card at the edge
// does neither, a look that failed is left out, and a short event is forgotten as fast as it came. A full minute is trouble. Where a driver tells
// neither reasons nor clocks, the margin to the slowdown temperature stands in, then that temperature, then a fixed one: on
// desktop cards 85 C is a normal day, in a data centre 80 C is not, so a fixed temperature says little (the temperatures of
// AcmeTrace's A100 machines: 80 C is above their 99.9th percentile).
//
// A job that is in trouble moves only if that pays: the seconds that a move costs, divided by the share of speed that
// is lost, must be less than the time the job still has. It moves at most once in 30 minutes, and never back to a device that it left, so a run moves
// less often than there are devices and never to and fro. A broken device (state unhealthy) is left at once, but for that pause: a job that breaks
// one device after the other must not walk through the whole machine.

// Kind is why a job leaves a device.
type Kind string

// Kinds of trouble.
const (
	Hot  Kind = "hot"  // slowed down because of heat
	Slow Kind = "slow" // slowed down by its power supply, or by what its clock alone tells
	Sick Kind = "sick" // unhealthy
)

// Kinds lists all of them.
func Kinds() []Kind { return []Kind{Hot, Slow, Sick} }

// Limits of the policy. The times are in minutes of Drift.Minute.
const (
	slowClock      = 0.85 // of the card's own clock at this load: below it is slow
	goodClock      = 0.92 // at and above it is not
	hotter         = 3.0  // C above the median of the neighbours
	cool           = 1.0  // C above it
	loaded         = 0.3  // utilization from which a clock means something
	fixedHot       = 90   // C, where nothing else is known
	fixedCool      = 85   // C
	goodMargin     = 5    // C before slowdown; smallestMargin is the other end
	goodToSlowdown = 8    // C before the slowdown temperature; closeToSlowdown is the other end
	fullPower      = 0.95 // of the limit: the limit explains a low clock

	troubleMinutes   = 1.0
	gapMinutes       = 0.25 // longest time between two looks that is counted
	restMinutes      = 30.0 // after a move
	remainingMinutes = 30.0 // of a job that does not say how long it takes
	costMinutes      = 2.0  // of a move: end, start, read the checkpoint
	askMinutes       = 5.0  // before the same trouble is told again; doubled each time
	longAskMinutes   = 60.0
	unknownRate      = slowClock // speed of a device whose clock is not readable
)

// Drift watches the devices of one job over time. It keeps what it has seen; the caller brings the clock in Machine.Taken.
type Drift struct {
	Kinds  []Kind        // what the job is moved for
	Minute time.Duration // what the policy takes for one minute; 0 means one. Tests shorten it

	cards map[gpu.UUID]*card
	moved time.Time // the last move; zero none
	left  []gpu.UUID
}

// Move is the advice to leave a device.
type Move struct {
	Kind   Kind
	GPU    gpu.UUID   // the whole device that is in trouble
	Reason string     // the rest of a sentence that begins with the device's name
	Avoid  []gpu.UUID // whole devices that would be no better, and those that the job left before
}

// See takes one look at the devices on (whole ones, or slices) of the job, and says whether to leave them. The look needs
// Load and Health. remaining is how long the job would go on where it is; 0 is unknown. Advice that is not followed comes again,
// less and less often.
func (d *Drift) See(m gpu.Machine, on []gpu.UUID, remaining time.Duration) (Move, bool) {
	if d.cards == nil {
		d.cards = map[gpu.UUID]*card{}
	}
	var found *Move
	seen := map[gpu.UUID]bool{}
	for _, id := range on {
		dev, _, ok := m.Find(id)
		if !ok || seen[dev.UUID] {
			continue
		}
		seen[dev.UUID] = true
		c := d.cards[dev.UUID]
		if c == nil {
			c = &card{}
			d.cards[dev.UUID] = c
		}
		move, ok := d.card(c, m, *dev, remaining)
		if ok && (found == nil || move.Kind == Sick && found.Kind != Sick) {
			found = &move
		}
	}
	if found == nil {
		return Move{}, false
	}
	return *found, true
}

// Moved tells that the job left the devices. What was known about any of them is forgotten; they are avoided from now on.
func (d *Drift) Moved(at time.Time, from []gpu.UUID) {
	d.moved, d.cards = at, nil
	d.left = append(d.left, from...)
}

// card looks at one device.
func (d *Drift) card(c *card, m gpu.Machine, dev gpu.Device, remaining time.Duration) (Move, bool) {
	now := m.Taken
	s := d.judge(c, m, dev, now)
	c.count(s, now, d.minutes(gapMinutes), d.minutes(troubleMinutes))
	if s.level != broken && (s.level != bad || c.trouble < d.minutes(troubleMinutes) || !d.pays(c.rate, remaining)) {
		return Move{}, false
	}
	if !d.moved.IsZero() && now.Sub(d.moved) < d.minutes(restMinutes) {
		return Move{}, false
	}
	if !c.ask(now, d.minutes(askMinutes), d.minutes(longAskMinutes)) {
		return Move{}, false
	}
	return Move{Kind: s.kind, GPU: dev.UUID, Reason: c.sentence(s), Avoid: d.avoid(m, dev, s.kind)}, true
}

// pays compares what a move costs with what is lost by staying.
func (d *Drift) pays(rate float64, remaining time.Duration) bool {
	if remaining <= 0 {
		remaining = d.minutes(remainingMinutes)
	}
	return rate < 1 && float64(d.minutes(costMinutes))/(1-rate) < float64(remaining)
}

// avoid lists the devices on which the job would be no better off. The claim itself knows which are free and healthy.
func (d *Drift) avoid(m gpu.Machine, from gpu.Device, why Kind) []gpu.UUID {
	var out []gpu.UUID
	for _, dev := range m.Devices {
		if dev.UUID == from.UUID {
			continue
		}
		warm := why != Sick && dev.Temperature != nil && from.Temperature != nil && float64(*dev.Temperature) > float64(*from.Temperature)-hotter
		if warm || len(slowdowns(dev)) > 0 || slices.Contains(d.left, dev.UUID) {
			out = append(out, dev.UUID)
		}
	}
	return out
}

func (c *card) sentence(s sample) string {
	text := strings.Join(s.why, ", ")
	if s.level == broken {
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

// minutes are n minutes of this policy's length.
func (d *Drift) minutes(n float64) time.Duration {
	minute := d.Minute
	if minute == 0 {
		minute = time.Minute
	}
	return time.Duration(n * float64(minute))
}
