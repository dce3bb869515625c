package container

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// Spec is a file of the Container Device Interface (cncf-tags/container-device-interface SPEC.md): what a container
// gets with each device of one vendor.
type Spec struct {
	Version string       `json:"cdiVersion"`
	Kind    string       `json:"kind"`
	Devices []SpecDevice `json:"devices"`
	// The edits that go with any of the devices.
	Edits Edits `json:"containerEdits"`
}

// SpecDevice is one name, and what is added with it.
type SpecDevice struct {
	Name  string `json:"name"`
	Edits Edits  `json:"containerEdits"`
}

// Edits are additions to a container.
type Edits struct {
	Env    []string `json:"env,omitempty"`
	Nodes  []Node   `json:"deviceNodes,omitempty"`
	Mounts []Mount  `json:"mounts,omitempty"`
}

// Node is a device file.
type Node struct {
	Path string `json:"path"`
}

// Mount is a file of the machine at a path of the container.
type Mount struct {
	Host      string   `json:"hostPath"`
	Container string   `json:"containerPath"`
	Options   []string `json:"options"`
}

// specVersion is the lowest version whose names may begin with a digit, as an index does (SPEC.md, "v0.5.0"). podman
// reads it from 4.1 on, Docker from 25 on.
const specVersion = "0.5.0"

// CDIKinds are the vendors of which SpecOf makes files, and the kinds of their devices.
func CDIKinds() map[gpu.Vendor]string {
	return map[gpu.Vendor]string{gpu.NVIDIA: "nvidia.com/gpu", gpu.AMD: "amd.com/gpu"}
}

// SpecOf makes the file of a vendor: one entry for each device by UUID and one by index, and "all". files are those of
// Shared that the machine has, libraries the driver's, by the path that programs load. left names devices without an
// entry: those without a file of their own, and those that are split into MIG slices, whose files a driver's tool
// knows.
func SpecOf(vendor gpu.Vendor, devices []gpu.Device, files []string, libraries map[string]string) (spec Spec, left []string) {
	spec = Spec{Version: specVersion, Kind: CDIKinds()[vendor], Devices: []SpecDevice{}}
	for _, file := range SharedFiles(vendor) {
		if slices.Contains(files, file) {
			spec.Edits.Nodes = append(spec.Edits.Nodes, Node{file})
		}
	}

	for path, host := range libraries {
		spec.Edits.Mounts = append(spec.Edits.Mounts, Mount{host, path, []string{"ro", "nosuid", "nodev", "rbind", "rprivate"}})
	}

	slices.SortFunc(spec.Edits.Mounts, func(a, b Mount) int { return strings.Compare(a.Container, b.Container) })
	var all []Node
	for _, d := range devices {
		if d.Vendor != vendor {
			continue
		}

		own := filesOf(d)
		if len(own) == 0 || len(d.MIG) > 0 {
			left = append(left, fmt.Sprintf("GPU %d", d.Index))
			continue
		}

		nodes := []Node{{own[0]}}
		all = append(all, nodes...)

		for _, name := range []string{string(d.UUID), fmt.Sprint(d.Index)} {
			spec.Devices = append(spec.Devices, SpecDevice{name, Edits{Nodes: nodes}})
		}
	}

	if len(all) > 0 {
		spec.Devices = append(spec.Devices, SpecDevice{"all", Edits{Nodes: all}})
	}

	return spec, left
}
