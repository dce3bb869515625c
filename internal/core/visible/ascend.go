package visible

import (
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

// Ascend returns what a CANN program sees through ASCEND_RT_VISIBLE_DEVICES: ascending numbers separated by commas.
// Any other character, or a number that no device has, ends the list and keeps what came before. Empty is none.
//
// Sources: "ASCEND_RT_VISIBLE_DEVICES" in the CANN documentation at hiascend.com; for the empty value Ascend/pytorch
// torch_npu/npu/__init__.py.
func Ascend(env Env, m gpu.Machine) View {
	const name = "ASCEND_RT_VISIBLE_DEVICES"
	devices := indexOrder(of(m, gpu.Ascend))
	value, set := env.Lookup(name)
	if !set {
		return view("ascend", whole(devices), nil)
	}
	r := ascendReader{noter{variable{name, value}, twice(env, name)}, devices}
	return view("ascend", whole(r.read()), r.notes)
}

type ascendReader struct {
	noter
	devices []*gpu.Device
}

func (r *ascendReader) read() []*gpu.Device {
	if r.value == "" {
		r.add(codeEmpty, "no Ascend device is visible")
		return nil
	}
	tokens := strings.Split(r.value, ",")
	var chosen []*gpu.Device
	last := -1
	for i, entry := range tokens {
		digits := entry[:len(entry)-len(strings.TrimLeft(entry, "0123456789"))]
		n, err := strconv.Atoi(digits)
		switch {
		case digits == "":
			r.add(codeNotNumber, "%s does not begin with a digit and ends the list%s", quoted(entry), rest(tokens, i))
			return chosen
		case err != nil || n >= len(r.devices):
			r.add(codeIndex, "entry %s is no valid number (Ascend devices here: %d) and ends the list%s", quoted(entry), len(r.devices), rest(tokens, i))
			return chosen
		case n <= last:
			r.add(codeOpen, "entry %s is not above the one before, as CANN requires; the list is taken to end here%s", quoted(entry), rest(tokens, i))
			return chosen
		}
		chosen, last = append(chosen, r.devices[n]), n
		if digits != entry {
			r.add(codeNotNumber, "the character after the number in %s ends the list%s", quoted(entry), rest(tokens, i))
			return chosen
		}
	}
	return chosen
}
