package nvml

import (
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/test/fakegpu"
)

func TestLinkClasses(t *testing.T) {
	d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1), fakegpu.A100(2), fakegpu.A100(3), fakegpu.A100(4), fakegpu.A100(5))
	d.SetLinks(
		"X NV4/SYS PIX PXB PHB NODE",
		"NV4/SYS X SYS SYS SYS SYS",
		"PIX SYS X SYS SYS SYS",
		"PXB SYS SYS X SYS SYS",
		"PHB SYS SYS SYS X NV2/PIX",
		"NODE SYS SYS SYS NV2/PIX X",
	)
	m := machine(t, d, gpu.Links)
	same(t, "links of 0", m.Devices[0].Links,
		[]gpu.Link{gpu.LinkSelf, gpu.LinkNVLink, gpu.LinkSwitch, gpu.LinkSwitch, gpu.LinkBridge, gpu.LinkNode})
	same(t, "links of 1", m.Devices[1].Links,
		[]gpu.Link{gpu.LinkNVLink, gpu.LinkSelf, gpu.LinkSystem, gpu.LinkSystem, gpu.LinkSystem, gpu.LinkSystem})
	same(t, "links of 5", m.Devices[5].Links,
		[]gpu.Link{gpu.LinkNode, gpu.LinkSystem, gpu.LinkSystem, gpu.LinkSystem, gpu.LinkNVLink, gpu.LinkSelf})
}

func TestAllDevicesOfAnNVSwitchReachEachOther(t *testing.T) {
	d := fakegpu.New(t, fakegpu.H100(0), fakegpu.H100(1), fakegpu.H100(2))
	d.SetLinks("X NV18/SYS NV18/SYS", "NV18/SYS X NV18/SYS", "NV18/SYS NV18/SYS X")
	d.WriteFile("nvswitch", "0000:c5:00.0")
	m := machine(t, d, gpu.Links)
	same(t, "links of 1", m.Devices[1].Links, []gpu.Link{gpu.LinkNVLink, gpu.LinkSelf, gpu.LinkNVLink})
}
