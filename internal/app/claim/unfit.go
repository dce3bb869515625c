package claim

import (
	"fmt"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
)

// UnfitReason says why no job may be started on the devices of a lease now.
func UnfitReason(m gpu.Machine, devices []gpu.UUID) string {
	for _, id := range devices {
		d, _, found := m.FindDevice(id)
		if !found {
			return fmt.Sprintf("%s is gone", id)
		}
		if d.Drained != "" {
			return fmt.Sprintf("GPU %d is drained: %s", d.Index, d.Drained)
		}
		if state, reasons := health.StateOf(*d, time.Now()); state == health.Unhealthy {
			return fmt.Sprintf("GPU %d is unhealthy: %s", d.Index, strings.Join(reasons, "; "))
		}
	}
	return ""
}
