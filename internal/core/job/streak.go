package job

import "time"

// A command that fails immediately is not started a thousand times a second: the pause doubles with each start, up to
// longestPause.
const (
	longestPause = 30 * time.Second
	lasted       = time.Minute
)

// Lengthen counts one more end, of a start that ran well for that long. After one that lasted the streak begins anew.
func (r *Result) Lengthen(well time.Duration) {
	if r.Streak++; well >= lasted {
		r.Streak = 1
	}
}

// Pause is the time between the last end of the streak and the next start; first is the shortest pause.
func (r *Result) Pause(first time.Duration) time.Duration {
	pause := first
	for n := 1; n < r.Streak && pause < longestPause; n++ {
		pause *= 2
	}
	return min(pause, max(first, longestPause))
}

// Looping reports whether the command ended again soon after a restart. Its devices are then free until the next start.
func (r *Result) Looping() bool { return r.Streak > 1 }

// Again reports whether a service is started again after the last end of a streak.
func (c *Care) Again(failed bool, streak int) bool {
	switch {
	case c.Limit > 0 && streak > c.Limit:
		return false
	case c.Restart == Always:
		return true
	}
	return c.Restart == OnFailure && failed
}
