package visible

import (
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

// SYCL returns what a SYCL program sees through ONEAPI_DEVICE_SELECTOR, within the devices that the vendors' own
// variables allow: Intel devices by Level Zero, NVIDIA devices by CUDA, AMD devices by HIP, in this order. Whether a
// program was built for all three is not known here. Devices of the OpenCL backend are the same hardware and are not
// counted again. SYCL_DEVICE_FILTER, the older variable, is not read any more.
//
// Source: intel/llvm sycl/doc/EnvironmentVariables.md.
func SYCL(env Env, m gpu.Machine) View {
	const name = "ONEAPI_DEVICE_SELECTOR"
	backends := syclBackends(env, m)
	var notes []Note
	for _, b := range backends {
		notes = append(notes, b.notes...)
	}

	value, set := env.Lookup(name)
	r := selectorReader{noter: noter{variable{name, value}, duplicateNotes(env, name)}}
	if old, also := env.Lookup("SYCL_DEVICE_FILTER"); also {
		notes = append(notes, variable{"SYCL_DEVICE_FILTER", old}.newNote(codeOtherName, "%s has replaced it; only older runtimes read it; write %s=backend:devices instead", name, name))
	}

	keep := func(string, int) bool { return true }
	switch {
	case set && strings.TrimSpace(value) == "":
		r.addNote(codeNoMask, "an empty selector restricts nothing")
		r.addNote(codeUndocumented, "what an empty selector means is not documented")
	case set:
		keep = r.parseTerms()
	}

	var chosen []choice
	for _, b := range backends {
		for i, c := range b.devices {
			if keep(b.name, i) {
				chosen = append(chosen, c)
			}
		}
	}

	return newView("sycl", chosen, append(notes, r.notes...))
}

type syclBackend struct {
	name    string
	devices []choice
	notes   []Note
}

func syclBackends(env Env, m gpu.Machine) []syclBackend {
	intel, intelNotes := readLevelZero(env, m)
	cuda := readCUDA(env, m)
	slices, sliceNotes := oneSlice(cuda)
	out := []syclBackend{{"level_zero", wholeChoices(intel), intelNotes}, {"cuda", slices, append(cuda.notes, sliceNotes...)}}
	if len(devicesOf(m, gpu.AMD)) > 0 {
		hip := readHIP(env, m)
		out = append(out, syclBackend{"hip", wholeChoices(hip.chosen), append(hip.below, hip.notes...)})
	}

	return out
}

// selectorReader parses backend:devices terms separated by semicolons. Terms that begin with ! remove devices and come
// last.
type selectorReader struct{ noter }

type selectorTerm struct {
	discard bool
	backend string // "*" for all
	// "*", "gpu", or numbers; words for other kinds of device choose no GPU.
	devices []string
}

func (s selectorTerm) matchesDevice(backend string, index int) bool {
	if s.backend != "*" && s.backend != backend {
		return false
	}
	return slices.ContainsFunc(s.devices, func(d string) bool {
		card, _, tile := strings.Cut(d, ".")
		if tile && s.discard {
			// The card may have more tiles; parse adds a note.
			return false
		}
		return card == "*" || card == "gpu" || card == strconv.Itoa(index)
	})
}

// parseTerms returns the decision for the device of a backend with this number.
func (s *selectorReader) parseTerms() func(backend string, index int) bool {
	var terms []selectorTerm
	for _, text := range strings.Split(strings.TrimSuffix(strings.ToLower(s.value), ";"), ";") {
		t, problem := parseTerm(strings.TrimSpace(text))
		if problem == "" && !t.discard && len(terms) > 0 && terms[len(terms)-1].discard {
			problem = "comes after a term with !, which must be last"
		}

		if problem != "" {
			s.addNote(codeSelector, "the term %s %s, so the program fails", quoteEntry(text), problem)
			return func(string, int) bool { return false }
		}

		if t.discard && strings.Contains(text, ".") {
			s.addNote(codeUndocumented, "the term %s takes away tiles; how many a card has is not known here, so it is shown", quoteEntry(text))
		}

		terms = append(terms, t)
	}
	return func(backend string, index int) bool {
		matches := func(t selectorTerm) bool { return t.matchesDevice(backend, index) }

		// If all terms begin with !, they remove from all devices.
		accepted := terms[0].discard
		for _, t := range terms {
			if t.discard && matches(t) {
				return false
			}
			accepted = accepted || !t.discard && matches(t)
		}

		return accepted
	}
}

func parseTerm(text string) (t selectorTerm, problem string) {
	text, t.discard = strings.CutPrefix(text, "!")
	fields := strings.Split(text, ":")
	switch {
	case len(fields) > 2:
		return t, "has too many colons"
	case len(fields) < 2 || fields[1] == "":
		return t, "is not of the form backend:devices"
	case !slices.Contains([]string{"*", "level_zero", "opencl", "cuda", "hip", "native_cpu"}, fields[0]):
		return t, "names a backend that does not exist"
	}

	t.backend, t.devices = fields[0], strings.Split(fields[1], ",")

	for _, d := range t.devices {
		if !selectsDevice(d) {
			return t, "names no kind of device and no number"
		}
	}

	return t, ""
}

func selectsDevice(s string) bool {
	if slices.Contains([]string{"cpu", "gpu", "fpga", "acc"}, s) {
		return true
	}
	parts := strings.Split(s, ".")
	return len(parts) <= 3 && !slices.ContainsFunc(parts, func(p string) bool {
		_, err := strconv.ParseUint(p, 10, 16)
		return err != nil && p != "*"
	})
}
