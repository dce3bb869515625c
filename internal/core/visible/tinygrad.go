package visible

import (
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

// Tinygrad returns what tinygrad's own drivers see, NV for NVIDIA and AMD for AMD devices, which open the hardware
// without CUDA or ROCm. The variable depends on tinygrad's version ("0.12.0"; "" is the newest): up to 0.11
// VISIBLE_DEVICES, else the vendor's; 0.12 HCQ_VISIBLE_DEVICES; from 0.13 on the numbers within DEV. Numbers count in
// the machine's order. Its CUDA backend, DEV=CUDA, goes through libcuda and sees what CUDA sees.
//
// Source: tinygrad/tinygrad tinygrad/device.py, runtime/ops_nv.py, ops_amd.py, ops_cuda.py and support/hcq.py at the
// tags v0.9.2 to v0.13.0.
func Tinygrad(env Env, m gpu.Machine, vendor gpu.Vendor, version string) View {
	minor := tinygradMinor(version)
	if vendor == gpu.NVIDIA && usesCUDABackend(env, minor) {
		return tinygradCUDA(env, m)
	}

	devices := indexOrder(devicesOf(m, vendor))
	name := "DEV"
	switch {
	case minor <= 11:
		name = "VISIBLE_DEVICES"
		if own := map[gpu.Vendor]string{gpu.NVIDIA: cudaVariable, gpu.AMD: "HIP_VISIBLE_DEVICES"}[vendor]; !env.hasAny(name) && own != "" {
			name = own
		}
	case minor == 12:
		name = "HCQ_VISIBLE_DEVICES"
	}

	value, _ := env.Lookup(name)
	r := tinygradReader{noter{variable{name, value}, duplicateNotes(env, name)}, devices}
	if minor >= 13 {
		value = r.targetNumbers(env, vendor)
	}

	if minor >= 12 && env.hasAny(cudaVariable, "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "VISIBLE_DEVICES") {
		r.notes = append(r.notes, Note{codeOtherName, "tinygrad's own drivers, NV and AMD, open GPUs themselves and read " + name + " only; the vendors' variables do not restrict it"})
	}

	return newView("tinygrad", wholeChoices(r.readList(value, minor >= 13)), r.notes)
}

// usesCUDABackend reports whether the CUDA backend is chosen. Before 0.13, CUDA=1 chose it too.
func usesCUDABackend(env Env, minor int) bool {
	value, _ := env.Lookup("DEV")
	if t := readTarget(value); t.device != "" {
		return strings.EqualFold(t.device, "CUDA")
	}
	return minor <= 12 && isOne(env, "CUDA")
}

func tinygradCUDA(env Env, m gpu.Machine) View {
	list := readCUDA(env, m)
	chosen, notes := oneSlice(list)
	r := noter{notes: append(list.notes, notes...)}
	r.notes = append(r.notes, Note{codeOtherName, "tinygrad's CUDA backend goes through libcuda, which reads " + cudaVariable})
	value, _ := env.Lookup("DEV")
	r.variable = (variable{"DEV", value})
	if readTarget(value).numbers != "" {
		r.addNote(codeUndocumented, "whether tinygrad reads the numbers with its CUDA backend is not known; they are taken to say nothing")
	}

	return newView("tinygrad", chosen, r.notes)
}

// isOne reports whether a variable is 1; tinygrad reads these as numbers.
func isOne(env Env, name string) bool {
	value, _ := env.Lookup(name)
	n, err := strconv.Atoi(strings.TrimSpace(value))
	return err == nil && n == 1
}

// tinygradMinor reads "0.12.0" or "v0.12" as 12; a release after 0 and anything unreadable count as the newest.
func tinygradMinor(version string) int {
	const newest = 1000
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) < 2 || parts[0] != "0" {
		return newest
	}

	n, err := strconv.Atoi(parts[1])
	if err != nil || n < 0 {
		return newest
	}

	return n
}

