package explain

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/libcuda"
)

// Probe compares the devices that the CUDA driver shows a process with this environment with gpuard's own answer. It
// has everything that is needed to repeat it.
type Probe struct {
	libcuda.Answer
	// The same devices in the same order.
	Agrees bool `json:"agrees"`
	// The differences in words, one per ordinal; never nil.
	Differences []string `json:"differences"`
	// NAME=value of everything that can have a say; never nil.
	Variables []string `json:"variables"`
	// Version, "" when unknown.
	Driver string `json:"driver"`
	// All NVIDIA devices of the machine; never nil.
	GPUs []probedGPU `json:"gpus"`
}

// probedGPU is one device of the machine as the probe reports it.
type probedGPU struct {
	Index   int      `json:"index"`
	UUID    gpu.UUID `json:"uuid"`
	PCI     string   `json:"pci"`
	Name    string   `json:"name"`
	Compute string   `json:"compute,omitempty"` // "8.0"
	// "MIG-… 1/0": UUID, GPU instance and compute instance; never nil.
	MIG []string `json:"mig"`
}

// ServeProbe asks the CUDA driver in this very process and prints the answer for the process that waits for it.
func ServeProbe() error { return libcuda.ServeProbe(os.Stdout) }

// RunProbe is Explain and the truth: a child with exactly that environment lists what the CUDA driver shows it.
// That the two differ is part of the answer, not an error.
func RunProbe(ctx context.Context, host *machine.Host, given []string) (visible.View, gpu.Machine, Probe, error) {
	if !host.IsHardware() {
		return visible.View{}, gpu.Machine{}, Probe{}, exit.Usagef("cannot ask the driver about %s: --probe is about the GPUs of this computer; leave --probe or --machine out", host.Machine)
	}

	target, given, err := subjectOf(given)
	if err == nil && target != "" {
		// Its environment may name libraries to load: not with our rights.
		err = exit.Usagef("cannot ask the driver about %s: --probe is about this shell's environment, or about VAR=VALUE; leave --probe out", target)
	}

	if err != nil {
		return visible.View{}, gpu.Machine{}, Probe{}, err
	}

	m, err := host.Read(ctx, gpu.Identity|gpu.Load)
	if err != nil {
		return visible.View{}, m, Probe{}, err
	}

	env := replaceGPUVars(host, given)
	limit := host.Times.Probe
	if limit == 0 {
		limit = 30 * time.Second
	}

	answer, err := libcuda.AskInChild(ctx, env, limit)
	if err != nil {
		return visible.View{}, m, Probe{}, err
	}

	view := visible.CUDA(env, m)

	return view, m, compareProbe(env, view, m, answer), nil
}

// compareProbe compares the driver's answer with gpuard's.
func compareProbe(env visible.Env, view visible.View, m gpu.Machine, answer libcuda.Answer) Probe {
	p := Probe{Answer: answer, Driver: m.Driver, Variables: driverVariables(env), GPUs: []probedGPU{}, Differences: differences(view, m, answer)}
	p.Agrees = len(p.Differences) == 0

	for _, d := range m.Devices {
		if d.Vendor != gpu.NVIDIA {
			continue
		}

		g := probedGPU{Index: d.Index, UUID: d.UUID, PCI: d.PCI, Name: d.Name, MIG: []string{}}
		if d.Compute != nil {
			g.Compute = d.Compute.String()
		}

		for _, s := range d.MIG {
			g.MIG = append(g.MIG, fmt.Sprintf("%s %d/%d", s.UUID, s.GPUInstance, s.ComputeInstance))
		}

		p.GPUs = append(p.GPUs, g)
	}

	return p
}

// driverVariables lists the variables that the driver, or its loader, may read.
func driverVariables(env visible.Env) []string {
	out := []string{}
	for _, pair := range env {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "CUDA_") || name == "NVIDIA_VISIBLE_DEVICES" || name == "LD_LIBRARY_PATH" || name == "LD_PRELOAD" {
			out = append(out, pair)
		}
	}
	slices.Sort(out)

	return out
}

// differences compares ordinal by ordinal: identity first, and the address where both are known.
func differences(view visible.View, m gpu.Machine, answer libcuda.Answer) []string {
	out := []string{}
	for i := range max(len(view.Visible), len(answer.Devices)) {
		ours, theirs := "no device", "no device"
		both := 0
		var e visible.Entry
		var d libcuda.ShownDevice
		if i < len(view.Visible) {
			e = view.Visible[i]
			ours = deviceAt(e.UUID, addressOf(m, e.UUID))
			both++
		}

		if i < len(answer.Devices) {
			d = answer.Devices[i]
			theirs = deviceAt(d.UUID, d.PCI)
			both++
		}

		if both < 2 || !isSameDevice(e, d, answer.Parents) || !isSameAddress(addressOf(m, e.UUID), d.PCI) {
			out = append(out, fmt.Sprintf("cuda:%d is %s for gpuard and %s for the driver", i, ours, theirs))
		}
	}
	return out
}

func deviceAt(id gpu.UUID, pci string) string {
	if pci == "" {
		return string(id)
	}
	return strings.TrimSpace(string(id) + " at " + pci)
}

// isSameDevice: a library that knows only GPUs by UUID names a MIG device by its GPU. Without a UUID the address of a
// whole GPU says enough.
func isSameDevice(e visible.Entry, d libcuda.ShownDevice, parents bool) bool {
	switch {
	case parents && e.Parent != "":
		return d.UUID == e.Parent
	case d.UUID == "":
		return e.Parent == "" && d.PCI != ""
	}
	return d.UUID == e.UUID
}

// isSameAddress: an address that one side could not read contradicts nothing.
func isSameAddress(a, b string) bool { return a == "" || b == "" || a == b }

func addressOf(m gpu.Machine, id gpu.UUID) string {
	if d, _, ok := m.FindDevice(id); ok {
		return d.PCI
	}
	return ""
}
