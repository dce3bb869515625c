package job

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// TestStreak: the pauses of a command that runs well for these times, the first of which is 500 ms.
func TestStreak(t *testing.T) {
	const s, minute = time.Second, time.Minute
	for _, c := range []struct {
		well []time.Duration
		want string
	}{
		{[]time.Duration{0, 0, 0, 59 * s}, "500ms 1s+ 2s+ 4s+ "},
		{[]time.Duration{0, 0, minute, 0}, "500ms 1s+ 500ms 1s+ "},
		{[]time.Duration{minute, minute}, "500ms 500ms "},
		{[]time.Duration{0, 0, 0, 0, 0, 0, 0, 0}, "500ms 1s+ 2s+ 4s+ 8s+ 16s+ 30s+ 30s+ "},
	} {
		var r Result
		got := ""
		for _, well := range c.well {
			r.Lengthen(well)
			got += r.Pause(500 * time.Millisecond).String()
			if r.Looping() {
				got += "+"
			}
			got += " "
		}
		if got != c.want {
			t.Errorf("%v: %s, want %s", c.well, got, c.want)
		}
	}
	if got := fmt.Sprint((&Result{Streak: math.MaxInt}).Pause(s), (&Result{Streak: 3}).Pause(minute)); got != "30s 1m0s" {
		t.Error(got)
	}
}

func TestAgain(t *testing.T) {
	for _, c := range []struct {
		restart Restart
		limit   int
		failed  bool
		streak  int
		want    bool
	}{
		{NoRestart, 0, true, 1, false},
		{OnFailure, 0, true, 1000, true},
		{OnFailure, 0, false, 1, false},
		{OnFailure, 2, true, 2, true},
		{OnFailure, 2, true, 3, false},
		{Always, 0, false, 1000, true},
		{Always, 2, false, 2, true},
		{Always, 2, false, 3, false},
	} {
		if got := (&Care{Restart: c.restart, Limit: c.limit}).Again(c.failed, c.streak); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
