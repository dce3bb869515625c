package service

import (
	"cmp"
	"time"
)

// Healthy is the check of an instance that is repeated from when it is ready. The defaults are those of Compose's
// healthcheck (https://docs.docker.com/reference/dockerfile/#healthcheck).
type Healthy struct {
	Probe
	// The time between two checks; 0 means 30 s.
	Interval time.Duration `json:"interval,omitempty"`
	// The longest time of one check; 0 means 30 s.
	Timeout time.Duration `json:"timeout,omitempty"`
	// The failures in a row after which it is unhealthy; 0 means 3.
	Failures int `json:"failures,omitempty"`
}

func (h Healthy) withDefaults() Healthy {
	h.Interval, h.Timeout, h.Failures = cmp.Or(h.Interval, 30*time.Second), cmp.Or(h.Timeout, 30*time.Second), cmp.Or(h.Failures, 3)
	return h
}

// Pulse is what the checks of one start have shown.
type Pulse struct {
	Healthy *bool // nil: not known yet
	// Checks in a row that failed.
	Failed int
	// The time from the start of the instance to the last check that succeeded.
	Well time.Duration
}

// AfterCheck is the pulse after one more check, which ended that long after the start of the instance.
func (p Pulse) AfterCheck(h *Healthy, ok bool, since time.Duration) Pulse {
	if ok {
		return Pulse{Healthy: new(true), Well: since}
	}
	p.Failed++
	if p.Failed >= h.Failures {
		p.Healthy = new(false)
	}

	return p
}

// IsUsable reports whether an instance is ready, and not unhealthy since.
func (r *Record) IsUsable() bool { return r.Ready && (r.Healthy == nil || *r.Healthy) }
