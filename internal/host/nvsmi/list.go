package nvsmi

import (
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

// named is one MIG device in the output of `nvidia-smi -L`.
type named struct {
	parent  gpu.UUID
	index   int
	uuid    gpu.UUID
	profile string
}

// parseList reads the lines of `nvidia-smi -L`, which alone has the names of MIG devices:
//
//	GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5c…)
//	  MIG 1g.10gb     Device  0: (UUID: MIG-0f…)
func parseList(out []byte) []named {
	var list []named
	var parent gpu.UUID
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		_, tail, ok := strings.Cut(line, "(UUID: ")
		id := strings.TrimSuffix(tail, ")")
		switch {
		case !ok:
		case strings.HasPrefix(line, "GPU "):
			if i := strings.LastIndex(line, "(UUID: "); i >= 0 {
				id = strings.TrimSuffix(line[i+len("(UUID: "):], ")")
			}
			parent = uuid(id, "GPU-")
		case strings.HasPrefix(line, "MIG "):
			fields := strings.Fields(line)
			if len(fields) < 4 || fields[2] != "Device" {
				continue
			}
			index, err := strconv.Atoi(strings.TrimSuffix(fields[3], ":"))
			if name := uuid(id, "MIG-"); err == nil && name != "" && parent != "" {
				list = append(list, named{parent, index, name, gpu.Clean(fields[1])})
			}
		}
	}
	return list
}

func (r *report) hasSlices() bool {
	for _, u := range r.units {
		if len(u.slices) > 0 {
			return true
		}
	}
	return false
}

// nameSlices gives the MIG devices their names; both outputs number them within their device.
func (r *report) nameSlices(list []named) {
	for i := range r.units {
		for j := range r.units[i].slices {
			s := &r.units[i].slices[j]
			for _, n := range list {
				if n.parent == r.units[i].device.UUID && n.index == s.Index {
					s.UUID, s.Profile = n.uuid, n.profile
				}
			}
		}
	}
}

// addCapabilities reads "GPU-5c…, 8.0" per line. Drivers before 510 do not know that question: then it stays absent.
func (r *report) addCapabilities(out []byte) {
	for line := range strings.Lines(string(out)) {
		id, text, ok := strings.Cut(strings.TrimSpace(line), ",")
		c, err := gpu.ParseCapability(text)
		if !ok || err != nil {
			continue
		}
		for i := range r.units {
			if d := &r.units[i].device; d.UUID != "" && d.UUID == uuid(id, "GPU-") {
				d.Compute = &c
			}
		}
	}
}
