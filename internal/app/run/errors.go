package run

import (
	"context"
	"slices"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/host/launch"
)

// driverErrors returns the driver's errors on the devices of a lease, for the supervisor of its command; nil without a
// lease.
func (s *supervision) driverErrors(ctx context.Context, l *Launch) <-chan gpu.Event {
	if l.claimed == nil || !s.host.IsHardware() || s.task != nil && s.seek == nil {
		// Each reader of them is one more program that uses the driver.
		return nil
	}
	return s.host.WatchErrors(ctx, l.claimed.Machine, l.Plan.UUIDs(), l.claimed.Held.Lease.Since)
}

// sayError says an error, each code once for a device: a program that fails in a loop makes thousands.
func (s *supervision) sayError(l *Launch, e gpu.Event) {
	once := gpu.Event{Device: e.Device, XID: gpu.XID{Code: e.XID.Code}}
	if !slices.Contains(s.heard, once) {
		s.heard = append(s.heard, once)
		s.host.Say(machine.ErrorText(l.claimed.Machine, e))
	}
}

// awaitDriverError waits a moment for the error that a command just failed with: the driver may tell it later than the
// command.
func (s *supervision) awaitDriverError(l *Launch, child *launch.Child, heard <-chan gpu.Event) {
	code, signal, _, _ := child.Outcome()
	if heard == nil || code == 0 && signal == "" || s.care.Retries == 0 && len(s.care.Drift) == 0 {
		return
	}
	const moment = 300 * time.Millisecond

	for over := time.After(moment); ; {
		select {
		case e, open := <-heard:
			if !open {
				return
			}
			s.sayError(l, e)
			if health.IsMachineFault(e.XID.Code) {
				return
			}
		case <-over:
			return
		}
	}
}
