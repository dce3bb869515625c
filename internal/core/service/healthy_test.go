package service

import (
	"fmt"
	"testing"
	"time"
)

// TestPulse: each case is one check a second, + for a success and - for a failure, after what is known at the beginning.
func TestPulse(t *testing.T) {
	for _, c := range []struct {
		before       *bool
		failures     int
		checks, want string
	}{
		{nil, 3, "", "unknown 0 0s"},
		{nil, 3, "+", "true 0 1s"},
		{nil, 3, "--", "unknown 2 0s"},
		{nil, 3, "---", "false 3 0s"},
		{nil, 1, "-", "false 1 0s"},
		{nil, 3, "+--", "true 2 1s"},
		{nil, 3, "+--+--", "true 2 4s"},
		{nil, 3, "++---", "false 3 2s"},
		{nil, 3, "+---+", "true 0 5s"},
		{new(false), 3, "-", "false 1 0s"},
		{new(false), 3, "+-", "true 1 1s"},
	} {
		p := Pulse{Healthy: c.before}
		for i, ok := range c.checks {
			p = p.AfterCheck(&Healthy{Failures: c.failures}, ok == '+', time.Duration(i+1)*time.Second)
		}
		healthy := "unknown"
		if p.Healthy != nil {
			healthy = fmt.Sprint(*p.Healthy)
		}
		if got := fmt.Sprint(healthy, " ", p.Failed, " ", p.Well); got != c.want {
			t.Errorf("%q with %d failures: %s, want %s", c.checks, c.failures, got, c.want)
		}
	}
}
