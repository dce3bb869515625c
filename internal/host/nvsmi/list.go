package nvsmi

import (
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

// namedSlice is one MIG device in the output of `nvidia-smi -L`.
type namedSlice struct {
	parent  gpu.UUID
	index   int
	uuid    gpu.UUID
	profile string
}

// parseList reads the lines of `nvidia-smi -L`, the only output with the names of MIG devices:
//
//	GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5c…)
//	  MIG 1g.10gb     Device  0: (UUID: MIG-0f…)
func parseList(out []byte) []namedSlice {
	var list []namedSlice
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
			parent = safeUUID(id, "GPU-")
		case strings.HasPrefix(line, "MIG "):
			fields := strings.Fields(line)
			if len(fields) < 4 || fields[2] != "Device" {
				continue
			}
			index, err := strconv.Atoi(strings.TrimSuffix(fields[3], ":"))
			if name := safeUUID(id, "MIG-"); err == nil && index > unlistedIndex && name != "" && parent != "" {
				list = append(list, namedSlice{parent, index, name, prose.Clean(fields[1])})
			}
		}
	}

	return list
}

func (r *parsedReport) hasSlices() bool {
	return slices.ContainsFunc(r.units, func(u unassignedDevice) bool { return len(u.slices) > 0 })
}

// nameSlices sets the UUIDs of the MIG devices; both outputs number them within their device.
func (r *parsedReport) nameSlices(list []namedSlice) {
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

// addCapabilities reads "GPU-5c…, 8.0" per line. Drivers before 510 do not know that query, and the capability stays
// absent.
func (r *parsedReport) addCapabilities(out []byte) {
	for line := range strings.Lines(string(out)) {
		id, text, ok := strings.Cut(strings.TrimSpace(line), ",")
		c, err := gpu.ParseCapability(text)
		if !ok || err != nil {
			continue
		}

		for i := range r.units {
			if d := &r.units[i].device; d.UUID != "" && d.UUID == safeUUID(id, "GPU-") {
				d.Compute = &c
			}
		}
	}
}
