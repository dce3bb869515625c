package quota

import "time"

// Each lease is measured by a process of its own, and a measurement takes longer the more of them there are, because
// the driver and /proc list the processes of all. At a fixed interval 165 leases would keep a machine busy with nothing
// else. So all measurements together may take a part of one processor, whatever their number.
const (
	partOfProcessor = 10 // one tenth
	longestPause    = 15 // times the usual interval
)

// Pace is what the time of the next measurement depends on.
type Pace struct {
	Every   time.Duration // the usual interval
	Cost    time.Duration // of the last measurement: time of a processor
	Took    time.Duration // by the clock: more where the driver is slow or the machine is busy
	Watched int           // leases that are measured on this machine, this one included
	Over    bool          // the lease has used more than its share: its grace is being counted
}

// NextLook is the pause until the next measurement: the usual interval while that is little, or while the lease is above
// its share. With up to 16 leases of which each costs 18 ms to measure, it is at most 3 s.
func (p Pace) NextLook() time.Duration {
	if p.Over {
		return p.Every
	}
	fair := time.Duration(partOfProcessor*max(1, p.Watched)) * p.Cost
	return min(max(fair, p.Took, p.Every), longestPause*p.Every)
}
