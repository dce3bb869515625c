package pace

import (
	"testing"
	"time"
)

// TestScale: a limit is never less than was asked for, and grows with the time of the known work.
func TestScale(t *testing.T) {
	p := Start(t)
	t.Logf("the known work takes %v", p.began)
	if most := p.Scale(time.Second); most < time.Second {
		t.Errorf("a limit of 1 s has become %v", most)
	}
	p.began = 3 * max(usual, p.began)
	if most := p.Scale(time.Second); most < 3*time.Second {
		t.Errorf("on processors three times as slow a limit of 1 s is %v", most)
	}
}
