package visible

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

const cudaVariable = "CUDA_VISIBLE_DEVICES"

// CUDA returns what a program that uses the CUDA driver sees: the NVIDIA devices that CUDA_VISIBLE_DEVICES lists,
// numbered in the order of the list, or all of them in CUDA's own order.
//
// Sources: "CUDA environment variables" in NVIDIA's CUDA Programming Guide; NVIDIA's MIG User Guide; the cases in
// pytorch/pytorch test/test_cuda_nvml_based_avail.py, written to match driver 525. Where these say nothing the
// choice of pytorch/pytorch torch/cuda/__init__.py is followed and a note with code "undocumented" says so.
func CUDA(env Env, m gpu.Machine) View {
	list := readCUDA(env, m)
	chosen, notes := oneSlice(list)
	notes = append(append(list.notes, mps(env, list)...), notes...)
	for _, c := range chosen {
		if c.dev.Problem != "" {
			notes = append(notes, Note{codeProblem, fmt.Sprintf("GPU %d (%s) cannot be used at present: %s; the driver may fail for all devices or leave it out", c.dev.Index, c.dev.Name, cut(c.dev.Problem))})
		}
	}
	return view("cuda", chosen, notes)
}

// cudaList is what CUDA_VISIBLE_DEVICES selects, before the rule that a process sees one MIG device.
type cudaList struct {
	variable variable
	set      bool
	byNumber bool // a number of the variable chose a device
	chosen   []choice
	notes    []Note
}

func readCUDA(env Env, m gpu.Machine) cudaList {
	value, set := env.Lookup(cudaVariable)
	l := cudaList{variable: variable{cudaVariable, value}, set: set}
	l.notes = twice(env, cudaVariable)
	devices, guessed, notes := cudaOrder(env, m)
	l.notes = append(l.notes, notes...)
	numbers := true
	if set {
		r := cudaReader{noter: noter{variable: l.variable}, devices: devices}
		l.chosen = r.apply()
		l.notes = append(l.notes, r.notes...)
		numbers, l.byNumber = r.byNumber, r.byNumber
	} else {
		l.chosen = whole(devices)
	}
	if guessed && numbers && len(l.chosen) > 0 {
		l.notes = append(l.notes, Note{codeFastest, "this machine has different GPU models and CUDA_DEVICE_ORDER is not PCI_BUS_ID: CUDA numbers the fastest first, " +
			"by a heuristic that is not documented; which number is which GPU is a guess here (CUDA_DEVICE_ORDER=PCI_BUS_ID makes it certain)"})
	}
	return l
}

// twice notes a variable that is in the environment with two different values.
func twice(env Env, name string) []Note {
	first, set := env.Lookup(name)
	for _, pair := range env {
		if k, v, ok := strings.Cut(pair, "="); set && ok && k == name && v != first {
			return []Note{variable{name, first}.note(codeTwice, "the environment also has %s; the first is read, but a shell may pass on either", variable{name, v})}
		}
	}
	return nil
}

// cudaReader reads one value from left to right: the first invalid entry ends the list and keeps what came before; a
// device named twice empties it.
type cudaReader struct {
	noter
	devices  []*gpu.Device // in CUDA order
	byNumber bool          // a number chose a device
}

func (r *cudaReader) apply() []choice {
	if strings.TrimSpace(r.value) == "" {
		r.add(codeEmpty, "no GPU is visible; write %s=-1 to say so clearly", r.name)
		return nil
	}
	tokens := strings.Split(r.value, ",")
	entry := r.number
	for _, prefix := range []string{"GPU-", "MIG-"} {
		// Not trimmed: the effect of a space before an identifier is not documented.
		if strings.HasPrefix(r.value, prefix) {
			entry = func(tokens []string, i int) (choice, bool) { return r.identifier(tokens, i, prefix) }
		}
	}
	var chosen []choice
	for i := range tokens {
		c, ok := entry(tokens, i)
		if !ok {
			r.hiddenDuplicate(tokens, i)
			return chosen
		}
		if slices.ContainsFunc(chosen, func(o choice) bool { return o.uuid() == c.uuid() }) {
			r.add(codeDuplicate, "GPU %d is named twice (entry %s), which empties the whole list", c.dev.Index, quoted(tokens[i]))
			if c.mig != nil {
				r.add(codeUndocumented, "a MIG device named twice: drivers may differ")
			}
			return nil
		}
		chosen = append(chosen, c)
	}
	return chosen
}

// hiddenDuplicate notes a repeated entry at or after the one that ended the list: whether the driver checks for
// duplicates before invalid entries is not documented.
func (r *cudaReader) hiddenDuplicate(tokens []string, stopped int) {
	seen := map[string]bool{}
	for i, t := range tokens {
		key := t
		if n := readNumber(t); n.ok && n.value >= 0 {
			key = strconv.Itoa(n.value)
		} else if !isIdentifier(t) {
			return
		}
		if seen[key] && stopped > 0 && i >= stopped {
			r.add(codeUndocumented, "%s is also named twice; drivers that check for duplicates first see no GPU at all", quoted(key))
			return
		}
		seen[key] = true
	}
}

// number reads an entry of a list that began with a number.
func (r *cudaReader) number(tokens []string, i int) (choice, bool) {
	n := readNumber(tokens[i])
	switch {
	case !n.ok:
		r.notNumber(tokens, i)
		return choice{}, false
	case n.value < 0 || n.value >= len(r.devices):
		r.noSuchIndex(tokens, i, n)
		return choice{}, false
	}
	if n.junk != "" {
		r.junk(tokens[i], n)
	} else if n.octal {
		r.add(codeUndocumented, "entry %s has a leading zero and is read as %d; drivers that read it as octal differ", quoted(tokens[i]), n.value)
	}
	r.byNumber = true
	return choice{dev: r.devices[n.value]}, true
}

func (r *cudaReader) noSuchIndex(tokens []string, i int, n number) {
	switch {
	case n.overflow:
		r.add(codeUndocumented, "entry %s is too large; drivers that keep only a part of it read another number", quoted(tokens[i]))
	case n.octal:
		r.add(codeUndocumented, "entry %s is not a plain decimal number; drivers may differ in reading it", quoted(tokens[i]))
	}
	if n.value < 0 && rest(tokens, i) == "" {
		return // -1 at the end is a common way to write "no more"
	}
	has := "this machine has no NVIDIA GPU"
	if len(r.devices) > 0 {
		has = fmt.Sprintf("GPUs here are numbered 0 to %d", len(r.devices)-1)
	}
	what := "no valid number"
	if n.overflow {
		what = "too large"
	}
	r.add(codeIndex, "entry %s is %s (%s) and ends the list%s%s", quoted(tokens[i]), what, has, rest(tokens, i), r.suggestion(tokens[i]))
}
