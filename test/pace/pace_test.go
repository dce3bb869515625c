package pace

import (
	"testing"
	"time"
)

// TestScale: a limit is never less than was asked for, and grows with the time of the known work.
func TestScale(t *testing.T) {
	p := Start(t)
	t.Logf("the known work takes %+v", p.began)
	for name, scale := range map[string]func(time.Duration) time.Duration{"of the processors": p.ScaleCPU, "by the clock": p.ScaleClock} {
		before := p.began
		if most := scale(time.Second); most < time.Second {
			t.Errorf("a limit of 1 s %s has become %v", name, most)
		}
		p.began = workTime{3 * max(usualWorkTime, before.processor), 3 * max(usualWorkTime, before.clock)}
		if most := scale(time.Second); most < 3*time.Second {
			t.Errorf("on processors three times as slow a limit of 1 s %s is %v", name, most)
		}
		p.began = before
	}
}
