package lint

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/launchers"
)

func lookPort(f File) (all []Finding) {
	if !slices.Contains([]Kind{Shell, Python, Notebook, Unit, Desktop}, f.Kind) || severalMachines(f) || startsOthersOnly(f) || isTest(f.Path) {
		// A container has ports of its own.
		return nil
	}

	for _, p := range meetings(f) {
		if p.alone || p.number > maxPort {
			continue
		}
		do := freePort(p.kind)
		if f.Kind != Shell && strings.HasPrefix(p.what, "MASTER_PORT") {
			do = "let the process that starts the others find a free port and hand it on, or leave it to the caller: os.environ.setdefault"
		}
		all = append(all, Finding{Finding: check.Finding{Seen: p.what, Why: "a second job on the same machine cannot listen on that port", Do: do}, At: p.at})
	}

	if slices.ContainsFunc(all, func(one Finding) bool { return one.Seen != all[0].Seen }) || len(all) > 0 && takesWholeMachines(f) {
		// Ports are told apart on purpose, or nobody else is there.
		return nil
	}

	return all
}

// freePort says how the processes of a launcher meet at a port that nothing else has.
func freePort(launcher string) string {
	switch launcher {
	case "torchrun":
		return "let a free port be found: torchrun --standalone"
	case "accelerate":
		return "let a free port be found: --main_process_port 0, with accelerate 1.7 or newer"
	case "deepspeed":
		return "leave it to the caller: --master_port ${MASTER_PORT:-29500}"
	}
	return "let a free port be found: torchrun --standalone, --main_process_port 0, or a port derived from the job's number"
}

// maxPort is the highest port there is: TCP has 16 bits for it.
const maxPort = 65535

func lookPortTooLarge(f File) (all []Finding) {
	for _, p := range slices.Concat(meetings(f), meetingsInPython(f)) {
		if p.number <= maxPort {
			continue
		}

		severity, why := check.Severity(""), "the processes cannot meet there, and none starts to work"
		if p.isOld {
			severity, why = check.Info, "from PyTorch 1.10 on the processes cannot meet there, and none starts to work"
		}

		all = append(all, Finding{Finding: check.Finding{Severity: severity, Seen: strconv.Itoa(p.number) + " cannot be a port: they end at " + strconv.Itoa(maxPort),
			Why: why, Do: "choose a port from 1024 to " + strconv.Itoa(maxPort)}, At: p.at})
	}
	return all
}

// meeting is a port at which processes are told to meet.
type meeting struct {
	at     Place
	what   string
	number int
	// The launcher that is told; "" where a variable tells it.
	kind string
	// The meeting is of one process, or another one is chosen when it is taken.
	alone bool
	// torch.distributed.launch tells the processes of it. Before PyTorch 1.10, with which torchrun came, a port was cut to 16
	// bits, so that they met all the same (pytorch/pytorch#67172).
	isOld bool
}

// isOldLaunch reports whether a command is torch.distributed.launch.
func isOldLaunch(s Step) bool {
	return s.Do == Command && slices.ContainsFunc(s.Words, func(w Word) bool { return w.Text == "torch.distributed.launch" }) && strings.HasPrefix(programOf(s).name, "python")
}

// meetings are those in the variables and the options of a file.
func meetings(f File) []meeting {
	var all []meeting
	old := slices.ContainsFunc(f.Steps, isOldLaunch) && !slices.ContainsFunc(f.Steps, func(s Step) bool { return s.Do == Command && programOf(s).name == "torchrun" })
	set := func(s Step) {
		if s.Name == "MASTER_PORT" && isPort(s.Value) {
			n, _ := strconv.Atoi(s.Value.Text)
			all = append(all, meeting{at: s.At, what: "MASTER_PORT is always " + s.Value.Text, number: n, alone: strings.Contains(s.How, "setdefault") || s.How == byDefault, isOld: old})
		}
	}
	var isNamed, isTaken, isReplaced bool
	if slices.ContainsFunc(f.Steps, func(s Step) bool { return s.Do == Set && s.Name == "MASTER_PORT" }) {
		isNamed, isTaken, isReplaced = readsMasterPort(f)
	}
	one := slices.ContainsFunc(f.Steps, func(s Step) bool {
		return s.Do == Set && s.Name == "WORLD_SIZE" && s.Value.Known && s.Value.Text == "1"
	})
	for _, s := range f.Steps {
		if s.Do == Set && !one && (f.Kind != Shell || !isReplaced && (s.Exported && isTaken || isNamed)) {
			// Else no process that the script starts learns of it, or reads it.
			set(s)
		}

		if s.Do != Command {
			continue
		}

		for _, own := range programOf(s).set {
			set(own)
		}

		l, ok := readLaunch(s)
		if !ok || slices.ContainsFunc(s.Asked, func(name string) bool { return slices.Contains(maskVariables(), name) }) {
			// In a branch that the list which is written in the file may not reach.
			continue
		}

		processes, counted := findOption(l.own, "num-processes")

		// Which meets nobody.
		alone := l.kind == "accelerate" && counted && processes.Text == "1"
		for _, name := range []string{"master-port", "main-process-port", "rdzv-endpoint"} {
			v, given := findOption(l.own, name)
			given = given && (name == "rdzv-endpoint" || !l.findsOwnPort())
			port := v
			if name == "rdzv-endpoint" {
				host, number, _ := strings.Cut(v.Text, ":")
				port.Text = number
				given = given && isLocal(host)
			}
			if given && isPort(port) {
				n, _ := strconv.Atoi(port.Text)
				all = append(all, meeting{at: v.At, what: "the processes always meet at port " + port.Text, number: n, kind: l.kind, alone: alone, isOld: isOldLaunch(s)})
			}
		}
	}

	return all
}

