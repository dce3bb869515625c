package cli

import (
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/status"
)

// heard records each write.
type heard chan string

func (h heard) Write(b []byte) (int, error) {
	h <- string(b)
	return len(b), nil
}

// TestStandingOnce: without a terminal the place is written once.
func TestStandingOnce(t *testing.T) {
	out := make(heard, 8)
	p := &Program{Host: &machine.Host{}, Err: out}
	p.ShowStanding(false)
	p.Host.Stand(&status.Standing{Want: "9 GPUs"})
	p.Host.Stand(nil) // the wait is over immediately: nothing is written
	for range 3 {
		p.Host.Stand(&status.Standing{Want: "1 GPU"})
	}
	if said := <-out; said != "gpuard: waiting for 1 GPU\n" {
		t.Errorf("said %q", said)
	}
	p.Host.Stand(&status.Standing{Want: "2 GPUs"})
	p.Host.Stand(nil)
	if len(out) > 0 {
		t.Errorf("said %q too", <-out)
	}
	quiet := &Program{Host: &machine.Host{}, Err: out}
	if quiet.ShowStanding(true); quiet.Host.Stand != nil {
		t.Error("it is told in silence")
	}
}
