package policy

import (
	"testing"
	"time"
)

// TestWatch: only the machine's file says what is done about troubles, and only root does all of it.
func TestWatch(t *testing.T) {
	said := Watch{Webhook: "http://a", Outsiders: End, Grace: time.Hour, Except: []string{"alice"}}
	for _, c := range []struct {
		name           string
		policy         Policy
		webhook        string
		level, lowered Level
		grace          time.Duration
	}{
		{"nothing", nil, "", Off, Off, DefaultGrace},
		{"a user's", Policy{{Watch: said}}, "", Off, Off, DefaultGrace},
		{"the machine's", Policy{{Machine: true, Watch: said}, {Watch: Watch{Webhook: "http://b", Outsiders: Off}}}, "http://a", End, Report, time.Hour},
		{"a part", Policy{{Machine: true, Watch: Watch{Outsiders: Report}}}, "", Report, Report, DefaultGrace},
	} {
		w := c.policy.Watch()
		low := w.WithoutRootRights()
		if w.Webhook != c.webhook || w.Outsiders != c.level || w.Grace != c.grace || low.Webhook != "" || low.Outsiders != c.lowered || len(low.Except) != len(w.Except) {
			t.Errorf("%s: %+v, %+v", c.name, w, low)
		}
	}
	levels := []Level{Off, Report, Warn, End}
	for i, a := range levels {
		for j, b := range levels {
			if a.AtLeast(b) != (i >= j) {
				t.Errorf("%s and %s", a, b)
			}
		}
	}
	if Level("").AtLeast(Report) || !Level("").AtLeast(Off) {
		t.Error("no level is not off")
	}
}
