package isolation

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/isolate"
	"gpuard/internal/host/sys"
)

// DeviceNodes lists the device files that belong to one GPU each, as they are there now; below root lie dev, proc and
// sys.
func DeviceNodes(root string) ([]isolate.Node, error) {
	dev := filepath.Join(root, "dev")
	entries, err := os.ReadDir(dev)
	if err != nil {
		return nil, fmt.Errorf("cannot list the device files: %w", err)
	}

	var nodes []isolate.Node
	for _, e := range entries {
		if n, found := nodeNumber(e, "nvidia"); found {
			nodes = append(nodes, isolate.Node{Path: filepath.Join(dev, e.Name()), Kind: isolate.Card, Number: n})
		}
	}

	return append(append(nodes, capabilityNodes(root)...), graphicsNodes(root)...), nil
}

// nodeNumber is the number of a device file of this prefix.
func nodeNumber(e fs.DirEntry, prefix string) (int, bool) {
	digits, found := strings.CutPrefix(e.Name(), prefix)
	n, err := strconv.ParseUint(digits, 10, 20)
	return int(n), found && err == nil && e.Type()&fs.ModeCharDevice != 0 //nolint:gosec // 20 bits
}

// capabilityNodes are those of the parts of GPUs in MIG mode, also parts whose file is not made yet. The driver says
// which they are in /proc/driver/nvidia/capabilities.
func capabilityNodes(root string) (nodes []isolate.Node) {
	caps := filepath.Join(root, "dev/nvidia-caps")
	entries, _ := os.ReadDir(caps)
	known := nodesByMinor{}
	known.readCapabilities(filepath.Join(root, "proc/driver/nvidia/capabilities"))

	for _, e := range entries {
		n, found := nodeNumber(e, "nvidia-cap")
		if part, isPart := known[n]; found && isPart {
			part.Path = filepath.Join(caps, e.Name())
			nodes = append(nodes, part)
			delete(known, n)
		}
	}

	for _, n := range slices.Sorted(maps.Keys(known)) {
		nodes = append(nodes, known[n])
	}

	return nodes
}

// nodesByMinor are the parts by the minor number of their file.
type nodesByMinor map[int]isolate.Node

func (n nodesByMinor) readCapabilities(folder string) {
	partFile := regexp.MustCompile(`/gpu(\d+)/mig/gi(\d+)(?:/ci(\d+))?/access$`)
	for _, pattern := range []string{"gpu*/mig/gi*/access", "gpu*/mig/gi*/ci*/access"} {
		files, _ := filepath.Glob(filepath.Join(folder, pattern))
		for _, path := range files {
			found := partFile.FindStringSubmatch(path)
			text, _ := sys.ReadSome(path, 4096)
			_, rest, _ := strings.Cut(string(text), "DeviceFileMinor:")
			var minor int
			if _, err := fmt.Sscan(rest, &minor); err != nil || found == nil {
				continue
			}

			part := isolate.Node{Kind: isolate.Capability, ComputeInstance: -1}
			part.Number, _ = strconv.Atoi(found[1])
			part.GPUInstance, _ = strconv.Atoi(found[2])
			if found[3] != "" {
				part.ComputeInstance, _ = strconv.Atoi(found[3])
			}

			n[minor] = part
		}
	}
}

// graphicsNodes are those of the kernel's graphics, and of AMD's computing.
func graphicsNodes(root string) (nodes []isolate.Node) {
	kfd := filepath.Join(root, "dev/kfd")
	if info, err := os.Stat(kfd); err == nil && info.Mode()&fs.ModeCharDevice != 0 {
		nodes = append(nodes, isolate.Node{Path: kfd, Kind: isolate.AMDCompute})
	}

	dri := filepath.Join(root, "dev/dri")
	entries, err := os.ReadDir(dri)
	if err != nil {
		return nodes
	}

	for _, e := range entries {
		if e.Type()&fs.ModeCharDevice == 0 {
			continue
		}

		n := isolate.Node{Path: filepath.Join(dri, e.Name()), Kind: isolate.Graphics}
		if number, found := nodeNumber(e, "renderD"); found {
			n.Kind, n.Number = isolate.Render, number
		}

		target, err := os.Readlink(filepath.Join(root, "sys/class/drm", e.Name(), "device"))
		if err == nil {
			n.PCI = filepath.Base(target)
		}

		nodes = append(nodes, n)
	}

	return nodes
}
