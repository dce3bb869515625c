package prose

import (
	"testing"
	"time"
)

// TestNearTime: the day is said by a word where it is the one before or after, at any hour and over the end of a year.
func TestNearTime(t *testing.T) {
	zone := time.FixedZone("", 8*3600)
	for _, test := range []struct{ at, now, want string }{
		{"2026-03-04 00:00", "2026-03-04 23:59", "00:00"},
		{"2026-03-03 22:32", "2026-03-04 09:12", "22:32 yesterday"},
		{"2026-03-05 00:32", "2026-03-04 09:12", "00:32 tomorrow"},
		{"2026-03-06 00:32", "2026-03-04 23:59", "6 Mar 00:32"},
		{"2025-12-31 23:59", "2026-01-01 00:01", "23:59 yesterday"},
		{"2025-12-30 23:59", "2026-01-01 00:01", "30 Dec 23:59"},
	} {
		at, _ := time.ParseInLocation("2006-01-02 15:04", test.at, zone)
		now, _ := time.ParseInLocation("2006-01-02 15:04", test.now, zone)
		if got := NearTime(at.UTC(), now); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}
