package amdgpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

const (
	driverFolder = "sys/bus/pci/drivers/amdgpu"
	pciFolder    = "sys/bus/pci/devices"
	nodeFolder   = "sys/class/kfd/kfd/topology/nodes"
)

// card is one device: a KFD node, which is a GPU or a partition of one; or a GPU that only the graphics driver lists.
type card struct {
	// The fields that are known without reading the device itself.
	device gpu.Device
	// The folder of the PCI device, below the root.
	dir string
	// KFD node, "" for graphics only.
	node string
	// KFD's name for it in a process's files.
	gpuID string
	props map[string]uint64
	// It is one of several partitions: readings of the PCI device are those of all of them.
	portion bool
}

// foundDevices is the list of devices with what is known of all together.
type foundDevices struct {
	cards    []card
	ways     [][]gpu.Link
	version  string
	problems []string
	// Why ROCm's processes are not listed; "" when they are, or were not asked for.
	unlisted string
	none     error
}

func (f *foundDevices) linksOf(i int) []gpu.Link {
	if f.ways == nil {
		return nil
	}
	return f.ways[i]
}

// findDevices lists the devices in ROCm's order: KFD nodes by number, without those that this process may not use,
// which ROCm does not number (ROCm/ROCR-Runtime libhsakmt/src/topology.c topology_sysfs_check_node_supported). GPUs
// without a KFD node follow. If there are hidden nodes, a GPU without a node may be one of those, so GPUs without a
// node are left out.
func (d *Driver) findDevices(what gpu.What) foundDevices {
	var out foundDevices
	hidden := 0
	for _, node := range d.kfdNodes() {
		c, state := d.readNode(node)
		switch state {
		case isCard:
			out.cards = append(out.cards, c)
		case isHidden:
			hidden++
		}
	}

	setUUIDs(out.cards)
	compute := len(out.cards)
	if hidden == 0 {
		out.cards = append(out.cards, d.graphicsOnlyCards(out.cards)...)
	}

	if len(out.cards) == 0 {
		out.none = d.noDeviceError(hidden)
		return out
	}

	for i := range out.cards {
		out.cards[i].device.Index = i
	}

	out.version = d.driverVersion()
	if hidden > 0 {
		out.problems = append(out.problems, fmt.Sprintf("AMD GPUs: %d more are not given to this container or job", hidden))
	}

	if what&gpu.Processes != 0 && d.isNestedNamespace() && len(d.listNames(processFolder)) > 0 {
		out.unlisted = "cannot list ROCm's processes in a container or PID namespace: their PIDs are those of the machine"
		out.problems = append(out.problems, "AMD GPUs: "+out.unlisted)
	}

	out.problems = append(out.problems, d.deniedReasons(out.cards[:compute])...)
	if what&gpu.Links != 0 {
		out.ways = d.readLinks(out.cards)
	}

	return out
}

// kfdNodes lists KFD's nodes by number, including those of processors.
func (f fileReader) kfdNodes() []string {
	nodes := slices.DeleteFunc(f.listNames(nodeFolder), func(s string) bool { _, err := strconv.ParseUint(s, 10, 32); return err != nil })
	slices.SortFunc(nodes, func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return x - y
	})
	return nodes
}

type nodeState int

const (
	isProcessor nodeState = iota
	isHidden
	isCard
)

// readNode reads one KFD node. The kernel does not show nodes that the device filter of the caller's cgroup excludes
// (torvalds/linux drivers/gpu/drm/amd/amdkfd/kfd_topology.c node_show).
func (f fileReader) readNode(node string) (card, nodeState) {
	id, err := f.readText(nodeFolder, node, "gpu_id")
	if errors.Is(err, fs.ErrPermission) {
		return card{}, isHidden
	}
	if err != nil || id == "0" || id == "" {
		return card{}, isProcessor
	}

	c := card{node: node, gpuID: id, device: gpu.Device{Vendor: gpu.AMD, Name: "AMD GPU", UUID: gpu.UUID("KFD-" + prose.Clean(shortenText(id)))}}
	text, err := f.readText(nodeFolder, node, "properties")
	if err != nil {
		c.device.Problem = fmt.Sprintf("cannot read KFD node %s: %s", node, errorReason(err))
		return c, isCard
	}

	c.props = parseProperties(text)
	bus, known := c.props["location_id"]
	if !known {
		c.device.Problem = fmt.Sprintf("KFD node %s does not say where its GPU is", node)
		return c, isCard
	}

	// The lower half is bus, device and function; the highest four bits are the partition (kfd_topology_add_device).
	c.setAddress(f, fmt.Sprintf("%04x:%02x:%02x.%x", c.props["domain"]&0xffffffff, bus>>8&0xff, bus>>3&0x1f, bus&7))
	if minor := c.props["drm_render_minor"]; minor > 0 && minor < 1<<20 {
		c.device.Minor = new(int(minor))

		// A GPU with a render node that is missing or filtered is not given to this container or job.
		if err := f.checkUsable(c.renderNode()); errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EPERM) {
			return c, isHidden
		}
	}

	if target := targetName(c.props["gfx_target_version"]); target != "" {
		c.device.Extra = map[string]json.RawMessage{"gfx_target": json.RawMessage(strconv.Quote(target))}
		if compat.IsIntegrated(target) {
			c.device.Integrated = new(true)
		}
	}

	if mhz := c.props["max_engine_clk_fcompute"]; mhz > 0 && mhz < 1e5 {
		c.device.ClockSMMax = new(int(mhz))
	}

	return c, isCard
}

