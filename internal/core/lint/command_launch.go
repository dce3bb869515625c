package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/launchers"
)

// launchersOnOneMachine is the finding of several launchers on a machine, which srun starts.
func (l launch) launchersOnOneMachine(launchers, processes int, at Place) Finding {
	why := "each launcher counts its processes from 0, so that they use the same GPUs"
	nodes, counted := findOption(l.own, "nnodes")
	_, meet := findOption(l.own, "rdzv-endpoint")
	switch {
	case l.findsOwnPort() && meet && (!counted || nodes.Text == "1"):
		why = "only one of them gets a place where they meet, and the other one ends with an error"
	case !l.findsOwnPort():
		why += ", and only one of them gets the port"
	}

	return Finding{Finding: check.Finding{Severity: check.Warning,
		Seen: fmt.Sprintf("srun starts %d launchers on a machine, and each starts %d processes", launchers, processes),
		Why:  why, Do: "start one launcher on each machine: srun --ntasks-per-node=1"}, At: at}
}

// branchSeverity is that of a command under a list from around it: in a branch, which often asks how long the list is, it may
// never run with this one. A few processes on the one GPU that the same line names may be meant: whether they share it, the
// program says.
func branchSeverity(s Step, processes, visible int) check.Severity {
	const few = 4
	own := slices.ContainsFunc(commandVariables(s), func(w Step) bool { return slices.Contains(maskVariables(), w.Name) })
	nccl := slices.ContainsFunc(s.Words, func(w Word) bool { return containsAny(strings.ToLower(w.Text), "nccl") })
	if s.Maybe && !own || own && visible == 1 && processes <= few && !nccl {
		return check.Info
	}
	return ""
}

func lookProcesses(f File) (all []Finding) {
	a := indexVariables(f)
	job := readBatchRequest(f)
	if len(lookBeyondJob(f)) > 0 {
		// Mask-beyond-batch-job says that.
		job.gpus = 0
	}

	shared := readServices(f)
	for i, s := range f.Steps {
		if s.Do != Command {
			continue
		}

		l, ok := a.launchAt(i)
		run, contained := readContainerRun(s)
		if contained {
			l, ok = readLaunch(run.innerCommand())
		}

		if !ok || l.kind == "deepspeed" || l.computesOnCPU() {
			continue
		}

		n, at, ok := l.neededGPUs(a, i)
		if !ok || a.asksForMask(s) {
			continue
		}

		least := gpuLimit{}
		switch {
		case contained:
			count, _ := run.countGPUs()
			least.lowerTo(count, "the container")
		default:
			around := job
			if s.Shell != 0 {
				around = batchRequest{}
			}
			least = l.limitAround(a, i, around, shared)
		}

		seen := fmt.Sprintf("%d processes are started", n)
		if !l.startsProcesses() {
			seen = pluralize(n, "GPU is needed", "GPUs are needed")
		}

		tasks := job.launchesPerMachine(l)
		if tasks > 1 && n > 1 && l.startsProcesses() && !contained && s.Shell == 0 {
			all = append(all, l.launchersOnOneMachine(tasks, n, at))
			continue
		}

		if least.count == 0 || n <= least.count {
			continue
		}

		why := "each process takes the GPU of its own number, and those beyond the last one fail"
		if !l.startsProcesses() {
			why = "it counts on GPUs that it does not see"
		}

		all = append(all, Finding{Finding: check.Finding{Severity: branchSeverity(s, n, least.count),
			Seen: fmt.Sprintf("%s, and %s has %d", seen, least.what, least.count), Why: why,
			Do: fmt.Sprintf("use %d, or make more GPUs visible", least.count)}, At: at})
	}

	return all
}

// gpuLimit is how many GPUs a command can have at most; 0 is not known.
type gpuLimit struct {
	count int
	what  string
}

func (m *gpuLimit) lowerTo(count int, what string) {
	if count > 0 && (m.count == 0 || count < m.count) {
		m.count, m.what = count, what
	}
}

