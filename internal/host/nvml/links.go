package nvml

import (
	"context"
	"slices"
	"unsafe"

	"gpuard/internal/core/gpu"
)

// linkEnds lists the other ends of a device's active NVLinks.
type linkEnds struct {
	peers    []string // PCI addresses
	toSwitch bool     // a link ends at an NVSwitch, which joins all devices that have such a link
}

// readEnds reads the NVLinks of one device and its NUMA node.
func (r *reader) readEnds() {
	r.device.NUMA = r.numa()
	for i := range uintptr(linkMax) {
		var active uint32
		const state = "nvmlDeviceGetNvLinkState"
		if r.gone() || !r.ok(state, r.lib.call(state, r.handle, i, uintptr(unsafe.Pointer(&active)))) {
			return // link numbers have no gaps
		}
		if active != 0 {
			r.readEnd(i)
		}
	}
}

func (r *reader) readEnd(link uintptr) {
	var kind uint32
	const remoteKind = "nvmlDeviceGetNvLinkRemoteDeviceType"
	if s := r.lib.call(remoteKind, r.handle, link, uintptr(unsafe.Pointer(&kind))); s == success && kind == linkToSwitch {
		r.ends.toSwitch = true
		return
	}
	var info pciInfo
	const remotePCI = "nvmlDeviceGetNvLinkRemotePciInfo_v2"
	if r.ok(remotePCI, r.lib.call(remotePCI, r.handle, link, uintptr(unsafe.Pointer(&info)))) {
		r.ends.peers = append(r.ends.peers, info.address())
	}
}

// numa returns the NUMA node of the processor next to the device. If the driver does not report it, and the device's
// memory is a node of its own (Grace Hopper), it returns that node.
func (r *reader) numa() *int {
	var nodes [4]uint64 // a bit for each node
	const near = "nvmlDeviceGetMemoryAffinity"
	if !r.gone() && r.ok(near, r.lib.call(near, r.handle, uintptr(len(nodes)), uintptr(unsafe.Pointer(&nodes[0])), affinityNode)) {
		for i := range 64 * len(nodes) {
			if nodes[i/64]&(1<<(i%64)) != 0 {
				return new(i)
			}
		}
	}
	return r.number("nvmlDeviceGetNumaNodeId")
}

// row has the links from one device to the devices before it in the list; "" is unknown.
type row struct {
	index int
	links []gpu.Link
}

// link finds the Links between the devices that answered. A device that is late gets none: its links are not known.
func (l *Library) link(ctx context.Context, answers []answer) {
	reason := "an earlier comparison hangs"
	before := make([][]gpu.Link, len(answers))
	if l.linking.Load() == 0 {
		reason = "no answer in time"
		before = l.rows(ctx, slices.Clone(answers))
	}
	for i := range answers {
		if before[i] != nil {
			answers[i].device.Links = fullRow(before, i)
		} else if answers[i].complete() {
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

// rows compares each device with the earlier ones, in a goroutine per device. The goroutines outlive the call if the
// driver hangs, so answers must not be changed by the caller. A row that is late is nil.
func (l *Library) rows(ctx context.Context, answers []answer) [][]gpu.Link {
	said := make(chan row, len(answers))
	before := make([][]gpu.Link, len(answers))
	waiting := 0
	for i := range answers {
		if !answers[i].complete() {
			continue
		}
		waiting++
		l.linking.Add(1)
		go func() {
			found := l.compare(answers[:i+1])
			l.linking.Add(-1)
			said <- row{i, found}
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

// compare finds the links from the last of the devices to the others.
func (l *Library) compare(answers []answer) []gpu.Link {
	self := &answers[len(answers)-1]
	links := make([]gpu.Link, len(answers)-1)
	for i := range links {
		other := &answers[i]
		if !other.complete() {
			continue
		}
		if joinedByNVLink(self, other) {
			links[i] = gpu.LinkNVLink
			continue
		}
		var level uint32
		if l.call("nvmlDeviceGetTopologyCommonAncestor", self.handle, other.handle, uintptr(unsafe.Pointer(&level))) == success {
			links[i] = linkClass(level)
		}
	}
	return links
}

func joinedByNVLink(a, b *answer) bool {
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
