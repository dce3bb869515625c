package status

import (
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// EndsAt is when a lease is over: certainly, or by the estimate that was asked with it. It is not known where nothing
// was said, or where the estimate is over.
func (l *Lease) EndsAt(now time.Time) (at time.Time, estimated, known bool) {
	switch {
	case l.Until != nil:
		return *l.Until, false, true
	case l.Since != nil && l.Asked > now.Sub(*l.Since):
		return l.Since.Add(l.Asked), true, true
	}
	return time.Time{}, false, false
}

// EndOfLease is EndsAt of a lease as it is kept.
func EndOfLease(l job.Lease, now time.Time) (at time.Time, estimated, known bool) {
	shown := Lease{Since: &l.Since, Until: enforcedEnd(l), Asked: l.Time}
	return shown.EndsAt(now)
}

// Over reports whether a share uses more than it was promised.
func (l *Lease) Over() bool { return l.Share > 0 && l.Memory != nil && *l.Memory > l.Share }

// ShareText is a share and what is used of it: "share 8 GiB", "2 of 8 GiB", "10 of 8 GiB, more than its share"; "" of a
// whole lease.
func (l *Lease) ShareText() string {
	switch {
	case l.Share == 0:
		return ""
	case l.Memory == nil:
		return "share " + l.Share.String()
	case l.Over():
		return portionText(*l.Memory, l.Share) + ", more than its share"
	}
	return portionText(*l.Memory, l.Share)
}

// portionText is "2 of 8 GiB", "512 MiB of 8 GiB".
func portionText(part, whole gpu.Bytes) string {
	number, unit, _ := strings.Cut(part.String(), " ")
	if part == 0 || strings.HasSuffix(whole.String(), " "+unit) {
		return number + " of " + whole.String()
	}
	return part.String() + " of " + whole.String()
}
