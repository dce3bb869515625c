package visible

import (
	"cmp"
	"fmt"
	"slices"

	"gpuard/internal/core/gpu"
)

// instancePath is the tail of the older MIG identifiers.
func instancePath(m *gpu.MIGDevice) string {
	return fmt.Sprintf("%d/%d", m.GPUInstance, m.ComputeInstance)
}

// oneSlice applies MIG's rule for one process: a split GPU is seen as one MIG device, and a process that sees a MIG
// device sees nothing else. Sources: NVIDIA MIG User Guide ("only single MIG instance enumeration is supported");
// XuehaiPan/nvitop nvitop/api/device.py for lists that mix MIG devices and whole GPUs.
func oneSlice(l cudaList) ([]choice, []Note) {
	var notes []Note
	var seen []choice
	first := -1
	for _, c := range l.chosen {
		if c.mig == nil && c.dev.UsesMIG() {
			slice := firstSlice(c.dev)
			if slice == nil {
				notes = append(notes, Note{codeNoSlice, fmt.Sprintf("GPU %d is in MIG mode and has no MIG devices, so no program can use it", c.dev.Index)})
				continue
			}

			c.mig = slice
			text := fmt.Sprintf("GPU %d is split into %d MIG devices: a program sees one of them, most likely %s, never the whole GPU", c.dev.Index, len(c.dev.MIG), slice.UUID)
			if len(c.dev.MIG) == 1 {
				text = fmt.Sprintf("of GPU %d a program sees the MIG device %s, never the whole GPU", c.dev.Index, slice.UUID)
			}

			notes = append(notes, Note{codeFirstSlice, text})
		}
		if c.mig != nil && first < 0 {
			first = len(seen)
		}
		seen = append(seen, c)
	}

	if first < 0 || len(seen) == 1 {
		return seen, notes
	}

	notes = append(notes, Note{codeOneSlice, fmt.Sprintf("a program sees one MIG device and nothing else: of the %d chosen, %s; newer drivers may show more", len(seen), seen[first].mig.UUID)})
	if slices.ContainsFunc(seen, func(c choice) bool { return c.mig == nil }) {
		notes = append(notes, Note{codeUndocumented, "whole GPUs together with MIG devices: not documented, drivers may differ"})
	}

	return seen[first : first+1], notes
}

// firstSlice is the MIG device of a split GPU that a program sees, nil where there is none.
func firstSlice(d *gpu.Device) *gpu.MIGDevice {
	if all := inIndexOrder(d); len(all) > 0 {
		return all[0]
	}
	return nil
}

// inIndexOrder are the MIG devices of a GPU as the driver numbers them.
func inIndexOrder(d *gpu.Device) []*gpu.MIGDevice {
	order := make([]*gpu.MIGDevice, len(d.MIG))
	for i := range d.MIG {
		order[i] = &d.MIG[i]
	}
	slices.SortFunc(order, func(a, b *gpu.MIGDevice) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
	})

	return order
}
