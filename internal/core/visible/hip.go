package visible

import (
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

// HIP returns what a HIP program on AMD devices sees: HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES when that is not
// set, counted within what ROCR_VISIBLE_DEVICES leaves. Empty is none; an invalid entry ends the list; a repeated
// device is skipped; numbers must be written plainly (no blank, sign, leading zero or tail). Quotation marks around the
// whole value are taken off, and with nothing between them the variable counts as not set.
//
// Source: ROCm/clr rocclr/device/rocm/rocdevice.cpp and rocclr/utils/flags.cpp; as observed with HIP 5.2.3, 5.7.1,
// 6.4.3, 7.1.0 and 7.2.4 over invented GPUs. Where the first two differ, a note says so.
func HIP(env Env, m gpu.Machine) View {
	l := readHIP(env, m)
	notes := append(append(l.below, hipWinsNotes(env, m)...), l.notes...)
	return newView("hip", wholeChoices(l.chosen), append(notes, torchCount(env, m, len(l.chosen))...))
}

// torchCount notes where PyTorch reads the variables differently from the runtime: it counts the fields of
// ROCR_VISIBLE_DEVICES, an empty value as one, then ignores all other variables, and refuses a longer
// HIP_VISIBLE_DEVICES (pytorch/pytorch torch/cuda/__init__.py, _parse_visible_devices).
func torchCount(env Env, m gpu.Machine, visible int) []Note {
	rocr, set := env.Lookup(rocrVariable)
	if !set || len(devicesOf(m, gpu.AMD)) == 0 {
		return nil
	}

	fields := strings.Count(rocr, ",") + 1
	hip, also := env.Lookup("HIP_VISIBLE_DEVICES")
	switch {
	case also && strings.Count(hip, ",")+1 > fields:
		return []Note{variable{"HIP_VISIBLE_DEVICES", hip}.newNote(codeTorch, "PyTorch fails with a RuntimeError, because this list is longer than %s", variable{rocrVariable, rocr})}
	case !also && fields != visible:
		return []Note{variable{rocrVariable, rocr}.newNote(codeTorch, "before it starts the runtime, PyTorch counts %d by the commas of this list; the runtime shows %d", fields, visible)}
	}

	return nil
}

// OpenCL returns what an OpenCL program sees through AMD's runtime: GPU_DEVICE_ORDINAL, read by the rules of HIP and
// counted within what ROCR_VISIBLE_DEVICES leaves. AMD's documents say that HIP reads it too; the source does not.
//
// Source: ROCm/clr rocclr/device/rocm/rocdevice.cpp.
func OpenCL(env Env, m gpu.Machine) View {
	l := readWithinROCR(env, m, "GPU_DEVICE_ORDINAL")
	return newView("opencl", wholeChoices(l.chosen), append(l.below, l.notes...))
}

// hipList is a list read within ROCR's.
type hipList struct {
	variable
	set    bool
	within []*gpu.Device
	chosen []*gpu.Device
	below  []Note // of ROCR's list
	notes  []Note
}

func readHIP(env Env, m gpu.Machine) hipList {
	if hipReads(env, "HIP_VISIBLE_DEVICES") || !env.hasAny(cudaVariable) {
		return readWithinROCR(env, m, "HIP_VISIBLE_DEVICES")
	}
	l := readWithinROCR(env, m, cudaVariable)
	if len(devicesOf(m, gpu.NVIDIA)) > 0 && len(devicesOf(m, gpu.AMD)) > 0 {
		l.notes = append([]Note{l.newNote(codeHIPCUDA, "HIP programs obey it too, because HIP_VISIBLE_DEVICES is not set")}, l.notes...)
	}

	return l
}

func readWithinROCR(env Env, m gpu.Machine, name string) hipList {
	var l hipList
	var filtered bool
	l.within, l.below, filtered = readROCR(env, m)
	l.chosen = l.within
	l.name = name
	l.value, l.set = env.Lookup(name)
	if !l.set {
		return l
	}

	r := hipReader{noter{l.variable, duplicateNotes(env, name)}, Unquote(l.value), l.within}
	l.set = hipReads(env, name)
	if !l.set {
		r.addNote(codeNoMask, "quotation marks with nothing between them count as not set")
		l.notes = r.notes
		return l
	}

	l.chosen = r.readList()
	if filtered && len(l.chosen) > 0 && !slices.Equal(l.chosen, l.within[:len(l.chosen)]) {
		r.addNote(codeFiltered, "its numbers count within the list of %s, not within the machine", rocrVariable)
	}

	l.notes = r.notes

	return l
}

// hipReads reports whether the runtime takes the variable for set.
func hipReads(env Env, name string) bool {
	value, set := env.Lookup(name)
	return set && (value == "" || Unquote(value) != "")
}

// Unquote takes off the quotation marks around a whole value, as docker's --env-file passes them on.
func Unquote(value string) string {
	text := strings.Trim(value, " ")
	if len(text) < 2 || !strings.HasPrefix(text, `"`) || !strings.HasSuffix(text, `"`) {
		return value
	}
	return text[1 : len(text)-1]
}

type hipReader struct {
	noter
	// The value without quotation marks around it.
	list    string
	devices []*gpu.Device
}

func (h *hipReader) readList() []*gpu.Device {
	if h.list == "" {
		h.addNote(codeEmpty, "no AMD GPU is visible")
		h.addNote(codeOlderROCm, "HIP 5.2 takes an empty value for not set; -1 shows no GPU with every version")
		return nil
	}

	tokens := strings.Split(strings.TrimSuffix(h.list, ","), ",")
	var chosen []*gpu.Device
	byIdentifier := false
	for i, entry := range tokens {
		n := h.entryIndex(entry)
		if n < 0 || n >= len(h.devices) {
			if entry != "-1" || droppedEntries(tokens, i) != "" {
				h.noteInvalid(tokens, i)
			}
			break
		}
		byIdentifier = byIdentifier || strings.Contains(entry, "GPU-")
		if d := h.devices[n]; slices.Contains(chosen, d) {
			h.addNote(codeDuplicate, "AMD GPU %d is named twice; entry %s is skipped", d.Index, quoteEntry(entry))
		} else {
			chosen = append(chosen, d)
		}
	}

	if byIdentifier {
		h.addNote(codeOlderROCm, "HIP 5.7 and older know no identifiers, and the list ends at the first one")
	}

	return chosen
}

// entryIndex reads one entry; -1 is no device. An identifier matches the first device that contains it anywhere.
func (h *hipReader) entryIndex(entry string) int {
	if strings.Contains(entry, "GPU-") {
		return slices.IndexFunc(h.devices, func(d *gpu.Device) bool {
			return strings.Contains(hipIdentifier(d), entry)
		})
	}
	n, err := strconv.Atoi(entry)
	if err != nil || strconv.Itoa(n) != entry {
		return -1
	}

	return n
}

// hipIdentifier is the identifier as the runtime writes it: lower case, GPU-XX where the device has none.
func hipIdentifier(d *gpu.Device) string {
	id := rocmIdentifier(d)
	if id == "" {
		return "GPU-XX"
	}
	return "GPU-" + strings.ToLower(strings.TrimPrefix(id, "GPU-"))
}

func (h *hipReader) noteInvalid(tokens []string, i int) {
	entry, dropped := tokens[i], droppedEntries(tokens, i)
	n := readNumber(entry)
	lower := strings.ReplaceAll(strings.ToLower(entry), "gpu-", "GPU-")
	switch {
	case strings.Contains(entry, "GPU-") && entry != lower && h.entryIndex(lower) >= 0:
		h.addNote(codeUnknownUUID, "%s matches no AMD GPU, because HIP minds capitals, and ends the list%s; write %s", quoteEntry(entry), dropped, quoteEntry(lower))
	case strings.Contains(entry, "GPU-"):
		h.addNote(codeUnknownUUID, "%s matches no AMD GPU and ends the list%s", quoteEntry(entry), dropped)
	case isRangeLike(entry):
		h.addNote(codeRange, "ranges are not understood: %s ends the list%s; write every number, separated by commas", quoteEntry(entry), dropped)
	case n.ok && isPlainNumber(entry) && len(entry) > 9:
		h.addNote(codeIndex, "%s is too large for a number and ends the list%s", quoteEntry(entry), dropped)
	case n.ok && strconv.Itoa(n.value) != entry && n.value >= 0:
		h.addNote(codeNotNumber, "%s is not written plainly (no blank, sign, leading zero or tail) and ends the list%s", quoteEntry(entry), dropped)
	case n.ok:
		h.addNote(codeIndex, "entry %s is no valid number (AMD GPUs to choose from: %d) and ends the list%s", quoteEntry(entry), len(h.devices), dropped)
	default:
		h.addNote(codeNotNumber, "%s is no number and ends the list%s", quoteEntry(entry), dropped)
	}
}

func isPlainNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// isRangeLike is two numbers with a hyphen between them.
func isRangeLike(entry string) bool {
	first, last, found := strings.Cut(entry, "-")
	return found && isPlainNumber(first) && isPlainNumber(last)
}

// hipMask is the second AMD mask.
func hipMask(env Env, m gpu.Machine) mask {
	l := readHIP(env, m)
	return mask{set: l.set && len(devicesOf(m, gpu.AMD)) > 0, because: l.String(), among: l.within, allowed: wholeChoices(l.chosen), notes: l.notes}
}
