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
		{"a few", Pace{Every: time.Second, Cost: 15 * ms}, time.Second},
		{"as many as are measured each second", Pace{Every: time.Second, Cost: 50 * ms}, time.Second},
		{"many", Pace{Every: time.Second, Cost: 100 * ms}, 2 * time.Second},
		{"very many", Pace{Every: time.Second, Cost: 900 * ms}, 15 * time.Second},
		{"very many, and one above its share", Pace{Every: time.Second, Cost: 900 * ms, Over: true}, time.Second},
		{"a slow driver", Pace{Every: time.Second, Cost: 2 * ms, Took: 4 * time.Second}, 4 * time.Second},
		{"a busy machine", Pace{Every: time.Second, Cost: 15 * ms, Took: 700 * ms}, time.Second},
		{"a short interval, as in tests", Pace{Every: 50 * ms, Cost: time.Second}, 750 * ms},
	} {
		if got := c.pace.NextPause(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}

	// It takes no more than a twentieth of a processor, until the pause is at its longest.
	for cost := time.Millisecond; cost < 750*ms; cost += ms {
		p := Pace{Every: time.Second, Cost: cost}
		if part := float64(p.Cost) / float64(p.NextPause()); part > 0.0501 {
			t.Errorf("measurements of %s take %.2f processors", cost, part)
		}
	}
}
