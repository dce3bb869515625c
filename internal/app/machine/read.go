package machine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// A device whose driver call hangs must not delay a job that another device can serve. Nearly all devices answer within
// milliseconds. So a decision is first tried with those that answered within a moment; only if the others could change
// it do they get the time that a sleeping device needs to start.
const fastDeadline = 500 * time.Millisecond

// ReadFast reads the machine and does not wait for devices that are late; partial says that some are.
func (h *Host) ReadFast(ctx context.Context, query gpu.Query) (m gpu.Machine, partial bool, err error) {
	if !h.IsHardware() {
		m, err = h.ReadFor(ctx, query)
		return m, false, err
	}

	short, cancel := context.WithTimeout(ctx, fastDeadline)
	defer cancel()
	began := time.Now()
	m, err = h.ReadFor(short, query)
	partial = err == nil && slices.ContainsFunc(m.Devices, isSilent) ||
		err != nil && short.Err() != nil && time.Since(began) < h.driverLimit() // a driver that hangs altogether took all its time

	return m, partial, err
}

// driverLimit is how long a driver may take.
func (h *Host) driverLimit() time.Duration { return cmp.Or(h.Times.Driver, 5*time.Second) }

// ReadAll reads the machine until every device has answered, or for as long as a driver is given.
func (h *Host) ReadAll(ctx context.Context, what gpu.What) (gpu.Machine, error) {
	began, last := time.Now(), gpu.Machine{}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, fastDeadline) {
		m, err := h.readLate(ctx, what, last)
		last = m
		spent := time.Since(began)
		late := spent > h.driverLimit()-fastDeadline
		if err == nil && spent > MaxReadingAge/2 && (late || !slices.ContainsFunc(m.Devices, isSilent)) {
			// The others were read long ago.
			m, err = h.Read(ctx, what)
		}

		if err != nil || late || !slices.ContainsFunc(m.Devices, isSilent) {
			h.ReportSilent(m, spent+fastDeadline)
			return m, err
		}

		select {
		case <-ctx.Done():
			return m, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// readLate reads the machine, or where it was read just now only the devices that did not answer.
func (h *Host) readLate(ctx context.Context, what gpu.What, last gpu.Machine) (gpu.Machine, error) {
	query := gpu.Query{What: what, Known: true}
	for i := range last.Devices {
		if d := &last.Devices[i]; d.Vendor == gpu.NVIDIA && isSilent(*d) {
			query.Only = append(query.Only, d.Index)
		}
	}

	m, err := h.ReadFor(ctx, query)
	if err != nil || query.Only == nil {
		return m, err
	}

	whole, same := m.FillFromEarlier(last, query)
	if !same || what&gpu.Links != 0 && !slices.ContainsFunc(whole.Devices, isSilent) {
		// Links are read of all together.
		return h.Read(ctx, what)
	}

	return whole, nil
}

// ReportSilent says which devices kept the caller waiting, or were not waited for.
func (h *Host) ReportSilent(m gpu.Machine, spent time.Duration) {
	for _, d := range m.Devices {
		switch {
		case !isSilent(d):
		case spent < time.Second:
			h.Say(fmt.Sprintf("%s was not waited for: %s; gpuard status shows it", DeviceName(m, d), d.Problem))
		default:
			h.Say(fmt.Sprintf("waited %.1f s for %s: %s; gpuard status shows it", spent.Seconds(), DeviceName(m, d), d.Problem))
		}
	}
}

// isSilent is a device that did not answer in time.
func isSilent(d gpu.Device) bool { return strings.HasPrefix(d.Problem, "no answer") }

// SilentMatters reports whether a device that was late might have made another answer of the refusal.
func SilentMatters(m gpu.Machine, r *job.Refusal) bool {
	late := slices.DeleteFunc(slices.Clone(m.Devices), func(d gpu.Device) bool { return !isSilent(d) })
	return len(late) > 0 && (r.Never || slices.ContainsFunc(r.Reasons, func(r job.Reason) bool {
		return r.Verdict == job.Busy && slices.ContainsFunc(late, func(d gpu.Device) bool { return d.UUID == r.UUID && d.Index == r.Index })
	}))
}
