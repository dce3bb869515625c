package lint

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"sync"

	"gpuard/internal/core/launchers"
)

// gpuUse says how many of the GPUs that they see the programs of a file take, as far as it shows. What is asked of the whole file is
// found once.
type gpuUse struct {
	file File
	// A program takes all that it sees, or may.
	takesAll func() bool
	// Python: a program takes more than the first one, or may.
	takesSeveral func() bool
	// Python: a program uses none.
	takesNone func() bool
	// Each program that is told how many it takes is told so many; 0 where they differ, or one is not told.
	toldAll func() int
	// A program may take several.
	mayTakeSeveral func() bool
	// How many each is told to take.
	toldCounts func() []int
	// The file by its variables.
	indexed func() indexedFile
	// The number of the command that alone gets a variable, by the place of the variable.
	commands func() map[Place]int
	// The variables that programs get as words, too.
	handedOn func() map[string]bool
}

func newGPUUse(f File) gpuUse {
	return gpuUse{
		file:           f,
		takesAll:       sync.OnceValue(f.takesAll),
		takesSeveral:   sync.OnceValue(f.takesSeveral),
		takesNone:      sync.OnceValue(f.takesNone),
		toldAll:        sync.OnceValue(f.toldAll),
		mayTakeSeveral: sync.OnceValue(f.mayTakeSeveral),
		toldCounts:     sync.OnceValue(f.toldCounts),
		indexed:        sync.OnceValue(func() indexedFile { return indexVariables(f) }),
		commands:       sync.OnceValue(f.commandsByList),
		handedOn:       sync.OnceValue(f.handedOn),
	}
}

// usesNoGPU is why a list is needless to a program that computes on the CPU.
const usesNoGPU = "nothing in this file computes on a GPU"

// whyNeedless is why the programs of a file may use the same GPUs with a list that is set and without it; "" where they do not.
func (u gpuUse) whyNeedless(set Step, name string) string {
	if !slices.Contains(maskVariables(), name) {
		// Container runtimes give all without a list.
		return ""
	}

	isPython := set.Shell == 0 && (u.file.Kind == Python || u.file.Kind == Notebook)
	if isPython && (u.takesNone() || hidesEveryDevice(set.Value) && u.file.namesNoGPU()) {
		return usesNoGPU
	}

	list := u.resolveList(set)
	n, counted := countDevices(list)
	if !counted || n == 0 || !countsFromZero(deviceNumbers(list), n) {
		return ""
	}

	var may bool
	switch {
	case u.isTold(set, n):
		may = true
	case n > 1:
		may = u.toldAll() == toldElsewhere || !isPython && !u.mayTakeSeveral()
	case isPython:
		may = !u.takesSeveral()
	default:
		may = !u.takesAll()
	}

	if !may {
		return ""
	}
	return "nothing changes on a machine with these GPUs alone, or where the program takes the first ones by itself"
}

// resolveList is the value of a list, with the constant of the script that it is made of.
func (u gpuUse) resolveList(set Step) Value {
	i, isBefore := u.commands()[set.At]
	if set.Value.Known || !isBefore {
		return set.Value
	}
	return u.indexed().resolveConstant(i, set.Value)
}

// commandsByList finds the number of the command that alone gets a variable, by the place of the variable.
func (f File) commandsByList() map[Place]int {
	all := map[Place]int{}
	for i, s := range f.Steps {
		if s.Do == Command {
			for _, w := range commandVariables(s) {
				all[w.At] = i
			}
		}
	}
	return all
}

// isHandedOn reports whether a script gives the value of a list to a program in another way, too: as a number, by which it chooses.
func (u gpuUse) isHandedOn(set Step) bool {
	switch {
	case u.file.Kind != Shell && u.file.Kind != Makefile:
		return false
	case set.Value.Known:
		return len(deviceNumbers(set.Value)) > 0 && u.handedOn()[deviceOption+set.Value.Text]
	}
	return set.Value.From != "" && u.handedOn()[set.Value.From] || len(set.Value.Raw) == 2 && u.handedOn()[set.Value.Raw]
}

// optionNumbers are the numbers of devices that the word i of a command gives by an option, or the argument of the script that it hands
// on: "--gpu 3", "--device=cuda:3", "device=2", "--include localhost:2,3", "--gpu $1"; "" for none. A number alone behind --gpus is how many.
func optionNumbers(words []Word, i int) string {
	name, value, joined := strings.Cut(strings.TrimLeft(words[i].Text, "-"), "=")
	if !joined && i+1 < len(words) && strings.HasPrefix(words[i].Text, "-") {
		value = cmp.Or(words[i+1].Text, words[i+1].Raw)
	}
	name = name[strings.LastIndexByte(name, '.')+1:]
	value = strings.Trim(value, `"'`)
	list := strings.Trim(value, "[]")
	if !deviceOptionName().MatchString(name) || strings.HasPrefix(name, "gpus") && list == value && isPlainNumber(value) {
		return ""
	}
	for _, before := range []string{"cuda:", "localhost:", "device="} {
		list = strings.TrimPrefix(list, before)
	}
	return list
}

