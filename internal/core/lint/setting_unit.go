package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

// lookHiddenDevices finds services that are to use GPUs and in which systemd hides them.
func lookHiddenDevices(f File) (all []Finding) {
	if f.Kind != Unit || !usesGPUsAsUnit(f) {
		return nil
	}
	isNamed := func(name string) bool {
		return slices.ContainsFunc(f.Steps, func(s Step) bool { return s.Name == "DeviceAllow" && s.Value.Text == name })
	}
	for _, s := range f.Steps {
		switch {
		case s.Do != Setting || s.In != "Service":
		case s.Name == "PrivateDevices" && isSystemdTrue(s.Value.Text):
			all = append(all, Finding{Finding: check.Finding{Seen: "PrivateDevices= hides every GPU from the service",
				Why: "it gets a /dev of its own, which has no device of a GPU, whatever DeviceAllow= says", Do: "take the line out; DevicePolicy=closed with DeviceAllow= hides the others"}, At: s.At})
		case s.Name == "DeviceAllow" && s.Value.Text == "char-nvidia-frontend" && !isNamed("char-nvidia") && !isNamed("char-nvidia*"):
			all = append(all, Finding{Finding: check.Finding{Seen: "no driver of NVIDIA from 545 on has a device called nvidia-frontend",
				Why: "systemd passes over names that /proc/devices does not have, so the service may open no GPU", Do: "add the line DeviceAllow=char-nvidia* rw, which older drivers have too"}, At: s.At})
		}
	}

	return all
}

// usesGPUsAsUnit reports whether a unit says that it is to use GPUs: by its program, a variable, or a device.
func usesGPUsAsUnit(f File) bool {
	return slices.ContainsFunc(f.Steps, func(s Step) bool {
		switch s.Do {
		case Command:
			return programOf(s).usesGPUs()
		case Set:
			return slices.Contains(maskVariables(), s.Name) && !hidesEveryDevice(s.Value)
		case Setting:
			return s.Name == "DeviceAllow" && (strings.Contains(s.Value.Text, "nvidia") || strings.Contains(s.Value.Text, "kfd"))
		}
		return false
	})
}

// isSystemdTrue is how systemd reads a boolean (systemd.syntax(7)).
func isSystemdTrue(value string) bool { return hasWord("1 yes y true t on", strings.ToLower(value)) }
