package visible

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
)

// same returns n devices of one model with a driver of today, UUIDs GPU-00000000-…, PCI order equal to index order.
func same(vendor gpu.Vendor, n int) gpu.Machine {
	m := gpu.Machine{Driver: "580.159.04"}
	for i := range n {
		id := gpu.UUID(fmt.Sprintf("GPU-%08x-aaaa-bbbb-cccc-0123456789ab", 0xa0+i))
		if vendor == gpu.AMD {
			id = gpu.UUID(fmt.Sprintf("GPU-%016x", 0xbabababababababa+uint64(i)*0x11111111))
		}
		m.Devices = append(m.Devices, gpu.Device{
			Index: i, UUID: id, Name: "Model X", Vendor: vendor, PCI: fmt.Sprintf("0000:%02x:00.0", 0x10+i),
		})
	}
	return m
}

// eight has the UUIDs of pytorch/pytorch test/test_cuda_nvml_based_avail.py, as far as they matter.
func eight() gpu.Machine {
	m := same(gpu.NVIDIA, 8)
	for i, head := range []string{"9942190a", "9e8d35e3", "e429a63e", "eee1dfbc", "bbcd6503", "472ea263", "e56257c4", "1c20e77d"} {
		m.Devices[i].UUID = gpu.UUID("GPU-" + head + "-1111-2222-3333-444444444444")
	}
	return m
}

// split returns n devices of which those listed are in MIG mode with three slices each.
func split(n int, which ...int) gpu.Machine {
	m := same(gpu.NVIDIA, n)
	for _, i := range which {
		d := &m.Devices[i]
		d.UUID = gpu.UUID(fmt.Sprintf("GPU-3eb7970%d-0000-0000-0000-000000000000", i))
		d.MIGMode = new(true)
		for j, instances := range [][2]int{{13, 0}, {1, 2}, {7, 0}} {
			d.MIG = append(d.MIG, gpu.MIGDevice{
				Index: j, UUID: gpu.UUID(fmt.Sprintf("MIG-%d%d000000-0000-5000-8000-000000000000", i, j)),
				Profile: "1g.10gb", GPUInstance: instances[0], ComputeInstance: instances[1],
			})
		}
	}
	return m
}

// mixed has a slow device at the lower PCI address and a fast one at the higher.
func mixed() gpu.Machine {
	m := same(gpu.NVIDIA, 2)
	m.Devices[0].Name, m.Devices[0].Compute = "Tesla T4", &gpu.Capability{Major: 7, Minor: 5}
	m.Devices[1].Name, m.Devices[1].Compute = "NVIDIA H100", &gpu.Capability{Major: 9, Minor: 0}
	return m
}

// indices writes the visible devices as "2,1"; MIG devices as "0/0" (parent index / slice index).
func indices(m gpu.Machine, v View) string {
	var out []string
	for _, e := range v.Visible {
		d, mig, ok := m.FindDevice(e.UUID)
		switch {
		case !ok:
			out = append(out, "?")
		case mig != nil:
			out = append(out, fmt.Sprintf("%d/%d", d.Index, mig.Index))
		default:
			out = append(out, fmt.Sprint(e.Index))
		}
	}
	return strings.Join(out, ",")
}

// codes writes the note codes as "a b".
func codes(v View) string {
	var out []string
	for _, n := range v.Notes {
		out = append(out, n.Code)
	}
	return strings.Join(out, " ")
}

// wellFormed checks what holds for every view of a machine with distinct UUIDs.
func wellFormed(t *testing.T, m gpu.Machine, v View) {
	t.Helper()
	if v.Visible == nil || v.Notes == nil {
		t.Errorf("nil list in %+v", v)
	}
	seen := map[gpu.UUID]bool{}
	for i, e := range v.Visible {
		if e.Logical != i {
			t.Errorf("logical numbers have a gap: %+v", v.Visible)
		}
		if seen[e.UUID] {
			t.Errorf("%s is visible twice", e.UUID)
		}
		seen[e.UUID] = true
		d, mig, ok := m.FindDevice(e.UUID)
		if !ok || d.Index != e.Index || d.Vendor != e.Vendor || (mig != nil) != (e.Parent != "") {
			t.Errorf("%+v is not a device of the machine", e)
		}
	}
	known := Codes()
	for _, n := range v.Notes {
		if !slices.ContainsFunc(known, func(k Note) bool { return k.Code == n.Code }) {
			t.Errorf("note code %q is not in Codes", n.Code)
		}
		if n.Text == "" || strings.ContainsFunc(n.Text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("note %q has no text or control characters in it: %q", n.Code, n.Text)
		}
	}
}
