package proof

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// Glimpse is what is seen of a leased job in passing, by whoever reads the driver's list of processes anyway. Its
// framework is not asked, and only at the second look is anything read of its processes. Of Facts it has PID, Command,
// Machine, Lease, Leased, Sightings, Age, CPUTime and Libraries.
type Glimpse struct {
	Facts
	// Look: the job has had time to reach its GPUs.
	Second bool
	// It was seen on one some time ago.
	Settled bool
	// Variables, as NAME=VALUE, by which none of its processes sees a GPU; "" where one does.
	Hides string
}

// Judge says where the job works. It accuses nobody of working on the CPU who may still load data: that is TooEarly,
// however long it takes.
func (g *Glimpse) Judge() Finding {
	outside := g.Outside()
	unused := g.unusedOf(g.Leased)
	switch {
	case len(outside) > 0:
		return Finding{Verdict: OutsideLease, Text: g.outsideText(outside), Remedy: g.elsewhereRemedy(outside)}
	case len(g.Sightings) > 0 && len(unused) > 0 && g.Settled:
		used := slices.DeleteFunc(slices.Clone(g.Leased), func(id gpu.UUID) bool { return slices.Contains(unused, id) })
		return Finding{
			Verdict: Partly, Text: fmt.Sprintf("%s uses %s alone: %s of lease %s is not used so far", g.jobText(), g.devicesText(used), g.devicesText(unused), g.Lease),
			Remedy: "ask for as many GPUs as the program uses, or tell it to use all",
		}
	case len(g.Sightings) > 0:
		return Finding{Verdict: Proven, Text: g.seenText(g.Sightings)}
	}

	why := g.whyOnCPU()
	if why != "" && g.Second {
		return Finding{Verdict: CPU, Text: fmt.Sprintf("%s holds %s and works on the CPU: %s", g.jobText(), g.devicesText(g.Leased), why), Remedy: g.cpuRemedy()}
	}

	return Finding{Verdict: TooEarly, Text: fmt.Sprintf("%s is not on %s yet", g.jobText(), g.devicesText(g.Leased))}
}

// whyOnCPU is why a job that is on no GPU will not be on one later, either; "" where it may.
func (g *Glimpse) whyOnCPU() string {
	isBusy := g.CPUTime >= g.Age/2
	switch {
	case g.Hides != "":
		return "its environment shows it no GPU (" + g.Hides + ")"
	case isBusy && g.hasOnlyTorchForCPU():
		return "its PyTorch is built without support for GPUs"
	}
	return ""
}

// hasOnlyTorchForCPU reports whether the one framework of a job is a PyTorch without the library of any kind of GPU.
func (g *Glimpse) hasOnlyTorchForCPU() bool {
	frameworks := RecognizeFrameworks("", g.Libraries)
	if len(frameworks) != 1 || frameworks[0] != pytorch {
		return false
	}
	return !slices.ContainsFunc(g.Libraries, func(file string) bool {
		_, kind, isTorch := strings.Cut(path.Base(file), "_")
		return isTorch && slices.ContainsFunc([]string{"cuda", "hip", "xpu", "npu"}, func(gpu string) bool { return strings.HasPrefix(kind, gpu) })
	})
}

// unusedOf are those of some devices that no process of the job is on.
func (f *Facts) unusedOf(devices []gpu.UUID) (idle []gpu.UUID) {
	for _, id := range devices {
		if !slices.ContainsFunc(f.Sightings, func(s Sighting) bool { return f.isAmong([]gpu.UUID{id}, s.GPU) }) {
			idle = append(idle, id)
		}
	}
	return idle
}
