package visible

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

// number is an entry read as strtoull(3) reads it in base 10, cut to 32 bits: blanks, a sign, digits, and the rest
// ignored.
type number struct {
	// There was at least one digit.
	ok    bool
	value int
	junk  string
	// It was cut, and says another number.
	wrapped bool
	sign    bool // a lone sign
}

const blanks = " \t\n\v\f\r"

func readNumber(s string) number {
	s = strings.TrimLeft(s, blanks)
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 {
		return number{}
	}

	end := 0
	for end < len(digits) && digits[end] >= '0' && digits[end] <= '9' {
		end++
	}

	n := number{ok: end > 0, junk: strings.TrimRight(digits[end:], blanks), sign: end == 0 && len(s) > len(digits)}

	// math.MaxUint64 where it does not fit, as strtoull.
	read, err := strconv.ParseUint(digits[:max(end, 0)], 10, 64)
	negative := strings.HasPrefix(s, "-") && !errors.Is(err, strconv.ErrRange)
	if negative {
		read = -read
	}

	n.value = int(int32(read)) //nolint:gosec // the driver cuts it
	n.wrapped = negative && int64(read) != int64(n.value) || !negative && read != uint64(int64(n.value)) || errors.Is(err, strconv.ErrRange)

	return n
}

// noteNotNumber notes why an entry of a number list is no number. Such an entry ends the list.
func (r *cudaReader) noteNotNumber(tokens []string, i int) {
	entry, dropped := strings.Trim(tokens[i], blanks), droppedEntries(tokens, i)
	switch n := readNumber(entry); {
	case entry == "" && dropped == "" && i > 0:
		// A comma at the end.
	case entry == "":
		r.addNote(codeNotNumber, "an empty entry ends the list%s", dropped)
	case n.sign:
		r.addNote(codeNotNumber, "entry %s is a sign without a number and ends the list%s", quoteEntry(entry), dropped)
	case isWord(entry):
		r.addNote(codeWord, "%s is no word of this variable (all, none and void belong to NVIDIA_VISIBLE_DEVICES, NoDevFiles was Slurm's) and ends the list%s", quoteEntry(entry), dropped)
	case strings.ContainsAny(entry, `"'`):
		r.addNote(codeQuotes, "%s", r.quotesText(i))
	case isIdentifier(entry):
		r.noteIdentifier(tokens, i)
	default:
		r.addNote(codeNotNumber, "%s is no number and ends the list%s%s", quoteEntry(entry), dropped, r.suggestionText(entry))
	}
}

// quotesText describes quotation marks in the value itself, and what to write instead.
func (r *cudaReader) quotesText(i int) string {
	text := fmt.Sprintf("the quotation marks are part of the value, and no number begins with one: the list ends at its entry %d", i+1)
	if bare := strings.NewReplacer(`"`, "", "'", "").Replace(r.value); strings.Trim(bare, ","+blanks) != "" {
		text += "; write " + variable{r.name, bare}.String()
	}
	return text
}

// suggestionText suggests the identifier that starts with the entry, when its prefix was left out or it was typed in
// capital letters.
func (r *cudaReader) suggestionText(entry string) string {
	digits := strings.ToLower(strings.Trim(entry, blanks))
	for _, prefix := range []string{"GPU-", "MIG-"} {
		whole := prefix + strings.TrimPrefix(digits, strings.ToLower(prefix))
		if len(whole) < len(prefix)+3 || whole == entry {
			continue
		}

		for _, c := range allChoices(r.devices) {
			if strings.HasPrefix(string(c.uuid()), whole) {
				return "; did you mean " + whole + "?"
			}
		}
	}
	return ""
}

func (r *cudaReader) noteIdentifier(tokens []string, i int) {
	switch {
	case i > 0:
		r.addNote(codeMixed, "entry %s is an identifier in a list that began with numbers and ends it%s", quoteEntry(tokens[i]), droppedEntries(tokens, i))
	case tokens[0] != strings.TrimLeft(tokens[0], blanks):
		r.addNote(codeUnknownUUID, "the blank before %s keeps it from being read as an identifier, which ends the list%s", quoteEntry(tokens[i]), droppedEntries(tokens, i))
	default:
		r.addNote(codeUnknownUUID, "%s is not read as an identifier (GPU- and MIG- are written in capitals) and ends the list%s%s", quoteEntry(tokens[i]), droppedEntries(tokens, i), r.suggestionText(tokens[i]))
	}
}

