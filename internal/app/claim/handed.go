package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/isolation"
	"gpuard/internal/host/store"
)

// HandedLease is a lease that the process which made it hands to another one of the same user, together with the lock's
// descriptor. It travels as JSON.
type HandedLease struct {
	// "" for a job without a device.
	Lease string         `json:"lease"`
	Plan  job.Plan       `json:"plan"`
	Wall  isolation.Wall `json:"wall"`
	// The labels of its devices, for people.
	Labels []string `json:"labels"`
	// What the command gets because of it.
	Vars []visible.Var `json:"vars"`
	// Its devices as they were read for the decision (gpu.Machine.Encode).
	Machine json.RawMessage `json:"machine"`
}

// HandOver is what another process needs to have this lease. It gets Lock with its start; then call DropReference.
func (c *CommandLease) HandOver() (HandedLease, error) {
	h := HandedLease{Lease: c.Lease, Plan: c.Plan, Wall: c.Wall, Vars: c.vars}
	if c.held == nil {
		return h, nil
	}

	m := gpu.Machine{Taken: c.machine.Taken, Driver: c.machine.Driver, CUDA: c.machine.CUDA, Source: c.machine.Source}
	for _, given := range c.Plan.Devices {
		h.Labels = append(h.Labels, given.Label)
		if d, _, found := c.machine.FindDevice(given.UUID); found && !slices.ContainsFunc(m.Devices, func(o gpu.Device) bool { return o.UUID == d.UUID }) {
			one := *d

			// By the places of others.
			one.Links = nil
			m.Devices = append(m.Devices, one)
		}
	}

	text, err := m.Encode()
	h.Machine = text

	return h, err
}

// Host is the host that the lease was claimed on, with the environment from before it.
func (c *CommandLease) Host() *machine.Host { return c.desk.host }

// DropReference closes this process's reference to a lease that another process has by now, and which that one ends.
func (c *CommandLease) DropReference() {
	if c.held != nil {
		_ = c.held.Lock.Close()
		c.held, c.Lock = nil, nil
	}
}

// TakeOver is the decision that was handed to this process; nil for a job without a device.
func (h HandedLease) TakeOver(ctx context.Context, host *machine.Host, lock *os.File) (*Decision, error) {
	if h.Lease == "" {
		return nil, nil //nolint:nilnil // as it says
	}

	m, err := gpu.DecodeMachine(h.Machine)
	all := m
	if err == nil && !host.IsHardware() {
		// Whose folder is that of all its devices.
		all, err = host.Read(ctx, gpu.Identity)
	}

	if err != nil {
		return nil, fmt.Errorf("cannot take over lease %s: %w", h.Lease, err)
	}

	folder, err := host.Folder(all, false)
	switch {
	case err != nil:
		return nil, err
	case folder == nil:
		return nil, fmt.Errorf("cannot take over lease %s: the folder of the leases is gone", h.Lease)
	}

	lease, found := folder.Own(h.Lease)
	if !found {
		return nil, fmt.Errorf("cannot start: lease %s was released while the job started", h.Lease)
	}

	for i := range h.Plan.Devices {
		h.Plan.Devices[i].Label = h.Labels[i]
	}

	return &Decision{Plan: h.Plan, Wall: h.Wall, Machine: m, Held: &store.Held{Lease: lease, Lock: lock}, Folder: folder}, nil
}
