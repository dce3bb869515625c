package visible

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

const cudaVariable = "CUDA_VISIBLE_DEVICES"

// tooLongOrderSize is the size in bytes from which the driver takes CUDA_DEVICE_ORDER for unset.
const tooLongOrderSize = 1024

// CUDA returns what a program that uses the CUDA driver sees: the NVIDIA devices that CUDA_VISIBLE_DEVICES lists,
// numbered in the order of the list, or all of them in CUDA's own order. Where it is not known how the machine's driver
// reads, it is read as the newest drivers do, with a note if others show something else.
//
// Sources: "CUDA environment variables" in NVIDIA's CUDA Programming Guide; NVIDIA's MIG User Guide; what libcuda
// 470.256,
// 525.147, 535.261, 545.29, 550.163, 555.58, 570.133, 570.195, 580.178 and 595.99 were observed to do over invented GPUs, and 580.159
// on an H200 (testdata, docs/explanation/what-your-program-sees.md).
func CUDA(env Env, m gpu.Machine) View {
	rules, others := driverRules(m.Driver)
	v := cudaView(env, m, rules)
	var differ []string
	for _, o := range others {
		if other := cudaView(env, m, o); !slices.Equal(other.Visible, v.Visible) {
			differ = append(differ, fmt.Sprintf("%s shows %s", o, other.describeVisible()))
		}
	}

	if len(differ) > 0 {
		value, _ := env.Lookup(cudaVariable)
		v.Notes = append(v.Notes, variable{cudaVariable, value}.newNote(codeOlderDriver, "drivers differ here, and how this machine's reads it is not known: %s", strings.Join(differ, ", ")))
	}

	return v
}

// describeVisible says what is visible, in a few words.
func (v View) describeVisible() string {
	switch len(v.Visible) {
	case 0:
		return "no GPU"
	case 1:
		return string(v.Visible[0].UUID)
	}
	return fmt.Sprintf("%d GPUs", len(v.Visible))
}

func cudaView(env Env, m gpu.Machine, rules cudaRules) View {
	list := readCUDABy(env, m, rules)
	chosen, notes := oneSlice(list)
	notes = append(append(list.notes, mpsNotes(env, list)...), notes...)
	for _, c := range chosen {
		if c.dev.Problem != "" {
			notes = append(notes, Note{codeProblem, fmt.Sprintf("GPU %d (%s) cannot be used at present: %s; the driver may fail for all devices or leave it out", c.dev.Index, c.dev.Name, truncateText(c.dev.Problem))})
		}
	}

	return newView("cuda", chosen, notes)
}

// cudaRules are which of NVIDIA's ways to read a list a driver follows, the oldest first. They differ in how long a
// value may be, in what begins with MIG-, and in what may stand in an identifier.
type cudaRules int

const (
	// 470, 525 and 535 were observed to answer alike.
	before545 cudaRules = iota
	since545            // 545
	since550            // 550 and 555
	since570            // 570
	since580            // 580 and 595
)

// String names the drivers.
func (c cudaRules) String() string {
	return [...]string{"a driver before 545", "driver 545", "driver 550", "driver 570", "driver 580"}[c]
}

// tooLongSize is the size in bytes from which the driver takes CUDA_VISIBLE_DEVICES for unset.
func (c cudaRules) tooLongSize() int {
	if c == before545 {
		return 1024
	}

	// Room for 64 identifiers of 40 letters.
	return 2625
}

// maxSliceListSize is how many bytes of a value that begins with MIG- are read alike by all drivers since 545: libcuda
// 545.29 and 555.58 write beyond their room for 64 identifiers.
const maxSliceListSize = 1024

// driverRules are the rules of a driver of this version, and those that it may follow instead where none of its age was
// observed.
func driverRules(version string) (rules cudaRules, others []cudaRules) {
	major, _, _ := strings.Cut(version, ".")
	switch n, err := strconv.Atoi(major); {
	case err != nil || n < 100:
		// Absent, or another vendor's.
		return since580, []cudaRules{before545, since545, since550, since570}
	case n <= 535:
		return before545, nil
	case n < 545:
		return before545, []cudaRules{since545}
	case n < 550:
		return since545, nil
	case n <= 555:
		return since550, nil
	case n < 570:
		return since550, []cudaRules{since570}
	case n == 570:
		return since570, nil
	case n < 580:
		return since570, []cudaRules{since580}
	}
	return since580, nil
}

// cudaList is what CUDA_VISIBLE_DEVICES selects, before the rule that a process sees one MIG device.
type cudaList struct {
	variable variable
	// The driver reads it.
	set bool
	// A number of the variable chose a device.
	byNumber bool
	chosen   []choice
	notes    []Note
}

func readCUDA(env Env, m gpu.Machine) cudaList {
	rules, _ := driverRules(m.Driver)
	return readCUDABy(env, m, rules)
}

