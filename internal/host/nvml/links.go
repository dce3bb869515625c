package nvml

import (
	"context"
	"slices"
	"unsafe"

	"gpuard/internal/core/gpu"
)

// linkEnds is what is at the other ends of a device's active NVLinks.
type linkEnds struct {
	peers    []string // PCI addresses
	toSwitch bool     // an NVSwitch joins all devices that are attached to one
}

// readEnds follows the NVLinks of one device, and finds the memory node it is near.
func (r *reader) readEnds() {
	r.device.NUMA = r.numa()
	for i := range uintptr(linkMax) {
		var active uint32
		const state = "nvmlDeviceGetNvLinkState"
		if r.gone() || !r.ok(state, r.lib.call(state, r.handle, i, uintptr(unsafe.Pointer(&active)))) {
			return // the first link that does not exist is the end of them
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

// numa is the node of the processor next to the device. Where a device's memory is a node of its own (Grace Hopper) and the
// driver does not say which processor is near, it is that node.
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

// row is how one device reaches those before it; "" is unknown, nil links are a row that did not come in time.
type row struct {
	index int
	links []gpu.Link
}

// link compares the devices that answered and gives every one of them its Links.
// What is late is left out: a device without Links is one whose links are not known.
func (l *Library) link(ctx context.Context, answers []answer) {
	reason := "an earlier comparison hangs"
	before := make([][]gpu.Link, len(answers))
	if l.linking.Load() == 0 {
		reason = "no answer in time"
		before = l.rows(ctx, slices.Clone(answers))
	}
	for i := range answers {
		if before[i] != nil {
			answers[i].device.Links = whole(before, i)
		} else if answers[i].complete() {
			answers[i].problems = append(answers[i].problems, "cannot compare it with other GPUs: "+reason)
		}
	}
}

// whole makes the row of one device from its own half and the halves of those after it.
func whole(before [][]gpu.Link, i int) []gpu.Link {
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

// rows compares in one goroutine for each device. They outlive the call when the driver hangs, so answers is theirs.
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

// compare finds how the last of the devices reaches the ones before it.
func (l *Library) compare(answers []answer) []gpu.Link {
	self := &answers[len(answers)-1]
	links := make([]gpu.Link, len(answers)-1)
	for i := range links {
		other := &answers[i]
		if !other.complete() {
			continue
		}
		if joined(self, other) {
			links[i] = gpu.LinkNVLink
			continue
		}
		var level uint32
		if l.call("nvmlDeviceGetTopologyCommonAncestor", self.handle, other.handle, uintptr(unsafe.Pointer(&level))) == success {
			links[i] = class(level)
		}
	}
	return links
}

func joined(a, b *answer) bool {
	return a.ends.toSwitch && b.ends.toSwitch ||
		slices.Contains(a.ends.peers, b.device.PCI) || slices.Contains(b.ends.peers, a.device.PCI)
}

// class puts nvmlGpuTopologyLevel_t into words. Devices of one board (level 0) have a switch between them.
func class(level uint32) gpu.Link {
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
