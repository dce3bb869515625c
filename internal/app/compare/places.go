package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/experiment"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// anyGPU asks for one GPU. What a command chooses itself may be what is compared.
var anyGPU = job.Spec{GPUs: 1, Anyway: true}

// experimentDevices are the devices of an experiment, chosen once so that all arms have the same, and where leases of
// them come from.
type experimentDevices struct {
	devices []gpu.Device // whole ones
	first   *claim.Allocator
	whole   []*claim.Allocator // of each GPU, alone
	// The allocators of a share of each GPU.
	shared map[experiment.Arm][]*claim.Allocator
	slices map[experiment.Arm][]*claim.Allocator // of MIG
}

// findPlaces finds the devices of all arms, or says which arm cannot be placed and what is missing.
func findPlaces(ctx context.Context, host *machine.Host, r *Request) (*experimentDevices, error) {
	p := &experimentDevices{shared: map[experiment.Arm][]*claim.Allocator{}, slices: map[experiment.Arm][]*claim.Allocator{}}
	for _, arm := range r.Arms {
		if arm.Kind() != experiment.MIG {
			continue
		}
		if err := p.findSlices(ctx, host, arm, len(r.Commands)); err != nil {
			return nil, err
		}
	}

	if !slices.ContainsFunc(r.Arms, func(a experiment.Arm) bool { return a.Kind() != experiment.MIG }) {
		return p, nil
	}

	if slices.Contains(r.Arms, experiment.MPS) {
		// Before a GPU is waited for.
		if _, err := claim.SettleQuota(ctx, host, shareSpec(experiment.MPS, gpu.MiB), false); err != nil {
			return nil, nameArm(experiment.MPS, err)
		}
	}

	if err := p.findGPUs(ctx, host, r); err != nil {
		return nil, err
	}

	for _, arm := range r.Arms {
		if arm != experiment.Shares && arm != experiment.MPS {
			continue
		}
		if err := p.findShares(ctx, host, arm, len(r.Commands)); err != nil {
			return nil, nameArm(arm, err)
		}
	}

	return p, nil
}

// shareSpec asks for a share as an arm means it.
func shareSpec(arm experiment.Arm, size gpu.Bytes) job.Spec {
	spec := anyGPU
	spec.Share = size
	if arm == experiment.MPS {
		spec.Quota, spec.Require = job.MPS, job.MPS
	}

	return spec
}

// nameArm says which arm cannot be placed.
func nameArm(arm experiment.Arm, err error) error {
	var refusal *job.Refusal
	if errors.As(err, &refusal) {
		named := *refusal
		named.Summary, named.Remedy = fmt.Sprintf("cannot compare %s: %s", arm, refusal.Summary), fmt.Sprintf("leave %s out of --arms, or name other GPUs (--device)", arm)
		return &named
	}
	return fmt.Errorf("cannot compare %s: %w", arm, err)
}

// findGPUs leases as many GPUs as the widest arm needs, which waits for them, and gives them back.
func (e *experimentDevices) findGPUs(ctx context.Context, host *machine.Host, r *Request) error {
	widest, need := experiment.Arm(""), 1
	for _, arm := range r.Arms {
		if arm.Kind() != experiment.MIG && widest == "" {
			widest = arm
		}
		if arm == experiment.Apart {
			widest, need = arm, len(r.Commands)
		}
	}

	spec := job.Spec{GPUs: need, Devices: r.Devices}
	if len(r.Devices) > 0 {
		spec.GPUs = 0
		if len(r.Devices) < need {
			return exit.Usagef("cannot compare %s on %d GPU: each of the %d commands gets one; name as many in --device, or leave it out", experiment.Apart, len(r.Devices), need)
		}
	}

	desk, err := e.openAllocator(ctx, host, spec)
	if err != nil {
		return nameArm(widest, err)
	}

	seat, err := desk.Wait(ctx, "compare", e.sayWaiting(host))
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return nameArm(widest, err)
	}

	found, err := host.Read(ctx, gpu.Identity)
	err = cmp.Or(err, seat.Release())
	if err != nil {
		return err
	}

	for _, given := range seat.Plan.Devices {
		d, slice, ok := found.FindDevice(given.UUID)
		if !ok || slice != nil {
			return exit.Usagef("cannot compare on %s: name whole GPUs in --device; slices have an arm of their own, mig", given.UUID)
		}

		e.devices = append(e.devices, *d)
		whole, err := e.openAllocator(ctx, host, job.Spec{Devices: []string{string(d.UUID)}})
		if err != nil {
			return err
		}

		e.whole = append(e.whole, whole)
	}

	return nil
}