var deviceOptionName = lazyRegexp(`(?i)^(gpus?([-_]ids?)?|devices?([-_]ids?)?|cuda([-_](device|id))?|g|include)$`)

// deviceOption begins the keys of handedOn that are numbers of devices in an option.
const deviceOption = "device "

func (f File) handedOn() map[string]bool {
	all := map[string]bool{}
	for _, s := range f.Steps {
		if s.Do == Set && strings.Contains(s.Value.Raw, `["`) {
			// An array, of which options may be made.
			for _, found := range expanded().FindAllStringSubmatch(s.Value.Raw, -1) {
				all[found[1]] = true
			}
		}
		if s.Do == Command && programOf(s).usesGPUs() {
			for i, w := range s.Words {
				all[w.From] = all[w.From] || !w.Known
				if numbers := optionNumbers(s.Words, i); numbers != "" {
					all[deviceOption+numbers], all[numbers] = true, true
				}
			}
		}
	}
	return all
}

// isTold reports whether the programs that get a list of the first GPUs are told to take these, or fewer: the command that it stands
// before, or all of the file.
func (u gpuUse) isTold(set Step, n int) bool {
	counts := u.countsFor(set)
	return len(counts) > 0 && !slices.ContainsFunc(counts, func(told int) bool { return told < 1 || told > n })
}

// isToldMore reports whether each of the programs that get a list is told to take more GPUs than it has: with that list they would fail.
func (u gpuUse) isToldMore(set Step) bool {
	n, counted := countDevices(u.resolveList(set))
	counts := u.countsFor(set)
	return counted && n > 0 && len(counts) > 0 && !slices.ContainsFunc(counts, func(told int) bool { return told <= n })
}

// countsFor is how many GPUs each of the programs that get a list is told to take.
func (u gpuUse) countsFor(set Step) []int {
	i, isBefore := u.commands()[set.At]
	if !isBefore {
		return u.toldCounts()
	}
	one := u.file
	one.Steps = u.file.Steps[i : i+1]
	return one.toldCounts()
}

// toldElsewhere is the number of GPUs that a launcher is told by something which the file does not know.
const toldElsewhere = -1

// toldAll is how many GPUs each launcher of a file is told to take, and where there is none each program: by an option of its own, or as
// the last word of a script that starts a process for each. It is 0 where they differ, or one is not told.
func (f File) toldAll() int {
	told := f.toldCounts()
	if len(told) == 0 || slices.ContainsFunc(told, func(n int) bool { return n != told[0] }) {
		return 0
	}
	return told[0]
}

// toldCounts is how many GPUs each of them is told to take; 0 for one that is not told.
func (f File) toldCounts() []int {
	a := indexVariables(f)
	var launched, others []int
	for i, s := range f.Steps {
		p := programOf(s)
		if s.Do != Command || len(p.args) == 0 {
			continue
		}

		l, launches := a.launchAt(i)
		switch {
		case launches:
			launched = append(launched, l.toldCount(a, i))
		case p.usesGPUs() || isScript(p):
			others = append(others, p.toldCount())
		}
	}

	if len(launched) == 0 {
		return others
	}
	return launched
}

// toldCount is how many GPUs a program is told to take; 0 where it is not told.
func (p program) toldCount() int {
	option, given := findOption(p.args, "num-gpus", "num-gpu", "n-gpus", "n-gpu", "ngpus", "ngpu", "gpu-num", "gpus-num", "nproc", "nprocs", "world-size", "num-devices")
	if !given && strings.HasPrefix(path.Base(p.name), "dist_") {
		option = p.args[len(p.args)-1]
	}
	return max(0, parseDecimal(option.Text))
}

// toldCount is how many processes a launcher is told to start; 0 for one on each GPU that it sees.
func (l launch) toldCount(a indexedFile, i int) int {
	counts := l.use.KeysWith(launchers.Counts)
	if len(counts) == 0 {
		if l.kind == "accelerate" && optionText(l.own, "config-file") != "" {
			return toldElsewhere
		}
		return 0
	}

	for _, k := range counts {
		if k.Word >= 0 && (hasWord("gpu auto", l.keyValue(k).Text) || countsMachine(a.resolveConstant(i, l.keyValue(k)).Raw)) {
			return 0
		}
	}
	n, _, counted := l.neededGPUs(a, i)
	if !counted {
		return toldElsewhere
	}
	return n
}

// countsMachine reports whether a value is the number of the GPUs that there are.
func countsMachine(raw string) bool {
	return strings.Contains(raw, "nvidia-smi") && strings.Contains(raw, "wc -l")
}

