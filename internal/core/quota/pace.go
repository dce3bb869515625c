package quota

import "time"

// All shares of a user are measured together, and that takes longer the more processes there are on the devices,
// because the driver and /proc list them all. So measuring may take a part of one processor, whatever their number.
const (
	processorDivisor = 20 // one twentieth
	// Times the usual interval.
	maxPauseFactor = 15
)

// Pace is what the time of the next measurement depends on.
type Pace struct {
	Every time.Duration // the usual interval
	// The cost of the last measurement: time of a processor.
	Cost time.Duration
	// The length of it by the clock: more where the driver is slow or the machine is busy.
	Took time.Duration
	// A lease has used more than its share: its grace is being counted.
	Over bool
}

// NextPause is the pause until the next measurement: the usual interval while one takes at most a twentieth of that, or
// while a lease is above its share.
func (p Pace) NextPause() time.Duration {
	if p.Over {
		return p.Every
	}
	return min(max(processorDivisor*p.Cost, p.Took, p.Every), maxPauseFactor*p.Every)
}
