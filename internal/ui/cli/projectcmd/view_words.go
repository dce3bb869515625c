package projectcmd

import (
	"fmt"
	"strings"

	"gpuard/internal/app/services"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/service"
)

// isAlive reports whether any process of an instance runs, or is about to start.
func isAlive(row *services.Row) bool {
	switch row.State {
	case service.Starting, service.Running, service.Restarting, service.Ending:
		return true
	case service.Waiting, "":
		// Its keeper has not written a state yet, or is exiting.
		return row.Kept || row.Orphaned
	}
	return row.Orphaned
}

// isUnhealthy reports whether an instance that was ready is unhealthy.
func isUnhealthy(row *services.Row) bool {
	return row.State == service.Running && row.Seen.Ready && !row.IsUsable()
}

func endText(row *services.Row) string {
	switch {
	case !row.Wanted:
		// gpuard ended it.
	case row.Signal != "":
		return "ended by " + prose.Clean(row.Signal)
	case row.Exit != nil:
		return fmt.Sprintf("ended with exit code %d", *row.Exit)
	}
	return "ended"
}

// waitsInVain reports whether an instance waits for one that has failed.
func waitsInVain(row *services.Row) bool {
	return row.State == service.Waiting && !row.Kept && strings.Contains(row.Why, ", which ")
}

// hasEnded reports whether an instance has ended. Some of its processes may still exist.
func hasEnded(row *services.Row) bool {
	return row.State == service.Done || row.State == service.Failed || row.State == service.Refused
}
