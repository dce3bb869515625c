package run

import (
	"strconv"
)

// until is that moment as the holder is told it; "0" for a lease that may last.
func (l *Launch) until() string {
	if l.spec.Timeout <= 0 {
		return "0"
	}
	return strconv.FormatInt(l.claimed.Held.Lease.Due(l.spec.Timeout), 10)
}