func (c *card) renderNode() string { return fmt.Sprintf("dev/dri/renderD%d", *c.device.Minor) }

// setAddress sets the card's PCI address and what follows from it.
func (c *card) setAddress(f fileReader, pci string) {
	c.device.PCI, c.dir = pci, f.filePath(pciFolder, pci)
	if !f.hasFile(pciFolder, pci) {
		c.device.Problem = "the GPU is lost: nothing is left at PCI address " + pci
	}
	if n, err := parseWholeNumber(f.readShort(pciFolder, pci, "numa_node"), 1<<16); err == nil {
		// -1: a machine without nodes.
		c.device.NUMA = new(int(n))
	}
}

// targetName returns the name that compilers use for KFD's number: 90402 is gfx942, 90010 is gfx90a.
func targetName(version uint64) string {
	major, minor, step := version/10000, version/100%100, version%100
	if major == 0 || major > 99 || minor > 15 || step > 15 {
		return ""
	}
	return fmt.Sprintf("gfx%d%x%x", major, minor, step)
}

// setUUIDs gives every card its UUID, and marks the partitions of one GPU.
func setUUIDs(cards []card) {
	at, same := map[string]int{}, map[gpu.UUID]int{}
	for i := range cards {
		c := &cards[i]
		if c.device.PCI == "" {
			continue
		}

		at[c.device.PCI]++

		// ROCm's form (ROCm/ROCR-Runtime runtime/hsa-runtime/core/runtime/amd_gpu_agent.cpp); 0 means that it has none.
		c.device.UUID = gpu.UUID("PCI-" + c.device.PCI)
		if c.props["unique_id"] != 0 {
			c.device.UUID = gpu.UUID(fmt.Sprintf("GPU-%016x", c.props["unique_id"]))
		}

		same[c.device.UUID]++
	}
	next := map[gpu.UUID]int{}
	for i := range cards {
		c := &cards[i]
		c.portion = at[c.device.PCI] > 1
		if id := c.device.UUID; same[id] > 1 {
			c.device.UUID = gpu.UUID(fmt.Sprintf("%s-p%d", id, next[id]))
			next[id]++
		}
	}
}

// graphicsOnlyCards lists the GPUs that the driver uses and that have no KFD node: old GPUs, or all on a kernel without
// KFD.
func (f fileReader) graphicsOnlyCards(known []card) []card {
	address := regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	var out []card
	for _, pci := range f.listNames(driverFolder) {
		if !address.MatchString(pci) || slices.ContainsFunc(known, func(c card) bool { return c.device.PCI == pci }) {
			continue
		}

		c := card{device: gpu.Device{Vendor: gpu.AMD, Name: "AMD GPU", UUID: gpu.UUID("PCI-" + pci)}}
		c.device.Problem = "for graphics only: the kernel's compute driver (KFD) does not list it, so ROCm programs cannot use it"
		c.setAddress(f, pci)
		if id := f.readShort(pciFolder, pci, "unique_id"); len(id) == 16 && strings.Trim(id, "0123456789abcdef") == "" && strings.Trim(id, "0") != "" {
			c.device.UUID = gpu.UUID("GPU-" + id)
		}

		for _, entry := range f.listNames(pciFolder, pci, "drm") {
			n, isRender := strings.CutPrefix(entry, "renderD")
			if !isRender {
				continue
			}

			minor, err := strconv.Atoi(n)
			if err != nil {
				continue
			}

			c.device.Minor = new(minor)
		}

		out = append(out, c)
	}

	return out
}

// deniedReasons lists the reasons why ROCm programs of this user cannot start.
func (f fileReader) deniedReasons(cards []card) []string {
	var out []string
	if len(cards) == 0 {
		return nil
	}

	if text := refusedReason("/dev/kfd", f.checkUsable("dev/kfd")); text != "" {
		out = append(out, "AMD GPUs: "+text)
	}

	for i := range cards {
		c := &cards[i]
		if c.device.Minor == nil {
			continue
		}
		if text := refusedReason("/"+c.renderNode(), f.checkUsable(c.renderNode())); text != "" {
			out = append(out, fmt.Sprintf("AMD GPU %d: %s", c.device.Index, text))
		}
	}

	return out
}

// driverVersion returns the version of the driver if it is a separate module, else that of the kernel, of which it is a
// part.
func (f fileReader) driverVersion() string {
	if v := f.readShort("sys/module/amdgpu/version"); v != "" {
		return prose.Clean(v)
	}
	if v := f.readShort("proc/sys/kernel/osrelease"); v != "" {
		return "Linux " + prose.Clean(v)
	}
	return ""
}
