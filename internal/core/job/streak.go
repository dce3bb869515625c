package job

import "time"

// Streak counts the ends in a row of a command that is started again and again. An end after a start that lasted begins
// a new streak.
type Streak int

// A command that fails immediately is not started a thousand times a second: the pause doubles with each start, up to
// longestPause.
const (
	longestPause = 30 * time.Second
	lasted       = time.Minute
)

// After is the streak after one more end, of a start that ran well for that long.
func (s Streak) After(well time.Duration) Streak {
	if well >= lasted {
		return 1
	}
	return s + 1
}

// Pause is the time between the last end of the streak and the next start; first is the shortest pause.
func (s Streak) Pause(first time.Duration) time.Duration {
	pause := first
	for n := Streak(1); n < s && pause < longestPause; n++ {
		pause *= 2
	}
	return min(pause, max(first, longestPause))
}

// Looping reports whether the command ended again soon after a restart. Its devices are then free until the next start.
func (s Streak) Looping() bool { return s > 1 }

// Again reports whether a service is started again after the last end of a streak.
func (c *Care) Again(failed bool, s Streak) bool {
	switch {
	case c.Limit > 0 && int(s) > c.Limit:
		return false
	case c.Restart == Always:
		return true
	}
	return c.Restart == OnFailure && failed
}