// limitAround is how many GPUs what stands around command i leaves to it.
func (l launch) limitAround(a indexedFile, i int, job batchRequest, shared []service) (least gpuLimit) {
	if list, given := l.deviceMask(a, i); given && !job.overridesMask(l.program, list) {
		if count, known := countDevices(list); known {
			least.lowerTo(count, "the list of devices, "+list.Text+",")
		}
	}
	overNodes := job.spread && strings.HasPrefix(l.kind, "mpi")
	if !overNodes && !slices.ContainsFunc(l.Words, func(w Word) bool { return strings.HasPrefix(w.Text, "--gres") || strings.HasPrefix(w.Text, "--gpus") }) {
		// MPI takes the machines of the job, each with so many.
		least.lowerTo(job.gpus, "the batch job, "+job.option+",")
	}

	for _, c := range shared {
		if a.Kind == Compose && c.name == a.Steps[i].In {
			count, _ := c.countGPUs()
			least.lowerTo(count, "the service "+c.name)
		}
	}

	return least
}

// startsProcesses reports whether a launcher starts one process of a program for each GPU.
func (l launch) startsProcesses() bool {
	return slices.Contains([]string{"torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "swift", "megatron", "llamafactory-cli"}, l.kind)
}

// deviceMask is the list of devices that the program gets. An option of its own may have made another one.
func (l launch) deviceMask(a indexedFile, i int) (Value, bool) {
	if k := l.use.First(launchers.Rewrites); k.Effect != "" {
		return l.keyValue(k), true
	}
	return a.deviceMask(i, l.program)
}

func lookDeepspeed(a indexedFile, i int, s Step) []Finding {
	l, ok := readLaunch(s)
	chosen := l.use.First(launchers.Ignores)
	if !ok || l.kind != "deepspeed" || l.hosts || chosen.Effect == "" {
		return nil
	}

	mask, given := a.effectiveValue(i, l.program, "CUDA_VISIBLE_DEVICES")
	v := a.resolveConstant(i, l.keyValue(chosen))
	list := deviceNumbers(mask)
	if !given || list == nil || !v.Known || a.asksForMask(s) {
		return nil
	}

	taken := deepspeedDevices(chosen.Name, v.Text, list)
	if len(taken) == 0 || !slices.ContainsFunc(taken, func(n int) bool { return !slices.Contains(list, n) }) {
		return nil
	}

	isApart := !slices.ContainsFunc(taken, func(n int) bool { return slices.Contains(list, n) })
	if _, own := l.ownVariable("CUDA_VISIBLE_DEVICES"); isApart && !own && a.startsBefore(i, "CUDA_VISIBLE_DEVICES") {
		// The list is for what was started before, beside which these are free.
		return nil
	}

	option := chosen.Name + " " + v.Text
	do := "choose in one place: leave CUDA_VISIBLE_DEVICES out to use " + joinNumbers(taken) + ", or " + chosen.Name + " to use " + mask.Text
	if meant := withinList(taken, list); meant != nil {
		do = "write: deepspeed --include localhost:" + joinNumbers(meant) + ", or leave CUDA_VISIBLE_DEVICES out to use " + joinNumbers(taken)
	}

	return []Finding{{Finding: check.Finding{
		Seen: "deepspeed ignores CUDA_VISIBLE_DEVICES=" + mask.Text + " because of " + option + ", and uses " + joinNumbers(taken),
		Why:  "its own options choose among all GPUs of the machine", Do: do}, At: v.At}}
}

// startsBefore reports whether a program that uses GPUs is started between the last assignment of a variable and command i, and still
// runs then.
func (a indexedFile) startsBefore(i int, name string) bool {
	last, _ := slices.BinarySearch(a.sets[name], i)
	return last > 0 && slices.ContainsFunc(a.Steps[a.sets[name][last-1]:i], func(s Step) bool { return s.Do == Command && s.Beside && programOf(s).usesGPUs() })
}

// deepspeedDevices are the GPUs of the machine that an option of deepspeed chooses, at least; nil where that is not known. list is
// the list of visible devices, all of which the machine has.
func deepspeedDevices(option, value string, list []int) (taken []int) {
	option = strings.TrimLeft(option, "-")
	n, err := strconv.Atoi(value)
	if strings.HasPrefix(option, "num") {
		for i := range min(n, maxDevices) {
			taken = append(taken, i)
		}
		return taken
	}

	host, devices, named := strings.Cut(value, ":")
	numbers := deviceNumbers(Value{Text: devices, Known: true})
	if err == nil || !named || numbers == nil || strings.Contains(host, "@") {
		return nil
	}

	if !strings.HasPrefix(option, "e") {
		return numbers
	}

	for i := range slices.Max(list) + 1 {
		if !slices.Contains(numbers, i) {
			taken = append(taken, i)
		}
	}

	return taken
}

// maxDevices is more GPUs than a machine has.
const maxDevices = 64

// withinList is what numbers mean that count within a list; nil where one is beyond it.
func withinList(numbers, list []int) (meant []int) {
	for _, n := range numbers {
		if n >= len(list) {
			return nil
		}
		meant = append(meant, list[n])
	}
	return meant
}

func joinNumbers(numbers []int) string {
	var texts []string
	for _, n := range numbers {
		texts = append(texts, strconv.Itoa(n))
	}
	return strings.Join(texts, ",")
}

// asksForMask reports whether a command runs only after a condition on the list of devices, or on what was made of it: then the
// list has the length that the command counts on.
func (a indexedFile) asksForMask(s Step) bool {
	own := slices.ContainsFunc(commandVariables(s), func(w Step) bool { return slices.Contains(maskVariables(), w.Name) })
	return !own && slices.ContainsFunc(s.Asked, func(name string) bool {
		return slices.Contains(maskVariables(), name) || slices.ContainsFunc(a.sets[name], func(i int) bool {
			return containsAny(a.Steps[i].Value.Raw, maskVariables()...)
		})
	})
}

// lookMaskByOption finds programs that make a list of devices of their own of an option, beside the list that they are
// given.
func lookMaskByOption(a indexedFile, i int, s Step) []Finding {
	l := launch{program: programOf(s)}
	k := launchers.ReadCommand(wordTexts(s.Words), nil).First(launchers.Rewrites)
	if k.Effect == "" {
		return nil
	}

	mask, given := a.effectiveValue(i, l.program, "CUDA_VISIBLE_DEVICES")
	v := a.resolveConstant(i, l.keyValue(k))
	if !given || !mask.Known || !v.Known || hidesEveryDevice(mask) || deviceNumbers(v) == nil || v.Text == mask.Text || hasSameNumbers(deviceNumbers(mask), deviceNumbers(v)) || a.asksForMask(s) {
		return nil
	}

	return []Finding{{Finding: check.Finding{
		Seen: k.Name + " " + v.Text + " takes the place of CUDA_VISIBLE_DEVICES=" + mask.Text,
		Why:  "the program sets the variable itself before it uses a GPU, and its numbers count all GPUs of the machine",
		Do:   "choose in one place: leave one of them out"}, At: v.At}}
}

// hasSameNumbers reports whether a list is of the first GPUs, in which the chosen ones have the numbers that they have on the machine.
func hasSameNumbers(list, chosen []int) bool {
	return countsFromZero(list, len(list)) && !slices.ContainsFunc(chosen, func(n int) bool { return n >= len(list) })
}

func lookCondaMask(_ indexedFile, _ int, s Step) (all []Finding) {
	if !strings.Contains(strings.Join(wordTexts(s.Words), " "), "env config vars set") {
		return nil
	}

	for _, w := range s.Words {
		set, ok := parseAssignment(w, "conda")
		if ok && slices.Contains(maskVariables(), set.Name) {
			all = append(all, Finding{Finding: check.Finding{
				Seen: set.Name + " becomes a variable of the conda environment", Why: "from conda 25.7 on the shell has it as an empty string after conda deactivate, which hides every GPU",
				Do: "set it where a program is started"}, At: set.At})
		}
	}

	return all
}