// noteJunk notes what was ignored after a number.
func (r *cudaReader) noteJunk(entry string, n number) {
	tail := strings.TrimLeft(n.junk, blanks)
	second := readNumber(strings.TrimLeft(tail, "-–.:;|/"+blanks))
	switch {
	case n.value == 0 && (strings.HasPrefix(tail, "x") || strings.HasPrefix(tail, "X")):
		r.addNote(codeJunk, "hexadecimal is not understood: %s is read as 0", quoteEntry(entry))
	case second.ok && (strings.HasPrefix(tail, "-") || strings.HasPrefix(tail, "–") || strings.HasPrefix(tail, "..") || strings.HasPrefix(tail, ":")):
		r.addNote(codeRange, "ranges are not understood: %s is read as %d alone; write every number, separated by commas", quoteEntry(entry), n.value)
	case second.ok && (len(tail) < len(n.junk) || strings.ContainsAny(tail[:1], ";|/")):
		r.addNote(codeSeparator, "only commas separate entries: %s is read as %d alone", quoteEntry(entry), n.value)
	default:
		r.addNote(codeJunk, "what follows the number in %s is ignored: it is read as %d", quoteEntry(entry), n.value)
	}
}

func isWord(s string) bool {
	switch strings.ToLower(s) {
	case "all", "none", "void", "nodevfiles":
		return true
	}
	return false
}

func isIdentifier(s string) bool {
	s = strings.ToUpper(s)
	return strings.HasPrefix(s, "GPU-") || strings.HasPrefix(s, "MIG-")
}

// readIdentifier reads an entry of a list that began with an identifier.
func (r *cudaReader) readIdentifier(tokens []string, i int) (choice, bool) {
	entry := tokens[i]
	ofSlice := strings.HasPrefix(entry, "MIG-") && r.rules >= since550
	if !strings.HasPrefix(entry, "GPU-") && !ofSlice {
		r.addNote(codeMixed, "entry %s ends the list, which began with %s… identifiers%s", quoteEntry(entry), r.value[:4], droppedEntries(tokens, i))
		return choice{}, false
	}

	digits, tail, readable := r.rules.readUUID(r.textOf(tokens, i)[4:])
	var found []choice
	if readable {
		found = wholeChoices(r.findByDigits(digits))
	}

	if ofSlice {
		if c, ok := r.findSlice(entry); ok {
			return c, true
		}
		found = slices.DeleteFunc(found, func(c choice) bool { return c.dev.UsesMIG() })
	}

	if len(found) == 1 {
		tail, _, _ = strings.Cut(tail, ",")
		if strings.Trim(tail, blanks) != "" {
			r.addNote(codeJunk, "what follows the identifier in %s is ignored", quoteEntry(entry))
		}
		if ofSlice {
			r.addNote(codeWholeGPU, "%s is no MIG device: it is read as the whole GPU with these digits", quoteEntry(entry))
		}

		return found[0], true
	}

	r.noteUnknown(tokens, i, len(found) > 1)

	return choice{}, false
}

// findSlice finds the MIG device of an identifier since 550: by all of it, or in the documented form with its GPU's
// identifier. How newer drivers read the beginning of one was not observed.
func (r *cudaReader) findSlice(entry string) (choice, bool) {
	parent, path, older := strings.Cut(strings.TrimPrefix(entry, "MIG-"), "/")
	var begins []choice
	for _, c := range r.listSlices() {
		if string(c.mig.UUID) == entry || older && strings.HasPrefix(parent, "GPU-") && strings.HasPrefix(string(c.dev.UUID), parent) && path == instancePath(c.mig) {
			return c, true
		}
		if strings.HasPrefix(string(c.mig.UUID), entry) {
			begins = append(begins, c)
		}
	}

	if len(begins) != 1 {
		return choice{}, false
	}

	r.addNote(codeUndocumented, "%s is only the beginning of a MIG identifier; drivers may want all of it", quoteEntry(entry))

	return begins[0], true
}

// noteUnknown notes an identifier that means no device, or several. It ends the list.
func (r *cudaReader) noteUnknown(tokens []string, i int, several bool) {
	code, what, hint := codeUnknownUUID, "matches no NVIDIA GPU", r.suggestionText(tokens[i])
	if strings.HasPrefix(tokens[i], "MIG-") {
		what = "matches no MIG device"
	}

	if full := r.fullIdentifier(tokens, i); full != "" {
		hint = "; driver 570 reads the beginning of an identifier only at the end of a list: write " + full
	}

	if several {
		code, what, hint = codeAmbiguous, "is the beginning of several identifiers", ""
	}

	r.addNote(code, "%s %s and ends the list%s%s", quoteEntry(tokens[i]), what, droppedEntries(tokens, i), hint)
}

// fullIdentifier is the whole identifier that driver 570 would have found by this entry at the end of the list.
func (r *cudaReader) fullIdentifier(tokens []string, i int) string {
	if r.rules != since570 || i == len(tokens)-1 || !isIdentifier(tokens[i]) {
		return ""
	}
	digits, _, ok := strictDigits(tokens[i][4:])
	if found := r.findByDigits(digits); ok && digits != "" && len(found) == 1 {
		return string(found[0].UUID)
	}

	return ""
}