// findsOwnPort reports whether torchrun does not read --master-port: with --standalone, or a meeting of another kind than static (pytorch/pytorch:
// torch/distributed/run.py).
func (l launch) findsOwnPort() bool {
	if !hasWord("torchrun torch.distributed.run torch.distributed.launch", l.kind) {
		return false
	}
	backend, given := findOption(l.own, "rdzv-backend")
	return given && backend.Text != "static" || slices.ContainsFunc(l.own, func(w Word) bool { return w.Text == "--standalone" })
}

// readsMasterPort reports whether commands of a file name MASTER_PORT, whether one may read it, and whether a torchrun --standalone
// of it chooses a port in its place. The launchers have options of their own: torchrun reads PET_MASTER_PORT (pytorch/pytorch:
// torch/distributed/run.py).
func readsMasterPort(f File) (isNamed, isTaken, isReplaced bool) {
	for _, s := range f.Steps {
		if s.Do != Command {
			continue
		}
		l, launches := readLaunch(s)
		isTaken = isTaken || !launches && !isIdle(s) || launches && !hasWord("torchrun accelerate deepspeed", l.kind)
		isNamed = isNamed || slices.ContainsFunc(s.Words, func(w Word) bool { return strings.Contains(w.Raw, "MASTER_PORT") })
		isReplaced = isReplaced || slices.ContainsFunc(s.Words, func(w Word) bool { return w.Text == "--standalone" })
	}
	return isNamed, isTaken, isReplaced
}

// isTest reports whether a file is a test or a lesson by its name: it runs alone, and with processes that it knows.
func isTest(file string) bool {
	base := strings.ToLower(path.Base(file))
	lesson := strings.HasPrefix(base, "test") || strings.Contains(base, "tutorial") || strings.Contains(strings.TrimSuffix(base, path.Ext(base)), "_test") || base == "conftest.py"
	folders := strings.Split(strings.ToLower(path.Dir(file)), "/")

	return lesson || slices.ContainsFunc(folders[max(0, len(folders)-foldersAsked):], func(folder string) bool {
		return isOneOf(folder, "test", "tests", "testing", "tutorial", "tutorials", "lesson", "lessons", "course")
	})
}

// isUnitTest reports whether a file looks like a test of other code. A program that tests a model is often called test.py.
func isUnitTest(file string) bool {
	folders := strings.Split(strings.ToLower(path.Dir(file)), "/")
	return isTestName(file) || path.Base(file) == "conftest.py" || slices.ContainsFunc(folders[max(0, len(folders)-foldersAsked):], func(folder string) bool { return isOneOf(folder, "test", "tests", "testing", "unittests") })
}

// isTestName reports whether a file is called as tests are.
func isTestName(file string) bool {
	base := strings.ToLower(path.Base(file))
	return strings.HasPrefix(base, "test_") || strings.HasSuffix(strings.TrimSuffix(base, path.Ext(base)), "_test")
}

// foldersAsked is how many folders above a file say what it is for; the others may be anybody's.
const foldersAsked = 3

// takesWholeMachines reports whether a file's jobs have their machines to themselves: what they ask for is all that most machines
// have, or a program is started on all of it. Another job cannot be there.
func takesWholeMachines(f File) bool {
	a := indexVariables(f)
	if readBatchRequest(f).gpus >= wholeMachine {
		return true
	}
	for i, s := range f.Steps {
		text := s.Value.Text
		if s.Do == Setting && (s.Name == "sbatch.exclusive" || s.Name == "sbatch.mem" && text == "0" || s.Name == "bsub.x" || s.Name == "pbs.l" && strings.Contains(text, "excl") || s.Name == "sbatch.qos" && text == "regular") {
			return true
		}
		if countsMachine(s.Value.Raw) {
			// It counts the GPUs that there are, and starts a process for each.
			return true
		}
		if s.Do != Command {
			continue
		}
		l, ok := a.launchAt(i)
		if n, _, counted := l.neededGPUs(a, i); ok && counted && n >= wholeMachine {
			return true
		}
		if _, numbers, _ := strings.Cut(optionText(l.own, "include"), ":"); ok && (numbers == "0-7" || strings.Count(numbers, ",") >= wholeMachine-1) {
			return true
		}
	}
	return false
}

// wholeMachine is as many GPUs as most machines have that several people use.
const wholeMachine = 8

