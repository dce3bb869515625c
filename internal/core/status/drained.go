package status

import (
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// Drained is a device that was just taken out of use.
type Drained struct {
	Device  job.Given
	Before  string // who had drained it already, since when and why; "" when nobody had
	Leases  []job.Lease
	Waiting []job.Ticket // who waits, and could have been given it
}

// Undrained is a device that was just put into use again.
type Undrained struct {
	Device  job.Given
	Before  string    // who had drained it; "" when nobody had
	Settled []gpu.XID // errors that no longer count
}
