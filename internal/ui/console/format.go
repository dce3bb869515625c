package console

import (
	"fmt"
	"strings"
	"time"

	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
)

// CommandText is a command as a shell takes it, without control characters.
func CommandText(words []string) string {
	return prose.Clean(shellquote.JoinQuoted(shellquote.Sh, words...))
}

// ElapsedText formats a run time: "2.4 s", "1h3m".
func ElapsedText(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return strings.TrimSuffix(d.Round(time.Second).String(), "0s")
}

// PercentText is a share from 0 to 1 as per cent, "-" where it is not known.
func PercentText(v *float64) string {
	return prose.ValueOr(v, "-", func(n float64) string { return fmt.Sprintf("%.0f %%", n*100) })
}

// Widths of terminals, in columns.
const (
	UsualWidth = 80
	// Below this a device takes several short lines.
	TableWidth = 60
	// From here on power is shown.
	PowerWidth = 90
	// And from here on the PCI address.
	RoomyWidth = 110
)

// AgeText formats a duration in its largest unit.
func AgeText(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(int(d/time.Second), 0))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d/time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d/time.Hour))
	}
	return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
}

// AboutText formats a duration in its largest unit, rounded to it: 5 h 57 min is about 6 h.
func AboutText(d time.Duration) string {
	for _, unit := range []struct{ upTo, size time.Duration }{{time.Minute, time.Second}, {time.Hour, time.Minute}, {48 * time.Hour, time.Hour}} {
		if d < unit.upTo {
			return AgeText(d.Round(unit.size))
		}
	}
	return AgeText(d.Round(24 * time.Hour))
}

// ColumnGap stands between two columns.
const ColumnGap = "  "
