package prose

import (
	"fmt"
	"time"
)

// NoAnswerText is the text for a device or a driver that did not answer in time.
func NoAnswerText(limit time.Duration) string {
	if limit >= time.Second {
		limit = limit.Round(100 * time.Millisecond)
	}
	return fmt.Sprintf("no answer within %v", limit.Round(10*time.Millisecond))
}
