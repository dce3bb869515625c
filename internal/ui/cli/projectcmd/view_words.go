package projectcmd

import (
	"fmt"
	"strings"

	"gpuard/internal/app/services"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/service"
)

// alive reports whether any process of an instance runs, or is about to start.
func alive(row *services.Row) bool {
	switch row.State {
	case service.Starting, service.Running, service.Restarting, service.Ending:
		return true
	case service.Waiting, "": // its keeper has not written a state yet, or is exiting
		return row.Kept || row.Orphaned
	}
	return row.Orphaned
}

// unhealthy reports whether an instance that was ready is unhealthy.
func unhealthy(row *services.Row) bool {
	return row.State == service.Running && row.Seen.Ready && !row.Usable()
}

func howEnded(row *services.Row) string {
	switch {
	case !row.Wanted: // gpuard ended it
	case row.Signal != "":
		return "ended by " + prose.Clean(row.Signal)
	case row.Exit != nil:
		return fmt.Sprintf("ended with exit code %d", *row.Exit)
	}
	return "ended"
}

// inVain reports whether an instance waits for one that has failed.
func inVain(row *services.Row) bool {
	return row.State == service.Waiting && !row.Kept && strings.Contains(row.Why, ", which ")
}

// hasEnded reports whether an instance has ended. Some of its processes may still exist.
func hasEnded(row *services.Row) bool {
	return row.State == service.Done || row.State == service.Failed || row.State == service.Refused
}
