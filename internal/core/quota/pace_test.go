package quota

import (
	"testing"
	"time"
)

func TestNextLook(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name string
		pace Pace
		want time.Duration
	}{
		{"alone", Pace{Every: time.Second, Cost: 15 * ms, Watched: 1}, time.Second},
		{"a usual machine", Pace{Every: time.Second, Cost: 18 * ms, Watched: 16}, 2880 * ms},
		{"many", Pace{Every: time.Second, Cost: 20 * ms, Watched: 40}, 8 * time.Second},
		{"very many", Pace{Every: time.Second, Cost: 100 * ms, Watched: 165}, 15 * time.Second},
		{"very many, and above its share", Pace{Every: time.Second, Cost: 100 * ms, Watched: 165, Over: true}, time.Second},
		{"a slow driver", Pace{Every: time.Second, Cost: 2 * ms, Took: 4 * time.Second, Watched: 1}, 4 * time.Second},
		{"a busy machine", Pace{Every: time.Second, Cost: 15 * ms, Took: 700 * ms, Watched: 2}, time.Second},
		{"its own lease could not be read", Pace{Every: time.Second, Cost: 300 * ms}, 3 * time.Second},
		{"a short interval, as in tests", Pace{Every: 50 * ms, Cost: time.Second, Watched: 3}, 750 * ms},
	} {
		if got := c.pace.NextLook(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}

	// Whatever their number, they take no more than a tenth of a processor together, until the pause is at its longest.
	for watched := 1; watched < 75; watched++ {
		p := Pace{Every: time.Second, Cost: 20 * ms, Watched: watched}
		if all := float64(watched) * float64(p.Cost) / float64(p.NextLook()); all > 0.101 {
			t.Errorf("%d leases take %.2f processors", watched, all)
		}
	}
}