// startsOthersOnly reports whether a script starts programs of which none is known to compute on GPUs: MASTER_PORT may be
// theirs.
func startsOthersOnly(f File) bool {
	others := false
	for _, s := range f.Steps {
		if s.Do != Command {
			continue
		}
		p := programOf(s)
		if p.usesGPUs() || isScript(p) || p.name == "" {
			return false
		}
		others = others || !isIdle(s)
	}
	return others
}

func isPort(v Value) bool {
	n, err := strconv.Atoi(v.Text)
	return v.Known && err == nil && n > 0
}

func isLocal(host string) bool {
	return slices.Contains([]string{"localhost", "127.0.0.1", "::1", "0.0.0.0", ""}, host)
}

// severalMachines reports whether the processes of the file's jobs are on more than one machine, or may be.
func severalMachines(f File) bool {
	inSlurm := slices.ContainsFunc(f.Steps, func(s Step) bool { return s.Name == "sbatch.nodes" })
	for _, s := range f.Steps {
		switch {
		case s.Do == Setting && s.Name == "sbatch.nodes" && s.Value.Text != "1":
			return true
		case s.Do == Set && s.Name == "MASTER_ADDR" && (!s.Value.Known && !inSlurm || s.Value.Known && !isLocal(s.Value.Text)):
			return true
		case s.Do == Set && (s.Name == "NNODES" || s.Name == "NODE_RANK"):
			return true
		case s.Do == Command:
			if slices.ContainsFunc(programOf(s).set, func(set Step) bool { return set.Name == "NNODES" || set.Name == "NODE_RANK" }) {
				return true
			}

			l, ok := readLaunch(s)
			if !ok {
				continue
			}
			if v, given := findOption(l.own, "nnodes", "num-machines", "num-nodes"); given && v.Text != "1" {
				return true
			}
			if v, given := findOption(l.own, "master-addr", "main-process-ip"); given && !isLocal(v.Text) {
				return true
			}
			if _, given := findOption(l.own, "node-rank", "machine-rank"); given || l.hosts {
				return true
			}
		}
	}
	return false
}

// rankVariables lists the variables in which launchers give each process its number on the machine.
func rankVariables() []string {
	return []string{"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID"}
}

func lookRankOwnMask(a indexedFile, i int, s Step) (all []Finding) {
	p := programOf(s)
	mask, given := a.deviceMask(i, p)
	if !given || mask.Known || !slices.Contains(rankVariables(), mask.From) || strings.Contains(mask.Text, ",") {
		return nil
	}

	for _, w := range p.args {
		if w.From == mask.From && strings.Contains(w.Text, "cuda:") {
			all = append(all, Finding{Finding: check.Finding{
				Seen: "the program sees one GPU, and asks for " + strings.Trim(w.Text, `"`), Why: "the one GPU that a process sees has the number 0 in it", Do: "use cuda:0, or give every process the whole list"}, At: w.At})
		}
	}

	return all
}

// deviceMask is the list of devices that a program gets, if one is given.
func (a indexedFile) deviceMask(i int, p program) (Value, bool) {
	for _, name := range maskVariables() {
		if v, ok := a.effectiveValue(i, p, name); ok {
			return v, true
		}
	}
	return Value{}, false
}

var cudaNumber = lazyRegexp(`(?:^|=)cuda:([0-9]{1,3})$`)

func lookDeviceBeyondMask(a indexedFile, i int, s Step) (all []Finding) {
	p := programOf(s)
	inside := deviceOptions(p)
	if !p.usesGPUs() && len(inside) == 0 || a.asksForMask(s) {
		return nil
	}

	mask, given := a.deviceMask(i, p)
	n, known := countDevices(mask)
	if !given || !known || n == 0 {
		return nil
	}

	add := func(at Place, device string, k int) {
		if k >= n {
			all = append(all, Finding{Finding: check.Finding{
				Seen: fmt.Sprintf("%s under a list of %d, %s", device, n, mask.Text), Why: "visible devices are numbered from 0 in the order of the list",
				Do: fmt.Sprintf("use a number from 0 to %d", n-1)}, At: at})
		}
	}

	for _, w := range p.args {
		if m := cudaNumber().FindStringSubmatch(w.Text); m != nil && w.Known && p.usesGPUs() {
			k, _ := strconv.Atoi(m[1])
			add(w.At, "cuda:"+m[1], k)
		}
	}

	for _, k := range inside {
		w, _ := firstOptionValue(p.Words[k.Word:])
		if numbers := k.DeviceNumbers(); w.Known && len(numbers) > 0 && !cudaNumber().MatchString(w.Text) {
			add(w.At, k.Name+" "+w.Text, slices.Max(numbers))
		}
	}

	return all
}

// deviceOptions is the options of a program that name devices within its list.
func deviceOptions(p program) []launchers.Key {
	return slices.DeleteFunc(launchers.ReadCommand(wordTexts(p.Words), nil).KeysWith(launchers.Inside), func(k launchers.Key) bool { return k.Word < 0 })
}
