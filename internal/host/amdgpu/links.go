package amdgpu

import (
	"path/filepath"
	"strings"

	"gpuard/internal/core/gpu"
)

// linkXGMI is the type of AMD's direct links (torvalds/linux drivers/gpu/drm/amd/amdkfd/kfd_crat.h
// CRAT_IOLINK_TYPE_XGMI).
const linkXGMI = 11

// readLinks finds the link between every two cards.
func (d *Driver) readLinks(cards []card) [][]gpu.Link {
	direct := make([]map[string]bool, len(cards))
	chains := make([][]string, len(cards))
	for i := range cards {
		direct[i], chains[i] = d.xgmiPeers(cards[i].node), d.busPath(cards[i].device.PCI)
	}

	out := make([][]gpu.Link, len(cards))
	for i := range cards {
		out[i] = make([]gpu.Link, len(cards))
		for j := range cards {
			switch {
			case i == j:
				out[i][j] = gpu.LinkSelf
			case direct[i][cards[j].node] || cards[i].device.PCI != "" && cards[i].device.PCI == cards[j].device.PCI:
				out[i][j] = gpu.LinkNVLink
			default:
				out[i][j] = busLink(chains[i], chains[j], cards[i].device.NUMA, cards[j].device.NUMA)
			}
		}
	}

	return out
}

// xgmiPeers returns the nodes with an XGMI link to this one.
func (f fileReader) xgmiPeers(node string) map[string]bool {
	out := map[string]bool{}
	if node == "" {
		return out
	}

	for _, link := range f.listNames(nodeFolder, node, "io_links") {
		text, err := f.readText(nodeFolder, node, "io_links", link, "properties")
		if err != nil {
			continue
		}

		for line := range strings.Lines(text) {
			if to, ok := strings.CutPrefix(line, "node_to "); ok && parseProperties(text)["type"] == linkXGMI {
				out[strings.TrimSpace(to)] = true
			}
		}
	}

	return out
}

// busPath returns the path in sysfs from the root of the PCI bus to the device's parent, with all bridges between.
func (f fileReader) busPath(pci string) []string {
	if pci == "" {
		return nil
	}

	path, err := filepath.EvalSymlinks(f.filePath(pciFolder, pci))
	if err != nil {
		return nil
	}

	var out []string
	for part := range strings.SplitSeq(filepath.Dir(path), string(filepath.Separator)) {
		if strings.Count(part, ":") > 0 && (strings.HasPrefix(part, "pci") || len(out) > 0) {
			out = append(out, part)
		}
	}

	return out
}

// busLink returns the class of a link over PCI Express. A common bridge is a switch, or the switch on a card with two
// GPUs. A common root without a common bridge is the host bridge.
func busLink(a, b []string, near, far *int) gpu.Link {
	common := 0
	for common < len(a) && common < len(b) && a[common] == b[common] {
		common++
	}
	switch {
	case common > 1:
		return gpu.LinkSwitch
	case common == 1:
		return gpu.LinkBridge
	case near == nil && far == nil, near != nil && far != nil && *near == *far:
		// A machine without NUMA counts as one node.
		return gpu.LinkNode
	}

	return gpu.LinkSystem
}