// readOlderSlices reads a list that begins with MIG- as drivers before 550 do. One that names no MIG device does not
// empty the list: every GPU that is not split is visible.
func (r *cudaReader) readOlderSlices(tokens []string) []choice {
	if strings.HasPrefix(r.value, "MIG-GPU-") {
		return r.readOlderPath(tokens)
	}
	var chosen []choice
	for i, entry := range tokens {
		found := slices.DeleteFunc(r.listSlices(), func(c choice) bool { return string(c.mig.UUID) != entry })
		if len(found) == 0 && i == 0 {
			r.addNote(codeShowsAll, "%s names no MIG device of this machine, and drivers before 550 show every GPU that is not split then%s", quoteEntry(entry), r.suggestionText(entry))
			return wholeChoices(slices.DeleteFunc(slices.Clone(r.devices), (*gpu.Device).UsesMIG))
		}
		if len(found) == 0 {
			r.noteUnknown(tokens, i, false)
			return chosen
		}
		if !slices.Contains(chosen, found[0]) {
			// Only the first counts anyway.
			chosen = append(chosen, found[0])
		}
	}

	return chosen
}

// readOlderPath reads MIG-<GPU UUID>/<GPU instance>/<compute instance>, the form of drivers before R470, of which only
// the first counts, but for instances that stand behind a later one's slash. Of a GPU that is not split it means the
// whole, and without instances the first slice.
func (r *cudaReader) readOlderPath(tokens []string) []choice {
	parent, path, _ := strings.Cut(strings.TrimPrefix(r.value, "MIG-GPU-"), "/")
	digits, _, readable := r.rules.readUUID(parent)
	found := r.findByDigits(digits)
	if !readable || len(found) != 1 {
		r.noteUnknown(tokens, 0, readable && len(found) > 1)
		return nil
	}

	d := found[0]
	if dropped := droppedEntries(tokens, 0); dropped != "" {
		r.addNote(codeOneSlice, "after an identifier of this form nothing else is read%s", dropped)
	}

	if !d.UsesMIG() {
		r.addNote(codeWholeGPU, "GPU %d is not split: %s is read as the whole GPU", d.Index, quoteEntry(tokens[0]))
		return []choice{{dev: d}}
	}

	instance, part, _ := strings.Cut(path, "/")
	gi, ci := readNumber(instance), readNumber(part)
	for _, s := range inIndexOrder(d) {
		if !gi.ok || s.GPUInstance == gi.value && (!ci.ok || s.ComputeInstance == ci.value) {
			return []choice{{d, s}}
		}
	}

	r.noteUnknown(tokens, 0, false)

	return nil
}

// findByDigits finds the whole devices whose identifiers begin so.
func (r *cudaReader) findByDigits(digits string) (found []*gpu.Device) {
	for _, d := range r.devices {
		if strings.HasPrefix(plainDigits(d.UUID), digits) {
			found = append(found, d)
		}
	}
	return found
}

// listSlices lists all MIG devices.
func (r *cudaReader) listSlices() []choice {
	return slices.DeleteFunc(allChoices(r.devices), func(c choice) bool { return c.mig == nil })
}

// uuidSize is how many hexadecimal digits an identifier has.
const uuidSize = 32

// textOf is what the driver reads an entry from: 570 reads on behind its comma.
func (r *cudaReader) textOf(tokens []string, i int) string {
	if r.rules == since570 {
		return strings.Join(tokens[i:], ",")
	}
	return tokens[i]
}

// readUUID reads the hexadecimal digits of what follows "GPU-" or "MIG-"; the tail is what the driver does not look at.
// It is not readable where the driver finds no device by it, whatever the machine has.
func (c cudaRules) readUUID(s string) (digits, tail string, readable bool) {
	if c < since570 {
		digits, tail = uuidDigits(s)
		return digits, tail, digits != ""
	}
	digits, tail, readable = strictDigits(s)
	return digits, tail, readable && s != ""
}

// uuidDigits reads as drivers before 570 do, which call sscanf("%1x") at each place: 32 digits at most, in small or
// capital letters, a hyphen allowed after each. Blanks are skipped to the next digit, but the place moves by one, so
// that " d" is read as "dd".
func uuidDigits(s string) (digits, tail string) {
	var read []byte
	for len(read) < uuidSize {
		next := strings.TrimLeft(s, blanks)
		if next == "" || !strings.Contains(hexDigits, next[:1]) {
			break
		}
		read = append(read, next[0])
		s = strings.TrimPrefix(s[1:], "-")
	}
	return strings.ToLower(string(read)), s
}

// strictDigits reads as drivers since 570 do: 32 digits, at most those of the first 36 characters, with hyphens
// anywhere and nothing else between them.
func strictDigits(s string) (digits, tail string, ok bool) {
	// Of an identifier with its hyphens.
	const room = 36
	var read []byte
	for i := range min(len(s), room) {
		switch {
		case len(read) == uuidSize:
			return strings.ToLower(string(read)), s[i:], true
		case s[i] == '-':
		case strings.IndexByte(hexDigits, s[i]) < 0:
			return "", s[i:], false
		default:
			read = append(read, s[i])
		}
	}

	return strings.ToLower(string(read)), s[min(len(s), room):], true
}

// plainDigits are the hexadecimal digits of a whole device's identifier.
func plainDigits(id gpu.UUID) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(string(id), "GPU-"), "-", ""))
}
