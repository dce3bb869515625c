package prose

import "time"

// NearTime is a time near now as people say it: "15:04", "22:32 yesterday", "00:32 tomorrow"; farther away with its day, as ClockTime.
func NearTime(t, now time.Time) string {
	t = t.In(now.Location())
	day := func(at time.Time) int {
		return int(time.Date(at.Year(), at.Month(), at.Day(), 12, 0, 0, 0, time.UTC).Unix() / (24 * 3600))
	}

	switch day(t) - day(now) {
	case -1:
		return t.Format("15:04") + " yesterday"
	case 1:
		return t.Format("15:04") + " tomorrow"
	}

	return ClockTime(t, now)
}