type tinygradReader struct {
	noter
	devices []*gpu.Device
}

// tinygradTarget is DEV, which is written as [interface:][numbers+]device[:renderer].
type tinygradTarget struct{ adapter, numbers, device, renderer string }

func readTarget(value string) tinygradTarget {
	var t tinygradTarget
	before, after, plus := strings.Cut(value, "+")
	if !plus {
		before, after = "", value
	}

	t.device, t.renderer, _ = strings.Cut(after, ":")
	t.adapter = before
	if i := strings.LastIndex(before, ":") + 1; len(before) > i && before[i] >= '0' && before[i] <= '9' {
		t.adapter, t.numbers = before[:i], before[i:]
	}

	return t
}

// String writes the target as readTarget reads it.
func (t tinygradTarget) String() string {
	out := t.adapter + t.numbers
	if out != "" {
		out += "+"
	}

	out += t.device
	if t.renderer != "" {
		out += ":" + t.renderer
	}

	return out
}

// targetNumbers finds the numbers in DEV that are meant for the vendor's backend.
func (r *tinygradReader) targetNumbers(env Env, vendor gpu.Vendor) string {
	t := readTarget(r.value)
	if v, _ := env.Lookup("HCQ_VISIBLE_DEVICES"); v != "" {
		r.addNote(codeProgramEnds, "tinygrad fails while HCQ_VISIBLE_DEVICES is set; remove it and put the numbers into DEV")
		r.devices = nil
		return ""
	}

	for _, name := range []string{"NV", "AMD", "CUDA"} {
		if t.device == "" && isOne(env, name) {
			r.notes = append(r.notes, Note{codeProgramEnds, name + "=1: tinygrad fails on this older way to choose a backend; write DEV=" + name})
			r.devices = nil
			return ""
		}
	}

	if backend := vendor.TinygradName(); backend == "" || !strings.EqualFold(t.device, backend) {
		return ""
	}

	return t.numbers
}

// readList accepts only plain numbers. An empty list restricts nothing.
func (r *tinygradReader) readList(value string, ranges bool) []*gpu.Device {
	var numbers []int
	low, high, dash := strings.Cut(value, "-")
	a, errA := strconv.Atoi(strings.TrimSpace(low))
	b, errB := strconv.Atoi(strings.TrimSpace(high))
	if ranges && dash && errA == nil && errB == nil && a >= 0 && b-a < 1000 {
		for ; a <= b; a++ {
			numbers = append(numbers, a)
		}
	} else {
		for _, entry := range strings.Split(value, ",") {
			entry = strings.TrimSpace(entry)
			n, err := strconv.Atoi(entry)
			switch {
			case entry == "":
				continue
			case err != nil:
				r.addNote(codeProgramEnds, "%s is no number; tinygrad fails on it", quoteEntry(entry))
				return nil
			}
			numbers = append(numbers, n)
		}
	}

	if len(numbers) == 0 {
		return r.devices
	}

	return r.pickNumbers(numbers)
}

// pickNumbers follows Python's lists: a negative number counts from the end, so -1 is the last GPU and not "none".
func (r *tinygradReader) pickNumbers(numbers []int) []*gpu.Device {
	var chosen []*gpu.Device
	for _, n := range numbers {
		if n < 0 && -n <= len(r.devices) {
			r.addNote(codeUndocumented, "%d counts from the end: it is GPU %d, not none", n, len(r.devices)+n)
			n += len(r.devices)
		}
		if n < 0 || n >= len(r.devices) {
			r.addNote(codeProgramEnds, "there is no GPU %d; tinygrad fails on it", n)
			return nil
		}
		if slices.Contains(chosen, r.devices[n]) {
			r.addNote(codeDuplicate, "GPU %d is named twice: tinygrad numbers it twice, here it is shown once", n)
			continue
		}
		chosen = append(chosen, r.devices[n])
	}
	return chosen
}
