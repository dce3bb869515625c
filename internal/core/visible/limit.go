package visible

import (
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// HiddenDevices maps the devices and MIG devices that the caller's own variables hide to the reason
// ("CUDA_VISIBLE_DEVICES=1 hides it"), so that existing masks are obeyed. Unset variables hide nothing. A list of
// several MIG devices allows all of them, although one process would see only one. A list that names a split GPU allows
// all its MIG devices. A split GPU with some MIG devices allowed is not hidden. NVIDIA_VISIBLE_DEVICES is for container
// runtimes and is no mask. The notes are those of reading the variables that are set.
func HiddenDevices(env Env, m gpu.Machine) (hidden map[gpu.UUID]string, notes []Note) {
	hidden = map[gpu.UUID]string{}
	vendor, given, notes := slurmMask(env, m)
	for _, v := range maskReaders() {
		masks := []mask{v.read(env, m)}
		if v.vendor == vendor {
			masks = []mask{given, maskWithin(v.read, env, m, given)}
		}

		for _, k := range masks {
			notes = append(notes, k.hideOthers(hidden)...)
		}
	}

	return hidden, notes
}

// MaskOrder lists the devices that the caller's own variables allow, in the order in which these name them: of several
// masks of a vendor by the last that is set. Devices of vendors without a mask are not in it.
func (e Env) MaskOrder(m gpu.Machine) (order []gpu.UUID) {
	vendor, given, _ := slurmMask(e, m)
	last := map[gpu.Vendor]mask{}
	var vendors []gpu.Vendor
	for _, v := range maskReaders() {
		k := v.read(e, m)
		if v.vendor == vendor {
			k = maskWithin(v.read, e, m, given)
		}
		if _, known := last[v.vendor]; !known {
			vendors = append(vendors, v.vendor)
		}
		if k.set || last[v.vendor].among == nil {
			last[v.vendor] = k
		}
	}

	for _, v := range vendors {
		if k := last[v]; k.set {
			for _, c := range k.allowed {
				order = append(order, c.uuid())
			}
		}
	}

	return order
}

// maskReader reads the mask of one vendor's variables.
type maskReader struct {
	vendor gpu.Vendor
	read   func(Env, gpu.Machine) mask
}

// maskReaders lists the masks that are obeyed. A later mask of a vendor works within the earlier one.
func maskReaders() []maskReader {
	return []maskReader{
		{gpu.NVIDIA, cudaMask},
		{gpu.AMD, rocrMask},
		{gpu.AMD, hipMask},
		{gpu.Intel, viewMask(gpu.Intel, "ZE_AFFINITY_MASK", LevelZero)},
		{gpu.Ascend, viewMask(gpu.Ascend, "ASCEND_RT_VISIBLE_DEVICES", Ascend)},
	}
}

// mask is what one vendor's variables allow. A mask that is not set allows everything.
type mask struct {
	set bool
	// Names variable and value.
	because string
	among   []*gpu.Device
	allowed []choice
	notes   []Note
}

func cudaMask(env Env, m gpu.Machine) mask {
	devices := devicesOf(m, gpu.NVIDIA)
	if len(devices) == 0 {
		return mask{}
	}

	if _, _, fails, _ := cudaOrder(env, m); fails {
		// What is chosen among these devices gets an order with which CUDA starts.
		env = slices.DeleteFunc(slices.Clone(env), func(pair string) bool { return strings.HasPrefix(pair, "CUDA_DEVICE_ORDER=") })
	}

	l := readCUDA(env, m)

	return mask{set: l.set || slices.ContainsFunc(l.notes, Note.Widens), because: l.variable.String(), among: devices, allowed: l.chosen, notes: l.notes}
}

// viewMask is the mask of a vendor with only one variable.
func viewMask(vendor gpu.Vendor, name string, read func(Env, gpu.Machine) View) func(Env, gpu.Machine) mask {
	return func(env Env, m gpu.Machine) mask {
		value, set := env.Lookup(name)
		k := mask{set: set, because: variable{name, value}.String(), among: devicesOf(m, vendor)}
		if len(k.among) == 0 {
			return mask{}
		}

		v := read(env, m)
		for _, e := range v.Visible {
			if d, _, ok := m.FindDevice(e.UUID); ok {
				k.allowed = append(k.allowed, choice{dev: d})
			}
		}

		k.notes = v.Notes

		return k
	}
}

// hideOthers adds what the mask does not allow.
func (m mask) hideOthers(hidden map[gpu.UUID]string) []Note {
	if !m.set {
		return nil
	}
	why := m.because + " hides it"
	for _, d := range m.among {
		chose := func(id gpu.UUID) bool {
			return slices.ContainsFunc(m.allowed, func(c choice) bool { return c.uuid() == id })
		}

		if chose(d.UUID) {
			continue
		}

		some := false
		for _, s := range d.MIG {
			if chose(s.UUID) {
				some = true
			} else {
				hidden[s.UUID] = why
			}
		}

		if !some {
			hidden[d.UUID] = why
		}
	}

	return m.notes
}
