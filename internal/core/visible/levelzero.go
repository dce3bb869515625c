package visible

import (
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

// LevelZero returns what a program that uses Intel's Level Zero driver sees through ZE_AFFINITY_MASK. The order of
// the mask changes nothing; an entry that no device has is skipped; an empty value is no mask at all. Numbers, also
// those of the mask, go by PCI address with ZE_ENABLE_PCI_ID_DEVICE_ORDER=1. Every card counts as one tile here, so on
// cards of several tiles the numbers are those of ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE.
//
// Sources: oneapi-src/level-zero-spec scripts/core/PROG.rst; intel/compute-runtime
// shared/source/execution_environment/execution_environment.cpp and os_interface/device_factory.cpp, which sorts first.
func LevelZero(env Env, m gpu.Machine) View {
	chosen, notes := readLevelZero(env, m)
	return newView("level_zero", wholeChoices(chosen), notes)
}

func readLevelZero(env Env, m gpu.Machine) ([]*gpu.Device, []Note) {
	const name = "ZE_AFFINITY_MASK"
	devices := indexOrder(devicesOf(m, gpu.Intel))
	if ordersByAddress(env) {
		devices = pciOrder(devices)
	}

	value, set := env.Lookup(name)
	if !set {
		return devices, nil
	}

	r := affinityReader{noter: noter{variable{name, value}, duplicateNotes(env, name)}, env: env, devices: devices}

	return r.readList(), r.notes
}

const pciOrderVariable = "ZE_ENABLE_PCI_ID_DEVICE_ORDER"

// ordersByAddress reports whether PCI order is set: the driver reads a number, and any but 0 is yes.
func ordersByAddress(env Env) bool {
	value, _ := env.Lookup(pciOrderVariable)
	n, ok := strtoul(value)
	return ok && n != 0
}

type affinityReader struct {
	noter
	env     Env
	devices []*gpu.Device
}

func (a *affinityReader) readList() []*gpu.Device {
	if a.value == "" || a.value == "default" {
		a.addNote(codeNoMask, "this is no mask: all Intel GPUs are visible")
		return a.devices
	}
	var chosen []*gpu.Device
	for _, entry := range strings.Split(strings.TrimSuffix(a.value, ","), ",") {
		card, tile, dotted := strings.Cut(entry, ".")
		n, ok := strtoul(card)
		if !ok {
			a.addNote(codeProgramEnds, "%s is no number; the driver fails on it and shows no GPU", quoteEntry(entry))
			return nil
		}

		if n >= uint32(len(a.devices)) {
			if len(a.devices) > 0 && a.value != noIntelDevice {
				a.addNote(codeSkipped, "entry %s names no Intel GPU and is skipped; the rest of the list counts", quoteEntry(entry))
			}
			continue
		}

		if d := a.devices[n]; (!dotted || a.showsTile(entry, tile)) && !slices.Contains(chosen, d) {
			chosen = append(chosen, d)
		}
	}

	return slices.DeleteFunc(slices.Clone(a.devices), func(d *gpu.Device) bool { return !slices.Contains(chosen, d) })
}

// showsTile reports whether an entry card.tile makes the card visible.
func (a *affinityReader) showsTile(entry, tile string) bool {
	if hierarchy, set := a.env.Lookup("ZE_FLAT_DEVICE_HIERARCHY"); hierarchy != "COMPOSITE" {
		a.addNote(codeTile, "entry %s is ignored, because tiles count as devices unless ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE", quoteEntry(entry))
		if !set {
			a.addNote(codeUndocumented, "without ZE_FLAT_DEVICE_HIERARCHY the driver chooses by the model of the GPU")
		}
		return false
	}
	if n, ok := strtoul(tile); ok && n == 0 {
		return true
	}
	a.addNote(codeUndocumented, "whether entry %s names a tile that exists is not known here", quoteEntry(entry))

	return true
}

// strtoul reads the number at the beginning of s as C++'s stoul does with base 0, then as 32 bits: blanks and a sign
// may precede it, anything may follow, and negative numbers wrap around. ok is false when there is no digit, or too
// many.
func strtoul(s string) (n uint32, ok bool) {
	s = strings.TrimLeft(s, blanks)
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}

	digits, base := "0123456789", 10
	switch {
	case len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X') && strings.IndexByte(hexDigits, s[2]) >= 0:
		s, digits, base = s[2:], hexDigits, 16
	case strings.HasPrefix(s, "0"):
		digits, base = "01234567", 8
	}

	end := strings.IndexFunc(s, func(c rune) bool { return !strings.ContainsRune(digits, c) })
	if end >= 0 {
		s = s[:end]
	}

	v, err := strconv.ParseUint(s, base, 64)
	if err != nil {
		return 0, false
	}

	if negative {
		v = -v
	}

	return uint32(v), true
}

const hexDigits = "0123456789abcdefABCDEF"
