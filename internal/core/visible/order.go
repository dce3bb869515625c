package visible

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

// cudaOrder returns the NVIDIA devices in the order in which CUDA numbers them. guessed is true when the order of
// different models had to be estimated: NVIDIA documents FASTEST_FIRST, the default, only as "a simple heuristic"
// (CUDA C++ Programming Guide, CUDA environment variables). With any other word the driver does not start
// (CUDA_ERROR_INVALID_DEVICE, observed with libcuda 470 to 555), and fails is true.
func cudaOrder(env Env, m gpu.Machine) (devices []*gpu.Device, guessed, fails bool, notes []Note) {
	devices = pciOrder(devicesOf(m, gpu.NVIDIA))
	order, set := env.Lookup("CUDA_DEVICE_ORDER")
	v := variable{"CUDA_DEVICE_ORDER", order}
	switch {
	case !set, order == "FASTEST_FIRST":
	case order == "PCI_BUS_ID":
		return devices, false, false, nil
	case len(order) >= tooLongOrderSize:
		notes = append(notes, v.newNote(codeOrderTooLong, "it has %d bytes, and the driver takes a value of %d bytes and more for unset", len(order), tooLongOrderSize))
	default:
		return devices, false, true, append(notes, v.newNote(codeOrder, "CUDA does not start with this value: no GPU is visible; write PCI_BUS_ID or FASTEST_FIRST, or unset it"))
	}

	if haveSameModel(devices) {
		return devices, false, false, notes
	}

	slices.SortStableFunc(devices, compareSpeed(devices))

	return devices, true, false, notes
}

// indexOrder sorts by index: the kernel's topology for AMD, the driver's order for the others.
func indexOrder(devices []*gpu.Device) []*gpu.Device {
	slices.SortStableFunc(devices, func(a, b *gpu.Device) int { return cmp.Compare(a.Index, b.Index) })
	return devices
}

// pciOrder sorts by PCI address, or by index where an address cannot be read.
func pciOrder(devices []*gpu.Device) []*gpu.Device {
	out := slices.Clone(devices)
	address := map[*gpu.Device]uint64{}
	for _, d := range out {
		a, ok := pciNumber(d.PCI)
		if !ok {
			return indexOrder(out)
		}
		address[d] = a
	}

	slices.SortStableFunc(out, func(a, b *gpu.Device) int {
		return cmp.Or(cmp.Compare(address[a], address[b]), cmp.Compare(a.Index, b.Index))
	})

	return out
}

// pciNumber reads "0000:17:00.0" as a number that sorts like the address.
func pciNumber(s string) (uint64, bool) {
	fields := strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == '.' })
	if len(fields) != 4 {
		return 0, false
	}

	var n uint64
	for i, bits := range []int{32, 8, 8, 4} {
		v, err := strconv.ParseUint(fields[i], 16, bits)
		if err != nil {
			return 0, false
		}
		n = n<<bits | v
	}

	return n, true
}

func haveSameModel(devices []*gpu.Device) bool {
	return !slices.ContainsFunc(devices, func(d *gpu.Device) bool { return d.Name != devices[0].Name })
}

// compareSpeed compares by compute capability and memory. A reading counts only when every device has it, because
// otherwise the comparison would not be an order.
func compareSpeed(devices []*gpu.Device) func(a, b *gpu.Device) int {
	compute, memory := true, true
	for _, d := range devices {
		compute = compute && d.Compute != nil
		memory = memory && d.MemoryTotal != nil
	}
	return func(a, b *gpu.Device) int {
		if compute {
			if c := cmp.Or(cmp.Compare(b.Compute.Major, a.Compute.Major), cmp.Compare(b.Compute.Minor, a.Compute.Minor)); c != 0 {
				return c
			}
		}
		if memory {
			return cmp.Compare(*b.MemoryTotal, *a.MemoryTotal)
		}
		return 0
	}
}
