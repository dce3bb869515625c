package leases

import (
	"context"
	"errors"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
)

// CompleteSpec gives spec the numbers that depend on the machine: with all, how many GPUs it could be given if nothing
// else used them, 1 where there is none, so that the refusal says why; with a percentage, the size of its share.
func CompleteSpec(ctx context.Context, host *machine.Host, spec *job.Spec, all bool, percent int) (err error) {
	if all {
		spec.GPUs = 1
		var servers []gpu.UUID
		_, servers, err = findServers(ctx, host, *spec)
		if err != nil {
			return err
		}

		spec.GPUs = max(1, len(servers))
	}
	if percent > 0 {
		spec.Share, err = sizeOfPart(ctx, host, *spec, percent)
	}

	return err
}

// sizeOfPart is so many per cent of what a GPU can promise as shares, in whole MiB, so that two halves fit one GPU. All
// GPUs that spec could be given must agree on it; 1 MiB where there is none, so that the refusal says why.
func sizeOfPart(ctx context.Context, host *machine.Host, spec job.Spec, percent int) (gpu.Bytes, error) {
	// Any that a rule permits.
	spec.Share = gpu.MiB
	m, servers, err := findServers(ctx, host, spec)
	if err != nil {
		return 0, err
	}

	part := gpu.Bytes(0)
	for _, id := range servers {
		d, slice, _ := m.FindDevice(id)
		if slice != nil {
			d = &gpu.Device{Index: d.Index, MemoryTotal: slice.MemoryTotal}
		}

		whole := pick.ShareableMemory(d)
		if whole == nil {
			return 0, exit.Usagef("cannot give %d %% of GPU %d: how much memory it has is unknown; write a size, such as --share 8G", percent, d.Index)
		}

		size := *whole * gpu.Bytes(percent) / 100 / gpu.MiB * gpu.MiB
		if part != 0 && size != part {
			return 0, exit.Usagef("cannot give %d %% of a GPU: those that could be given have different sizes; name one (--device, --model), or write a size, such as --share 8G", percent)
		}

		part = size
	}

	return max(part, gpu.MiB), nil
}

// findServers lists the GPUs and slices that could serve spec if nothing else used them; none where no GPU can be read.
func findServers(ctx context.Context, host *machine.Host, spec job.Spec) (gpu.Machine, []gpu.UUID, error) {
	m, err := host.ReadAll(ctx, claim.WhatToRead(spec))
	var none *gpu.Unavailable
	if errors.As(err, &none) {
		return m, nil, nil
	}
	if err != nil {
		return m, nil, err
	}

	held, _, err := registry.LiveLeases(host, m)
	if err != nil {
		return m, nil, err
	}

	in, err := claim.CallerContext(host, m, held)
	if spec.Any {
		in.Hidden, in.Ancestors, in.Parent = nil, nil, nil
	}

	return m, pick.CapableDevices(spec, m, in), err
}
