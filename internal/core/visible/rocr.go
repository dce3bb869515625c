package visible

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

const rocrVariable = "ROCR_VISIBLE_DEVICES"

// ROCR returns what the ROCm runtime below HIP and OpenCL sees: the AMD devices that ROCR_VISIBLE_DEVICES lists. Empty
// is none; an invalid entry or a repeated device ends the list and keeps what came before; an empty entry keeps the
// program from any GPU; entries are trimmed; numbers are those of strtol with base 0 (0x1 is 1, 010 is 8).
//
// Source: ROCm/ROCR-Runtime runtime/hsa-runtime/core/runtime/amd_filter_device.cpp; as observed with ROCr 5.2.3, 6.1.2,
// 6.4.3,
// 7.1.0 and 7.2.4 over invented GPUs.
func ROCR(env Env, m gpu.Machine) View {
	chosen, notes, _ := readROCR(env, m)
	return newView("rocr", wholeChoices(chosen), notes)
}

func readROCR(env Env, m gpu.Machine) (chosen []*gpu.Device, notes []Note, set bool) {
	devices := indexOrder(devicesOf(m, gpu.AMD))
	value, set := env.Lookup(rocrVariable)
	if !set {
		return devices, nil, false
	}

	r := rocrReader{noter: noter{variable{rocrVariable, value}, duplicateNotes(env, rocrVariable)}, devices: devices}

	return r.readList(), r.notes, true
}

type rocrReader struct {
	noter
	devices []*gpu.Device
}

func (r *rocrReader) readList() []*gpu.Device {
	if r.value == "" {
		r.addNote(codeEmpty, "no AMD GPU is visible")
		return nil
	}

	// The runtime reads pieces that end in a comma, so that nothing follows the last comma.
	tokens := strings.Split(strings.TrimSuffix(r.value, ","), ",")
	var chosen []*gpu.Device
	for i, entry := range tokens {
		if i == len(r.devices) {
			r.addNote(codeLimit, "only as many entries are read as there are AMD GPUs (%d)%s", len(r.devices), droppedEntries(tokens, i-1))
			break
		}

		if strings.Trim(entry, blanks) == "" {
			r.addNote(codeProgramEnds, "an empty entry ends the program when it starts ROCm, or leaves it without a GPU")
			return nil
		}

		d := r.readDevice(tokens, i)
		if d == nil {
			break
		}

		if slices.Contains(chosen, d) {
			r.addNote(codeDuplicate, "AMD GPU %d is named twice (entry %s), which ends the list%s", d.Index, quoteEntry(entry), droppedEntries(tokens, i))
			break
		}

		chosen = append(chosen, d)
	}

	return chosen
}

func (r *rocrReader) readDevice(tokens []string, i int) *gpu.Device {
	entry := strings.ToUpper(strings.Trim(tokens[i], blanks))
	if entry[0] == 'G' {
		return r.readIdentifier(tokens, i, entry)
	}

	n, ok := strtol(entry)
	switch {
	case ok:
	case strings.HasPrefix(strings.TrimLeft(entry, "+-"), "0B"):
		r.addNote(codeUndocumented, "%s ends the list%s where the runtime was built before glibc 2.38, and is read as a binary number where it was built later", quoteEntry(tokens[i]), droppedEntries(tokens, i))
		return nil
	case isRangeLike(entry):
		r.addNote(codeRange, "ranges are not understood: %s ends the list%s; write every number, separated by commas", quoteEntry(tokens[i]), droppedEntries(tokens, i))
		return nil
	default:
		r.addNote(codeNotNumber, "%s is no number and ends the list%s", quoteEntry(tokens[i]), droppedEntries(tokens, i))
		return nil
	}

	decimal, err := strconv.ParseInt(entry, 10, 64)
	exact, large := strconv.ParseInt(entry, 0, 64)
	switch {
	case large != nil, exact != int64(n):
		r.addNote(codeWrapped, "%s is cut to 32 bits and read as %d", quoteEntry(tokens[i]), n)
	case err == nil && decimal != exact:
		r.addNote(codeBase, "%s is read as %d: with 0 before it a number has base 8", quoteEntry(tokens[i]), n)
	}

	if n < 0 || int(n) >= len(r.devices) {
		if n != -1 || droppedEntries(tokens, i) != "" {
			r.addNote(codeIndex, "entry %s is no valid number (AMD GPUs here: %d) and ends the list%s", quoteEntry(tokens[i]), len(r.devices), droppedEntries(tokens, i))
		}
		return nil
	}

	return r.devices[n]
}

// readIdentifier accepts 5 to 20 characters that begin exactly one identifier.
func (r *rocrReader) readIdentifier(tokens []string, i int, entry string) *gpu.Device {
	var found []*gpu.Device
	for _, d := range r.devices {
		if strings.HasPrefix(strings.ToUpper(rocmIdentifier(d)), entry) {
			found = append(found, d)
		}
	}
	switch {
	case len(entry) < 5 || len(entry) > 20:
		r.addNote(codeUnknownUUID, "%s is no identifier (GPU- and up to 16 hexadecimal digits) and ends the list%s", quoteEntry(tokens[i]), droppedEntries(tokens, i))
	case len(found) == 0:
		r.addNote(codeUnknownUUID, "%s matches no AMD GPU and ends the list%s", quoteEntry(tokens[i]), droppedEntries(tokens, i))
	case len(found) > 1:
		r.addNote(codeAmbiguous, "%s is the beginning of several identifiers and ends the list%s", quoteEntry(tokens[i]), droppedEntries(tokens, i))
	default:
		return found[0]
	}

	return nil
}

// rocmIdentifier is a device's identifier as ROCm has it: partitions of one GPU share it, and here have a number behind
// it. It is "" for a device that has none.
func rocmIdentifier(d *gpu.Device) string {
	if id, _, _ := strings.Cut(string(d.UUID), "-p"); isROCmUUID(id) {
		return id
	}
	return ""
}

// strtol reads all of s as C's strtol does with base 0, then as a 32 bit int: saturated first, truncated after. ok is
// false when characters remain.
func strtol(s string) (n int32, ok bool) {
	digits := strings.TrimPrefix(strings.TrimPrefix(s, "+"), "-")
	if len(s)-len(digits) > 1 {
		return 0, false
	}

	base := 10
	switch {
	case len(digits) > 2 && (strings.HasPrefix(digits, "0x") || strings.HasPrefix(digits, "0X")):
		digits, base = digits[2:], 16
	case strings.HasPrefix(digits, "0"):
		base = 8
	}

	allowed := hexDigits[:min(base, 10)]
	if base == 16 {
		allowed = hexDigits
	}

	if digits == "" || strings.Trim(digits, allowed) != "" {
		return 0, false
	}

	// Only too large numbers fail, and they saturate.
	v, _ := strconv.ParseUint(digits, base, 64)
	negative := strings.HasPrefix(s, "-")
	switch {
	case negative && v > math.MaxInt64:
		// The lower half of the smallest 64 bit number.
		return 0, true
	case negative:
		return int32(-int64(v)), true
	case v > math.MaxInt64:
		// The lower half of the largest.
		return -1, true
	}

	return int32(v), true
}

// rocrMask is the first AMD mask; HIP's works within it.
func rocrMask(env Env, m gpu.Machine) mask {
	devices := indexOrder(devicesOf(m, gpu.AMD))
	chosen, notes, set := readROCR(env, m)
	value, _ := env.Lookup(rocrVariable)

	return mask{set: set && len(devices) > 0, because: variable{rocrVariable, value}.String(), among: devices, allowed: wholeChoices(chosen), notes: notes}
}
