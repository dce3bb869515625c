package flagset

import (
	"strings"
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "10m": 10 * time.Minute, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "1d2h": 26 * time.Hour, "300ms": 300 * time.Millisecond} {
		if got, err := ReadDuration("for", text); got != want || err != nil {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		"2":     `cannot read --for "2": the unit is missing; write --for=2s for seconds, or --for=2m for minutes`,
		"0":     "--for=90s",
		"0s":    "--for=90s",
		"-2s":   "--for=90s",
		"soon":  "--for=90s",
		"1d-2h": "--for=90s",
		"1d+2h": "--for=90s",
		"":      "--for=90s",
	} {
		if _, err := ReadDuration("for", text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}
