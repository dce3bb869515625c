package lint

import (
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/launchers"
)

// launch is a program that uses several GPUs, as far as its command line says.
type launch struct {
	program
	// Its first name in the table of launchers: "torchrun", "accelerate", "deepspeed", "vllm", "mpirun".
	kind string
	// The options of the launcher, without those of the script.
	own []Word
	use launchers.Use
	// It names other machines, or how many: nothing can be counted here.
	hosts bool
}

// readLaunch reads a command that uses several GPUs, without the variables around it.
func readLaunch(s Step) (launch, bool) { return readLaunchWith(s, nil) }

func readLaunchWith(s Step, lookup func(string) (string, bool)) (launch, bool) {
	l := launch{program: programOf(s)}
	texts := wordTexts(s.Words)
	l.use = launchers.ReadCommand(texts, lookup)
	if !l.use.Launches || l.use.Program == "mpirun" {
		if !l.ranksUseNCCL() {
			return l, false
		}
		l.use = launchers.ReadAt(texts, slices.IndexFunc(texts, isMPI), lookup)
	}

	l.kind, l.own = l.use.Program, s.Words[l.use.Own:l.use.End]
	l.hosts = l.use.First(launchers.Elsewhere).Effect != ""

	return l, true
}

func isMPI(word string) bool {
	return slices.Contains([]string{"mpirun", "mpiexec", "orterun"}, word[strings.LastIndex(word, "/")+1:])
}

// ranksUseNCCL reports whether mpirun stands before a program that uses NCCL: ranks of other programs may share a GPU,
// those of NCCL may not (NVIDIA/nccl: src/init.cc).
func (l launch) ranksUseNCCL() bool {
	if !slices.ContainsFunc(l.by, isMPI) {
		return false
	}
	return strings.HasSuffix(l.name, "_perf") || slices.ContainsFunc(l.Words, func(w Word) bool { return strings.Contains(w.Text, "NCCL_") })
}

// launchAt is readLaunch with the variables that command i has.
func (a indexedFile) launchAt(i int) (launch, bool) {
	p := programOf(a.Steps[i])
	return readLaunchWith(a.Steps[i], func(name string) (string, bool) {
		v, given := a.effectiveValue(i, p, name)
		return v.Text, given && v.Known
	})
}

// neededGPUs is how many GPUs command i needs on this machine, and where that is written.
func (l launch) neededGPUs(a indexedFile, i int) (n int, at Place, ok bool) {
	n = 1
	for _, k := range l.use.KeysWith(launchers.Counts) {
		v := Value{Text: k.Value, Known: true, At: l.At}
		if k.Word >= 0 {
			v = a.resolveConstant(i, l.keyValue(k))
		}

		one, err := strconv.Atoi(v.Text)
		if err != nil || !v.Known || one < 1 {
			return 0, at, false
		}

		if one > 1 || !ok {
			at = v.At
		}

		n, ok = n*one, true
	}
	return n, at, ok && !l.hosts
}

// keyValue is the word that is the value of a key.
func (l launch) keyValue(k launchers.Key) Word {
	w, _ := firstOptionValue(l.Words[k.Word:])
	return w
}

// computesOnCPU reports whether the command says that it computes without GPUs.
func (l launch) computesOnCPU() bool {
	return slices.ContainsFunc(l.Words, func(w Word) bool {
		text := strings.ToLower(w.Text)
		return text == "gloo" || text == "mpi" || strings.HasSuffix(text, "=gloo") || slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("-_=:/,", r) }), "cpu") ||
			strings.Contains(text, "no-cuda") || strings.Contains(text, "no_cuda")
	})
}
