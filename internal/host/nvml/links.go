package nvml

import (
	"context"
	"slices"
	"unsafe"

	"gpuard/internal/core/gpu"
)

// linkEnds lists the other ends of a device's active NVLinks.
type linkEnds struct {
	peers []string // PCI addresses
	// A link ends at an NVSwitch, which joins all devices that have such a link.
	toSwitch bool
}

// readLinkEnds reads the NVLinks of one device and its NUMA node.
func (r *deviceReader) readLinkEnds() {
	r.device.NUMA = r.readNUMANode()
	for i := range uintptr(linkMax) {
		var active uint32
		const state = "nvmlDeviceGetNvLinkState"
		if r.isLost() || !r.recordResult(state, r.lib.callDriver(state, r.handle, i, uintptr(unsafe.Pointer(&active)))) {
			// Link numbers have no gaps.
			return
		}
		if active != 0 {
			r.readLinkEnd(i)
		}
	}
}

func (r *deviceReader) readLinkEnd(link uintptr) {
	var kind uint32
	const remoteKind = "nvmlDeviceGetNvLinkRemoteDeviceType"
	if s := r.lib.callDriver(remoteKind, r.handle, link, uintptr(unsafe.Pointer(&kind))); s == success && kind == linkToSwitch {
		r.ends.toSwitch = true
		return
	}

	var info pciInfo
	const remotePCI = "nvmlDeviceGetNvLinkRemotePciInfo_v2"
	if r.recordResult(remotePCI, r.lib.callDriver(remotePCI, r.handle, link, uintptr(unsafe.Pointer(&info)))) {
		r.ends.peers = append(r.ends.peers, info.pciAddress())
	}
}

// readNUMANode returns the NUMA node of the processor next to the device. If the driver does not report it, and the
// device's memory is a node of its own (Grace Hopper), it returns that node.
func (r *deviceReader) readNUMANode() *int {
	// A bit for each node.
	var nodes [4]uint64
	const near = "nvmlDeviceGetMemoryAffinity"
	if !r.isLost() && r.recordResult(near, r.lib.callDriver(near, r.handle, uintptr(len(nodes)), uintptr(unsafe.Pointer(&nodes[0])), affinityNode)) {
		for i := range 64 * len(nodes) {
			if nodes[i/64]&(1<<(i%64)) != 0 {
				return new(i)
			}
		}
	}

	return r.readNumber("nvmlDeviceGetNumaNodeId")
}

// linkRow has the links from one device to the devices before it in the list; "" is unknown.
type linkRow struct {
	index int
	links []gpu.Link
}

// linkDevices finds the Links between the devices that answered. A device that is late gets none: its links are not
// known.
func (l *Library) linkDevices(ctx context.Context, answers []deviceAnswer) {
	reason := "an earlier comparison hangs"
	before := make([][]gpu.Link, len(answers))
	if l.linking.Load() == 0 {
		reason = "no answer in time"
		before = l.compareDevices(ctx, slices.Clone(answers))
	}

	for i := range answers {
		if before[i] != nil {
			answers[i].device.Links = fullRow(before, i)
		} else if answers[i].isComplete() {
			answers[i].problems = append(answers[i].problems, "cannot compare it with other GPUs: "+reason)
		}
	}
}

// fullRow makes the row of device i from its own links to earlier devices and from the links of later devices to it.
func fullRow(before [][]gpu.Link, i int) []gpu.Link {
	all := append(slices.Clone(before[i]), gpu.LinkSelf)
	for _, later := range before[i+1:] {
		var link gpu.Link
		if later != nil {
			link = later[i]
		}
		all = append(all, link)
	}
	return all
}

// compareDevices compares each device with the earlier ones, in a goroutine per device. The goroutines outlive the call
// if the driver hangs, so answers must not be changed by the caller. A row that is late is nil.
func (l *Library) compareDevices(ctx context.Context, answers []deviceAnswer) [][]gpu.Link {
	said := make(chan linkRow, len(answers))
	before := make([][]gpu.Link, len(answers))
	waiting := 0
	for i := range answers {
		if !answers[i].isComplete() {
			continue
		}
		waiting++
		l.linking.Add(1)
		go func() {
			found := l.linksFromLast(answers[:i+1])
			l.linking.Add(-1)
			said <- linkRow{i, found}
		}()
	}

	for ; waiting > 0; waiting-- {
		select {
		case found := <-said:
			before[found.index] = found.links
		case <-ctx.Done():
			return before
		}
	}

	return before
}

// linksFromLast finds the links from the last of the devices to the others.
func (l *Library) linksFromLast(answers []deviceAnswer) []gpu.Link {
	self := &answers[len(answers)-1]
	links := make([]gpu.Link, len(answers)-1)
	for i := range links {
		other := &answers[i]
		if !other.isComplete() {
			continue
		}

		if haveNVLink(self, other) {
			links[i] = gpu.LinkNVLink
			continue
		}

		var level uint32
		if l.callDriver("nvmlDeviceGetTopologyCommonAncestor", self.handle, other.handle, uintptr(unsafe.Pointer(&level))) == success {
			links[i] = linkClass(level)
		}
	}

	return links
}

func haveNVLink(a, b *deviceAnswer) bool {
	return a.ends.toSwitch && b.ends.toSwitch ||
		slices.Contains(a.ends.peers, b.device.PCI) || slices.Contains(b.ends.peers, a.device.PCI)
}

// linkClass translates nvmlGpuTopologyLevel_t. Devices of one board (level 0) have a switch between them.
func linkClass(level uint32) gpu.Link {
	switch {
	case level <= 20:
		return gpu.LinkSwitch
	case level <= 30:
		return gpu.LinkBridge
	case level <= 40:
		return gpu.LinkNode
	}
	return gpu.LinkSystem
}
