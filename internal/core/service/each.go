package service

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/diagnostic"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/shellquote"
)

// Placement records the GPUs of services with each: gpu, by service and ordinal, so that an instance keeps its GPU when
// all are restarted, and when another GPU fails or is added.
type Placement map[string][]gpu.UUID

// place is the target of an instance.
type place struct {
	ordinal int
	device  gpu.UUID
	refused string
}

// isPinned reports whether the file names the GPUs; the ordinals then follow its list.
func (s *Service) isPinned() bool {
	return slices.ContainsFunc(s.Flags, func(f Flag) bool { return f.Name == "device" })
}

// assignPlaces gives an ordinal to every GPU that the service may have, and returns the placement to record. A GPU
// keeps its ordinal. A GPU that is gone or no longer allowed leaves its ordinal unused, so that no other moves; a new
// one gets the next. If no GPU is the same as before, numbering starts again.
func (s *Service) assignPlaces(on Ground) (out []place, remember []gpu.UUID, wrong *diagnostic.One) {
	spec, wrong := s.gpuLimits(on.Defaults)
	if wrong != nil {
		return nil, nil, wrong
	}

	before := slices.Clone(on.Placement[s.Name])
	if s.isPinned() {
		return s.listedPlaces(spec, on), before, nil
	}

	able := pick.CapableDevices(spec, on.Machine, on.In)
	able = slices.DeleteFunc(able, func(id gpu.UUID) bool { return id == "" })
	if len(able) > 0 && !slices.ContainsFunc(before, func(id gpu.UUID) bool { return isPresent(on.Machine, id) }) {
		before = nil
	}

	for n, id := range before {
		switch {
		case slices.Contains(able, id):
			out = append(out, place{ordinal: n, device: id})
		case !isPresent(on.Machine, id):
			out = append(out, place{ordinal: n, device: id, refused: fmt.Sprintf("cannot place %s: %s, which it has had, is not on this machine now; "+
				"to give its place to another, name the GPUs of %s with device", s.InstanceName(n), id, s.Name)})
		}
	}

	for _, id := range able {
		if !slices.Contains(before, id) {
			out = append(out, place{ordinal: len(before), device: id})
			before = append(before, id)
		}
	}

	if len(out) == 0 {
		out = []place{{refused: unplacedReason(spec, on)}}
	}

	return out, before, nil
}

// listedPlaces gives the GPUs that the file names their ordinals in that list.
func (s *Service) listedPlaces(spec job.Spec, on Ground) (out []place) {
	for n, name := range spec.Devices {
		one := spec
		one.Devices = []string{name}
		ids := pick.CapableDevices(one, on.Machine, on.In)
		switch {
		case len(ids) != 1 || ids[0] == "":
			out = append(out, place{ordinal: n, refused: unplacedReason(one, on)})
		case slices.ContainsFunc(out, func(p place) bool { return p.device == ids[0] }):
			out = append(out, place{ordinal: n, refused: fmt.Sprintf("cannot place %s: device names its GPU twice; name each once", s.InstanceName(n))})
		default:
			out = append(out, place{ordinal: n, device: ids[0]})
		}
	}
	return out
}

// unplacedReason is the reason why the machine has no GPU for the spec.
func unplacedReason(spec job.Spec, on Ground) string {
	spec.Command = nil
	_, refusal := pick.Place(spec, on.Machine, nil, on.In)
	if refusal == nil {
		return "cannot place it: the driver does not say which GPU is which"
	}

	return strings.TrimSuffix(refusal.Summary+"; "+refusal.Remedy, "; ")
}

func isPresent(m gpu.Machine, id gpu.UUID) bool {
	return slices.ContainsFunc(m.Devices, func(d gpu.Device) bool { return d.UUID == id })
}

// gpuLimits reads the flags, and defaults of flags, that restrict a service's GPUs.
func (s *Service) gpuLimits(defaults []policy.Default) (spec job.Spec, wrong *diagnostic.One) {
	spec.GPUs = 1
	flags := slices.Clone(s.Flags)
	for _, d := range defaults {
		if choosesGPU(d.Flag) && !s.isPinned() && !slices.ContainsFunc(s.Flags, func(f Flag) bool { return f.Name == d.Flag }) {
			flags = append(flags, Flag{d.Flag, d.Value, d.At.Line, d.At.Column})
		}
	}

	for _, f := range flags {
		var err error
		switch f.Name {
		case "device":
			spec.Devices, err = shellquote.ReadList(f.Value)
			spec.GPUs = 0
		case "exclude":
			spec.Exclude, err = shellquote.ReadList(f.Value)
		case "model":
			spec.Model = f.Value
		case "min-compute":
			var c gpu.Capability
			c, err = gpu.ParseCapability(f.Value)
			spec.MinCompute = &c
		case "mem":
			spec.Memory, err = gpu.ParseBytes(f.Value)
		case "share":
			spec.Share, err = gpu.ParseBytes(f.Value)
		case "any":
			spec.Any = true
		case "anyway":
			spec.Anyway = true
		}
		if err != nil {
			return spec, &diagnostic.One{Line: f.Line, Column: f.Column, Text: fmt.Sprintf("service %s: %s %s cannot be read", s.Name, f.Name, strconv.Quote(f.Value))}
		}
	}

	return spec, nil
}
