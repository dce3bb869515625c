package visible

import (
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

// Ascend returns what a CANN program sees through ASCEND_RT_VISIBLE_DEVICES: ascending numbers separated by commas.
// Any other character, or a number that no device has, ends the list and keeps what came before. Empty is none.
// ASCEND_DEVICE_ID chooses nothing, but has to be a number within the list.
//
// Sources: "ASCEND_RT_VISIBLE_DEVICES" in the CANN documentation at hiascend.com; for the empty value and for
// repeated numbers Ascend/pytorch torch_npu/npu/__init__.py.
func Ascend(env Env, m gpu.Machine) View {
	const name = "ASCEND_RT_VISIBLE_DEVICES"
	devices := indexOrder(devicesOf(m, gpu.Ascend))
	value, set := env.Lookup(name)
	if !set {
		return newView("ascend", wholeChoices(devices), ascendDefault(env, devices))
	}

	r := ascendReader{noter{variable{name, value}, duplicateNotes(env, name)}, devices}
	chosen := r.readList()

	return newView("ascend", wholeChoices(chosen), append(r.notes, ascendDefault(env, chosen)...))
}

// ascendDefault notes an ASCEND_DEVICE_ID that is no number within the visible devices.
func ascendDefault(env Env, chosen []*gpu.Device) []Note {
	const name = "ASCEND_DEVICE_ID"
	value, set := env.Lookup(name)
	n, err := strconv.ParseUint(value, 10, 31)
	switch {
	case !set || len(chosen) == 0 || err == nil && int(n) < len(chosen):
		return nil
	case err != nil:
		return []Note{variable{name, value}.newNote(codeNotNumber, "it has to be one number, from 0 to %d here", len(chosen)-1)}
	}

	return []Note{variable{name, value}.newNote(codeIndex, "it counts within the visible devices, from 0 to %d here, and names none of them", len(chosen)-1)}
}

type ascendReader struct {
	noter
	devices []*gpu.Device
}

func (a *ascendReader) readList() []*gpu.Device {
	if a.value == "" {
		a.addNote(codeEmpty, "no Ascend device is visible")
		return nil
	}

	tokens := strings.Split(a.value, ",")
	var chosen []*gpu.Device
	last := -1
	for i, entry := range tokens {
		digits := entry[:len(entry)-len(strings.TrimLeft(entry, "0123456789"))]
		n, err := strconv.Atoi(digits)
		switch {
		case digits == "":
			a.addNote(codeNotNumber, "%s does not begin with a digit and ends the list%s", quoteEntry(entry), droppedEntries(tokens, i))
			return chosen
		case err != nil || n >= len(a.devices):
			a.addNote(codeIndex, "entry %s is no valid number (Ascend devices here: %d) and ends the list%s", quoteEntry(entry), len(a.devices), droppedEntries(tokens, i))
			return chosen
		case n <= last:
			if slices.Contains(chosen, a.devices[n]) {
				a.addNote(codeDuplicate, "device %d is named twice: torch_npu does not check for that and counts it twice", n)
			}
			a.addNote(codeUndocumented, "entry %s is not above the one before, as CANN requires; the list is taken to end here%s", quoteEntry(entry), droppedEntries(tokens, i))
			return chosen
		}

		chosen, last = append(chosen, a.devices[n]), n
		if digits != entry {
			a.addNote(codeNotNumber, "the character after the number in %s ends the list%s", quoteEntry(entry), droppedEntries(tokens, i))
			return chosen
		}
	}

	return chosen
}
