package status

import (
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// Drained is a device that was just taken out of use.
type Drained struct {
	Device job.Given
	// Who had drained it already, since when and why; "" when it was not drained.
	Before string
	Leases []job.Lease
	// Tickets that could have been given it.
	Waiting []job.Ticket
}

// Undrained is a device that was just put into use again.
type Undrained struct {
	Device job.Given
	// Who had drained it; "" when it was not drained.
	Before string
	// Errors that no longer count.
	Settled []gpu.XID
}
