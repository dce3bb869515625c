package isolate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// mixed has two GPUs of AMD, one of which is three partitions at one address, and one of NVIDIA whose number is that of a render node.
func mixed() (gpu.Machine, []Node) {
	const parted, whole = "0000:05:00.0", "0000:26:00.0"
	var m gpu.Machine
	for i, minor := range []int{128, 129, 130, 136} {
		pci := parted
		if minor == 136 {
			pci = whole
		}
		m.Devices = append(m.Devices, gpu.Device{Index: i, Minor: new(minor), UUID: gpu.UUID(fmt.Sprint("GPU-", minor)), PCI: pci, Vendor: gpu.AMD})
	}
	m.Devices = append(m.Devices, gpu.Device{Minor: new(129), UUID: "GPU-nvidia", PCI: "0000:41:00.0", Vendor: gpu.NVIDIA})
	return m, []Node{{Path: "kfd", Kind: AMDCompute}, {Path: "nvidia129", Number: 129}, {Path: "nvidia130", Number: 130},
		{Path: "card parted", Kind: Graphics, PCI: parted}, {Path: "128", Kind: Render, Number: 128, PCI: parted}, {Path: "129", Kind: Render, Number: 129, PCI: "amdgpu_xcp_1"}, {Path: "130", Kind: Render, Number: 130, PCI: "amdgpu_xcp_2"},
		{Path: "card whole", Kind: Graphics, PCI: whole}, {Path: "136", Kind: Render, Number: 136, PCI: whole},
		{Path: "card nvidia", Kind: Graphics, PCI: "0000:41:00.0"}, {Path: "140", Kind: Render, Number: 140, PCI: "0000:41:00.0"}, {Path: "screen", Kind: Graphics, PCI: "0000:00:02.0"}}
}

// TestCloseAMD: a GPU of AMD has /dev/kfd with all others, and its render node alone.
func TestCloseAMD(t *testing.T) {
	m, nodes := mixed()
	for _, c := range []struct{ given, open string }{
		{"GPU-136", "kfd, card whole, 136, screen"},
		{"GPU-130 GPU-128 GPU-129", "kfd, card parted, 128, 129, 130, screen"},
		{"GPU-nvidia", "nvidia129, card nvidia, 140, screen"},
		{"", ""},
	} {
		var ids []gpu.UUID
		for _, id := range strings.Fields(c.given) {
			ids = append(ids, gpu.UUID(id))
		}
		closed, refusal := FilesToClose(nodes, m, given(ids...))
		var open []string
		for _, n := range nodes {
			if !slices.Contains(closed, n.Path) {
				open = append(open, n.Path)
			}
		}
		if got := strings.Join(open, ", "); got != c.open || refusal != nil {
			t.Errorf("%s: open are %s, want %s (%v)", c.given, got, c.open, refusal)
		}
	}
}

// TestClosePartition: some of the partitions of a GPU would have other names behind a wall.
func TestClosePartition(t *testing.T) {
	m, nodes := mixed()
	closed, refusal := FilesToClose(nodes, m, given("GPU-130", "GPU-128", "GPU-136"))
	if refusal == nil || closed != nil || !strings.Contains(refusal.Summary, "a partition of a GPU") {
		t.Errorf("%q, %+v", closed, refusal)
	}
}

// TestSuits: behind Landlock AMD's library shows nothing, and every other pair works.
func TestSuits(t *testing.T) {
	for _, level := range append(Levels(), job.NoIsolation) {
		for _, vendor := range []gpu.Vendor{gpu.NVIDIA, gpu.AMD} {
			refusal := Suits(level, []job.Given{{UUID: "GPU-x", Vendor: vendor}})
			if (refusal != nil) != (level == job.Landlock && vendor == gpu.AMD) {
				t.Errorf("%s behind %q: %+v", vendor, level, refusal)
			}
		}
	}
}
