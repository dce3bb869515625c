package status

import (
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// Drained is a device that was just taken out of use.
type Drained struct {
	Device  job.Given
	Before  string // who had drained it already, since when and why; "" when it was not drained
	Leases  []job.Lease
	Waiting []job.Ticket // tickets that could have been given it
}

// Undrained is a device that was just put into use again.
type Undrained struct {
	Device  job.Given
	Before  string    // who had drained it; "" when it was not drained
	Settled []gpu.XID // errors that no longer count
}