func readCUDABy(env Env, m gpu.Machine, rules cudaRules) cudaList {
	value, set := env.Lookup(cudaVariable)
	l := cudaList{variable: variable{cudaVariable, value}, set: set && len(value) < rules.tooLongSize()}
	l.notes = duplicateNotes(env, cudaVariable)
	if set && !l.set {
		l.notes = append(l.notes, l.variable.newNote(codeTooLong, "it has %d bytes, and the driver takes a value of %d bytes and more for unset: every GPU is visible", len(value), rules.tooLongSize()))
	}

	devices, guessed, fails, notes := cudaOrder(env, m)
	l.notes = append(l.notes, notes...)
	if fails {
		l.set = true
		return l
	}

	numbers := true
	if l.set {
		r := cudaReader{noter: noter{variable: l.variable}, devices: devices, rules: rules}
		l.chosen = r.readList()
		l.notes = append(l.notes, r.notes...)
		numbers, l.byNumber = r.byNumber, r.byNumber
	} else {
		l.chosen = wholeChoices(devices)
	}

	if why := vagueNumbers(devices); l.byNumber && why != "" {
		l.notes = append(l.notes, Note{codeUndocumented, why + "; identifiers are certain"})
	}

	if guessed && numbers && len(l.chosen) > 0 {
		l.notes = append(l.notes, Note{codeFastest, "this machine has different GPU models and CUDA_DEVICE_ORDER is not PCI_BUS_ID: CUDA numbers the fastest first, " +
			"by a heuristic that is not documented; which number is which GPU is a guess here (CUDA_DEVICE_ORDER=PCI_BUS_ID makes it certain)"})
	}

	return l
}

// vagueNumbers says why it is not known which number is which device; "" where it is.
func vagueNumbers(devices []*gpu.Device) string {
	split, whole := 0, 0
	for _, d := range devices {
		switch {
		case !d.UsesMIG():
			whole++
		case len(d.MIG) == 0:
			return "a GPU here is in MIG mode without MIG devices, and whether CUDA counts it is not documented"
		default:
			split++
		}
	}
	if split > 0 && whole > 0 {
		return "this machine has split and whole GPUs, and how CUDA numbers them together is not documented (libcuda 535 was seen to count the whole ones first)"
	}

	return ""
}

// duplicateNotes notes a variable that is in the environment with two different values.
func duplicateNotes(env Env, name string) []Note {
	first, set := env.Lookup(name)
	for _, pair := range env {
		if k, v, ok := strings.Cut(pair, "="); set && ok && k == name && v != first {
			return []Note{variable{name, first}.newNote(codeTwice, "the environment also has %s; the first is read, but a shell may pass on either", variable{name, v})}
		}
	}
	return nil
}

// cudaReader reads one value from left to right: the first invalid entry ends the list and keeps what came before; a
// device named twice empties it.
type cudaReader struct {
	noter
	devices []*gpu.Device // in CUDA order
	rules   cudaRules
	// A number chose a device.
	byNumber bool
}

func (r *cudaReader) readList() []choice {
	if strings.TrimSpace(r.value) == "" {
		r.addNote(codeEmpty, "no GPU is visible; write %s=-1 to say so clearly", r.name)
		return nil
	}

	tokens := strings.Split(r.value, ",")
	entry := r.readNumberEntry
	switch {
	case strings.HasPrefix(r.value, "MIG-") && r.rules >= since545 && len(r.value) > maxSliceListSize:
		r.addNote(codeUndocumented, "it begins with MIG- and has %d bytes; from %d on, libcuda 550 shows nothing, and 545 and 555 read it or end the program", len(r.value), maxSliceListSize+1)
		return nil
	case strings.HasPrefix(r.value, "GPU-"), strings.HasPrefix(r.value, "MIG-") && r.rules >= since550:
		entry = r.readIdentifier
	case strings.HasPrefix(r.value, "MIG-"):
		return r.readOlderSlices(tokens)
	}

	var chosen []choice
	for i := range tokens {
		c, ok := entry(tokens, i)
		if !ok {
			return chosen
		}
		if slices.ContainsFunc(chosen, func(o choice) bool { return o.uuid() == c.uuid() }) {
			r.addNote(codeDuplicate, "GPU %d is named twice (entry %s), which empties the whole list", c.dev.Index, quoteEntry(tokens[i]))
			return nil
		}
		chosen = append(chosen, c)
	}

	return chosen
}

// readNumberEntry reads an entry of a list that began with a number.
func (r *cudaReader) readNumberEntry(tokens []string, i int) (choice, bool) {
	n := readNumber(tokens[i])
	switch {
	case !n.ok:
		r.noteNotNumber(tokens, i)
		return choice{}, false
	case n.value < 0 || n.value >= len(r.devices):
		r.noteNoSuchIndex(tokens, i, n)
		return choice{}, false
	}

	if n.wrapped {
		r.addNote(codeWrapped, "entry %s is cut to 32 bits and read as %d", quoteEntry(tokens[i]), n.value)
	}

	if n.junk != "" {
		r.noteJunk(tokens[i], n)
	}

	r.byNumber = true

	return choice{dev: r.devices[n.value]}, true
}

func (r *cudaReader) noteNoSuchIndex(tokens []string, i int, n number) {
	if n.value < 0 && !n.wrapped && droppedEntries(tokens, i) == "" {
		// -1 at the end is a common way to write "no more".
		return
	}

	has := "this machine has no NVIDIA GPU"
	if len(r.devices) > 0 {
		has = fmt.Sprintf("GPUs here are numbered 0 to %d", len(r.devices)-1)
	}

	what := "no valid number"
	if n.wrapped {
		what = "too large"
	}

	r.addNote(codeIndex, "entry %s is %s (%s) and ends the list%s%s", quoteEntry(tokens[i]), what, has, droppedEntries(tokens, i), r.suggestionText(tokens[i]))
}
