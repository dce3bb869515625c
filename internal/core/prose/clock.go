package prose

import "time"

// ClockTime is the time of day, with the day if it is not that of now: "15:04", "2 Jan 15:04".
func ClockTime(t, now time.Time) string {
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04")
	}
	return t.Format("2 Jan 15:04")
}

// EndTime says when something ends, certainly or by an estimate.
func EndTime(at, now time.Time, estimated bool) string {
	if estimated {
		return "until about " + ClockTime(at, now)
	}
	return "until " + ClockTime(at, now)
}
