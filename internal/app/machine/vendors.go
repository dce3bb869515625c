package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/host/proc"
)

// JoinVendors reads the devices of two vendors at the same time and joins them: NVIDIA's first, then AMD's, each
// numbered from
// 0. That one vendor has nothing here (no driver library, no device) is not worth a word while the other has devices
// that work; any other failure becomes a problem of the machine. When both fail, a failure counts more than nothing
// being there. noGPU reports that there is no card of either vendor: to install or to load a driver would not help.
func JoinVendors(nvidia, amd Reader, noGPU func() bool) Reader {
	nvidia = withMainMemory(nvidia, proc.New("/proc"))
	return func(ctx context.Context, query gpu.Query) (gpu.Machine, error) {
		second := make(chan vendorAnswer, 1)
		go func() {
			m, err := amd(ctx, query)
			second <- vendorAnswer{m, err}
		}()

		m, err := nvidia(ctx, query)
		m, err = joinAnswers(vendorAnswer{m, err}, <-second)
		var why *gpu.Unavailable
		if errors.As(err, &why) && (why.Cause == gpu.LibraryMissing || why.Cause == gpu.DriverNotLoaded) && noGPU() {
			err = &gpu.Unavailable{
				Cause:  gpu.NoDevice,
				Text:   "cannot find a GPU: this machine has none of NVIDIA or AMD",
				Remedy: "no such device is visible on the PCI bus",
			}
		}

		return m, err
	}
}

// vendorAnswer is what one vendor's reader answered.
type vendorAnswer struct {
	m   gpu.Machine
	err error
}

func joinAnswers(nvidia, amd vendorAnswer) (gpu.Machine, error) {
	switch {
	case nvidia.err == nil && amd.err == nil:
		return joinMachines(nvidia.m, amd.m), nil
	case nvidia.err == nil:
		return joinFailed(nvidia.m, "AMD", amd.err)
	case amd.err == nil:
		return joinFailed(amd.m, "NVIDIA", nvidia.err)
	case isAbsent(nvidia.err) && !isAbsent(amd.err):
		return gpu.Machine{}, amd.err
	}
	return gpu.Machine{}, nvidia.err
}

// isAbsent reports that a vendor simply is not here.
func isAbsent(err error) bool {
	var why *gpu.Unavailable
	return errors.As(err, &why) && slices.Contains([]gpu.Cause{gpu.LibraryMissing, gpu.NoDevice}, why.Cause)
}

// joinFailed returns the machine of one vendor with the failure of the other vendor, missing, as a problem. An error
// that is not about the vendor, such as a cancelled call, ends the whole reading.
func joinFailed(m gpu.Machine, missing string, err error) (gpu.Machine, error) {
	var why *gpu.Unavailable
	if !errors.As(err, &why) {
		return gpu.Machine{}, err
	}

	works := slices.ContainsFunc(m.Devices, func(d gpu.Device) bool { return d.Problem == "" })
	if !works || !isAbsent(err) {
		m.Problems = append(slices.Clip(m.Problems), fmt.Sprintf("%s GPUs: %s; %s", missing, why.Text, why.Remedy))
	}

	return m, nil
}

// joinMachines puts b's devices after a's. Links are by position, and how devices of two vendors reach each other is
// unknown.
func joinMachines(a, b gpu.Machine) gpu.Machine {
	m := a
	m.Devices = nil

	for _, d := range a.Devices {
		if d.Links != nil {
			d.Links = append(slices.Clone(d.Links), make([]gpu.Link, len(b.Devices))...)
		}
		m.Devices = append(m.Devices, d)
	}

	for _, d := range b.Devices {
		if d.Links != nil {
			d.Links = append(make([]gpu.Link, len(a.Devices)), d.Links...)
		}
		m.Devices = append(m.Devices, d)
	}

	m.Processes = slices.Concat(a.Processes, b.Processes)
	m.Problems = slices.Concat(a.Problems, b.Problems)
	m.Source = a.Source + "+" + b.Source
	m.Stuck = a.Stuck || b.Stuck
	if b.Driver != "" {
		m.Driver += ", amdgpu " + b.Driver
	}

	if b.Taken.Before(a.Taken) {
		m.Taken = b.Taken
	}

	return m
}
