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
// the machine's order. Its CUDA backend goes through libcuda: for that one CUDA is right.
//
// Source: tinygrad/tinygrad tinygrad/runtime/ops_nv.py, ops_amd.py and support/hcq.py at the tags v0.9.2 to v0.13.0.
func Tinygrad(env Env, m gpu.Machine, vendor gpu.Vendor, version string) View {
	devices := indexOrder(of(m, vendor))
	minor := tinygradMinor(version)
	name := "DEV"
	switch {
	case minor <= 11:
		name = "VISIBLE_DEVICES"
		if own := map[gpu.Vendor]string{gpu.NVIDIA: cudaVariable, gpu.AMD: "HIP_VISIBLE_DEVICES"}[vendor]; !env.set(name) && own != "" {
			name = own
		}
	case minor == 12:
		name = "HCQ_VISIBLE_DEVICES"
	}
	value, _ := env.Lookup(name)
	r := tinygradReader{noter{variable{name, value}, twice(env, name)}, devices}
	if minor >= 13 {
		value = r.target(env, vendor)
	}
	if minor >= 12 && env.set(cudaVariable, "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "VISIBLE_DEVICES") {
		r.add(codeOtherName, "tinygrad %s opens GPUs itself and reads %s only; the vendors' variables do not restrict it", shown(version), name)
	}
	return view("tinygrad", whole(r.read(value, minor >= 13)), r.notes)
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

// target finds the numbers in DEV, which is written as [interface:][numbers+]device[:renderer].
func (r *tinygradReader) target(env Env, vendor gpu.Vendor) string {
	if v, _ := env.Lookup("HCQ_VISIBLE_DEVICES"); v != "" {
		r.add(codeProgramEnds, "tinygrad fails while HCQ_VISIBLE_DEVICES is set; remove it and put the numbers into DEV")
		r.devices = nil
		return ""
	}
	before, after, plus := strings.Cut(r.value, "+")
	device, _, _ := strings.Cut(after, ":")
	backend := map[gpu.Vendor]string{gpu.NVIDIA: "NV", gpu.AMD: "AMD"}[vendor]
	if !plus || !strings.EqualFold(device, backend) {
		return ""
	}
	numbers := before[strings.LastIndex(before, ":")+1:]
	if numbers == "" || numbers[0] < '0' || numbers[0] > '9' {
		return "" // an interface alone
	}
	return numbers
}

// read takes plain numbers only; an empty list is no restriction.
func (r *tinygradReader) read(value string, ranges bool) []*gpu.Device {
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
				r.add(codeProgramEnds, "%s is no number; tinygrad fails on it", quoted(entry))
				return nil
			}
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		return r.devices
	}
	return r.pick(numbers)
}

// pick follows Python's lists: a negative number counts from the end, so -1 is the last GPU and not "none".
func (r *tinygradReader) pick(numbers []int) []*gpu.Device {
	var chosen []*gpu.Device
	for _, n := range numbers {
		if n < 0 && -n <= len(r.devices) {
			r.add(codeOpen, "%d counts from the end: it is GPU %d, not none", n, len(r.devices)+n)
			n += len(r.devices)
		}
		if n < 0 || n >= len(r.devices) {
			r.add(codeProgramEnds, "there is no GPU %d; tinygrad fails on it", n)
			return nil
		}
		if slices.Contains(chosen, r.devices[n]) {
			r.add(codeDuplicate, "GPU %d is named twice: tinygrad numbers it twice, here it is shown once", n)
			continue
		}
		chosen = append(chosen, r.devices[n])
	}
	return chosen
}