// sayWaiting says once that a GPU is waited for.
func (e *experimentDevices) sayWaiting(host *machine.Host) func() {
	return func() { host.Say("waiting for the GPUs, which are in use; gpuard queue shows the line") }
}

// openAllocator is where leases come from; all are of one folder.
func (e *experimentDevices) openAllocator(ctx context.Context, host *machine.Host, spec job.Spec) (d *claim.Allocator, err error) {
	if e.first != nil {
		return e.first.For(ctx, host, spec)
	}
	e.first, err = claim.OpenAllocator(ctx, host, spec)
	return e.first, err
}

// findShares gives each command an equal part of the memory of each GPU.
func (e *experimentDevices) findShares(ctx context.Context, host *machine.Host, arm experiment.Arm, commands int) error {
	for i := range e.devices {
		on := job.Spec{Devices: []string{string(e.devices[i].UUID)}}
		size, err := claim.EqualShare(ctx, host, on, commands)
		if err != nil {
			return err
		}

		spec := shareSpec(arm, size)
		spec.GPUs, spec.Devices = 0, on.Devices
		desk, err := e.openAllocator(ctx, host, spec)
		if err != nil {
			return err
		}

		e.shared[arm] = append(e.shared[arm], desk)
	}
	return nil
}

// findSlices finds a GPU with as many slices as there are commands: of the profile of the arm, else of the one with the
// most memory.
func (e *experimentDevices) findSlices(ctx context.Context, host *machine.Host, arm experiment.Arm, commands int) error {
	found, err := host.Read(ctx, gpu.Identity)
	if err != nil {
		return err
	}

	var best []gpu.MIGDevice
	for i := range found.Devices {
		of := map[string][]gpu.MIGDevice{}
		for _, slice := range found.Devices[i].MIG {
			if arm.Profile() == "" || strings.EqualFold(slice.Profile, arm.Profile()) {
				of[slice.Profile] = append(of[slice.Profile], slice)
			}
		}
		for _, list := range of {
			if len(list) >= commands && (best == nil || isLargerSlice(list[0], best[0])) {
				best = list[:commands]
			}
		}
	}

	if best == nil {
		what := "MIG slices of one profile"
		if arm.Profile() != "" {
			what = arm.Profile() + " slices"
		}
		return &job.Refusal{Summary: fmt.Sprintf("cannot compare %s: no GPU has %d %s", arm, commands, what), Never: true, Reasons: []job.Reason{},
			Remedy: "have them made (nvidia-smi mig), or leave the arm out; gpuard status shows the slices"}
	}

	for _, slice := range best {
		desk, err := e.openAllocator(ctx, host, job.Spec{Devices: []string{string(slice.UUID)}})
		if err != nil {
			return nameArm(arm, err)
		}
		e.slices[arm] = append(e.slices[arm], desk)
	}

	return nil
}

// isLargerSlice orders slices by memory, then by the name of the profile, so that the answer is always the same.
func isLargerSlice(a, b gpu.MIGDevice) bool {
	size := func(m gpu.MIGDevice) gpu.Bytes {
		if m.MemoryTotal == nil {
			return 0
		}
		return *m.MemoryTotal
	}
	if size(a) != size(b) {
		return size(a) > size(b)
	}
	return a.Profile < b.Profile
}

// turnStep is what of a run happens at the same time.
type turnStep struct {
	commands []int
	// The allocator of each command; one for all is a lease that they have in common.
	desks []*claim.Allocator
}

// turnSteps are the parts of a turn, one after the other.
func (e *experimentDevices) turnSteps(t experiment.Turn) []turnStep {
	on := func(desks []*claim.Allocator, i int) *claim.Allocator { return desks[i%len(desks)] }
	all := turnStep{commands: t.Places}
	switch t.Arm.Kind() {
	case experiment.Alone:
		var list []turnStep
		for i, c := range t.Places {
			list = append(list, turnStep{[]int{c}, []*claim.Allocator{on(e.whole, i)}})
		}
		return list
	case experiment.Together:
		all.desks = []*claim.Allocator{on(e.whole, t.Places[0])}
	case experiment.Apart:
		all.desks = e.whole[:len(t.Places)]
	case experiment.MIG:
		all.desks = e.slices[t.Arm]
	default:
		for range t.Places {
			all.desks = append(all.desks, on(e.shared[t.Arm], t.Places[0]))
		}
	}

	return []turnStep{all}
}