// takesAll reports whether a program of a file takes every GPU that it sees, or may: a launcher that nothing tells how many, or a tool
// other than Python.
func (f File) takesAll() bool {
	a := indexVariables(f)
	for i, s := range f.Steps {
		if s.Do != Command {
			continue
		}

		l, launches := readLaunch(s)
		isTold := optionText(l.own, "include") != "" || optionText(l.own, "config-file") != "" || hasWord("vllm sglang", l.kind)
		counts := launches && len(l.use.KeysWith(launchers.Counts)) > 0
		p := programOf(s)
		isTool := p.usesGPUs() && !launchers.IsPython(p.name) && !strings.HasSuffix(p.name, ".py") && p.name != "fairseq-generate"
		if counts && l.toldCount(a, i) == 0 || !counts && !isTold && isTool {
			return true
		}
	}
	return false
}

// takesSeveral reports whether a program of Python may use more than the first of the GPUs that it sees: TensorFlow and JAX take memory
// on all of them, and so may what starts workers, unless the program chooses the first device itself.
func (f File) takesSeveral() bool {
	chosen, spreads, may := false, false, false
	for _, s := range f.Steps {
		root, name := rootModule(s.Name), strings.ToLower(s.Name)
		for _, c := range s.deviceChoices() {
			chosen, spreads = true, spreads || c.index != 0
		}
		switch s.Do {
		case Import:
			spreads = spreads || hasWord("tensorflow keras jax flax horovod", root)
			may = may || hasWord("transformers accelerate lightning pytorch_lightning deepspeed vllm sglang ray", root)
		case Call:
			spreads = spreads || containsAny(name, "device_count", "parallel", "distributed") || name == "transformers.trainer"
			if a, given := s.findArg(-1, "devices", "gpus"); given {
				one := hasWord("1 [0] 0", a.Value.Text)
				chosen, spreads = chosen || one, spreads || a.Value.Known && !one
			}
			may = may || hasWord("deepspeed vllm sglang ray accelerate", root)
		case Command:
			_, launches := readLaunch(s)
			spreads = spreads || launches
		}
	}
	return spreads || may && !chosen
}

// takesNone reports whether a program of Python says of what it makes that it is to use no GPU, or is one of PyTorch alone that names
// no device but the CPU: tensors are there unless a program moves them.
func (f File) takesNone() bool {
	refuses, names, others := false, false, false
	for _, s := range f.Steps {
		switch s.Do {
		case Import:
			others = others || !hasWord("torch torchvision torchaudio paddle "+unknownModule, rootModule(s.Name))
		case Command:
			others = others || programOf(s).usesGPUs()
		case Call:
			names = names || containsAny(s.Name, "cuda", ".to_device", "device_count") || s.argsContain("cuda", "device") || len(s.deviceChoices()) > 0
			for _, a := range s.Args {
				if hasWord("use_gpu use_cuda", a.Name) {
					refuses = refuses || a.Value.Text == "False"
					names = names || a.Value.Text != "False"
				}
			}
		}
	}
	return !names && !others && (refuses || f.importsTorch())
}

// namesNoGPU reports whether a program of PyTorch alone says that it computes on the CPU, and names no GPU.
func (f File) namesNoGPU() bool {
	cpu, gpus := false, false
	for _, s := range f.Steps {
		switch s.Do {
		case Import:
			gpus = gpus || !hasWord("torch torchvision torchaudio "+unknownModule, rootModule(s.Name))
		case Call:
			cpu = cpu || s.Name == "torch.device" && len(s.Args) == 1 && s.Args[0].Value.Text == "cpu"
			gpus = gpus || strings.Contains(s.Name, "cuda") || s.argsContain("cuda", "gpu")
		}
	}
	return cpu && !gpus
}

// mayTakeSeveral reports whether a program of a file may take more than one GPU, so that the second of a list is missed. Of a program that
// is only named nothing is known.
func (f File) mayTakeSeveral() bool {
	if (f.Kind == Python || f.Kind == Notebook) && f.takesSeveral() || !slices.Contains([]Kind{Python, Notebook, Shell, Csh, Fish, Makefile, Markdown}, f.Kind) {
		return true
	}
	told := f.toldAll()
	return told != 1 && (told != 0 || f.takesAll() || slices.ContainsFunc(f.Steps, func(s Step) bool {
		return s.Do == Command && slices.ContainsFunc(s.Words, func(w Word) bool { return severalWord().MatchString(w.Text) })
	}))
}

// severalWord is an option or a script that is about more GPUs than one, as a rule.
var severalWord = lazyRegexp(`(?i)gpus|num[-_]gpu|multi|parallel|distributed|ddp|world[-_]size|nproc|devices|^dist_|/dist_|^(cuda:)?\d(,\d)+$`)

func optionText(words []Word, name string) string {
	v, _ := findOption(words, name)
	return v.Text
}
