package job

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// ParseTime reads a time that is above zero, such as 90s, 10m, 24h, 7d or 1d2h. The error says what to write.
func ParseTime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, rest, ok := strings.Cut(text, "d"); ok && err != nil {
		if n, nerr := strconv.ParseUint(days, 10, 12); nerr == nil {
			d, err = 0, nil
			if rest != "" {
				// As in 1d2h.
				d, err = time.ParseDuration(rest)
			}
			if d < 0 || strings.HasPrefix(rest, "+") {
				err = strconv.ErrSyntax
			}
			d += time.Duration(n) * 24 * time.Hour
		}
	}

	if _, bare := strconv.ParseUint(text, 10, 32); bare == nil && strings.Trim(text, "0") != "" {
		return 0, errors.New("the unit is missing; write " + text + "s for seconds, or " + text + "m for minutes")
	}
	if err != nil || d <= 0 {
		return 0, errors.New("write a time, such as 90s or 10m")
	}

	return d, nil
}
