package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/ranks"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/affinity"
	"gpuard/internal/host/interpreter"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/port"
)

// RankPlan is how the processes are started; nil for a command with one.
func (l *Launch) RankPlan() *ranks.Plan { return l.crew }

// PlanRanks is how the processes of a plan would be started now; nil for a command with one.
func PlanRanks(host *machine.Host, spec job.Spec, plan job.Plan) *ranks.Plan {
	if spec.Ranks == nil {
		return nil
	}

	// Without it nothing is said of processors.
	m, _ := host.Read(context.Background(), gpu.Identity|gpu.Links)
	return ranks.PlanOf(spec.Ranks.Torchrun, rankVisibility(spec, plan), rankMembers(host, spec, plan, m))
}

// rankVisibility is what each process of a job sees. One that fell back to the CPU has no devices, whatever was asked
// for.
func rankVisibility(spec job.Spec, plan job.Plan) string {
	switch {
	case len(plan.Devices) == 0:
		return "none"
	case spec.Ranks.Own:
		return "own"
	}
	return "all"
}

// rankMembers are the processes of a job: one per device, or as many as were asked for; where a job fell back to the
// CPU, as many as devices were.
func rankMembers(host *machine.Host, spec job.Spec, plan job.Plan, m gpu.Machine) []ranks.Member {
	n := spec.Ranks.Count
	if n == 0 {
		n = len(plan.Devices)
	}

	if n == 0 {
		n = max(1, spec.GPUs, len(spec.Devices))
	}

	out := make([]ranks.Member, n)
	for i := range out {
		out[i].Node = -1
		if i >= len(plan.Devices) {
			continue
		}
		if d, _, found := m.FindDevice(plan.Devices[i].UUID); found && d.NUMA != nil {
			out[i].Node, out[i].CPUs = nodeCPUs(host, *d.NUMA)
		}
	}

	return out
}

// nodeCPUs are the processors of a node that we may use. A node without any, such as the memory of a GPU, is
// nothing to bind to, and so is one that this computer does not have.
func nodeCPUs(host *machine.Host, node int) (int, string) {
	list, err := affinity.NodeCPUs(host.Root, node)
	if err != nil {
		return -1, ""
	}

	cpus, err := ranks.ParseCPUs(list)
	if err != nil {
		return -1, ""
	}

	cpus = cpus.Intersect(allowedCPUs())
	if len(cpus) == 0 {
		return -1, ""
	}

	return node, cpus.String()
}

// allowedCPUs are the processors that this process may use; none where the kernel does not tell.
func allowedCPUs() ranks.CPUs {
	cpus, _ := affinity.AllowedCPUs()
	return cpus
}

// prepareRanks prepares the start of several processes, when devices are chosen and the variables of the job are set.
func (l *Launch) prepareRanks() error {
	host, r := l.host, l.spec.Ranks
	if l.meeting == nil {
		kept, err := port.KeepFreePort()
		if err != nil {
			return err
		}
		l.meeting = kept
	}

	var m gpu.Machine
	if l.claimed != nil {
		m = l.claimed.Machine
	}

	crew := ranks.Crew{Port: l.meeting.Number, FD: l.meeting.FD, Grace: r.Grace, Join: cmp.Or(host.Times.Join, joinTime), JSON: r.JSON, Members: rankMembers(host, l.spec, l.Plan, m)}
	if r.Own && l.claimed != nil {
		l.setRankDevices(crew, m)
	}

	crew.ShareThreads(host.Env, allowedCPUs())
	text, err := crew.Encode()
	if err != nil {
		return err
	}

	vars := []visible.Var{{Name: ranks.Variable, Value: text}}
	if l.open != nil {
		l.open[crew.FD] = true
	}

	l.crew = ranks.PlanOf(r.Torchrun, rankVisibility(l.spec, l.Plan), crew.Members)
	if r.Torchrun {
		more, err := l.makeTorchrunCommand(crew)
		if err != nil {
			return err
		}
		vars = append(vars, more...)
	} else {
		l.path, l.argv = ownExecutable(), append([]string{"gpuard", machine.RanksFlag}, l.argv...)
	}

	l.crew.Port = &l.meeting.Number
	l.env = visible.Env(l.env).With(vars)
	l.Plan.Notes = append(l.Plan.Notes, RankNotes(host, l.spec, l.Plan)...)

	return nil
}

// keepPort says whether what is started now gets the descriptor of the port, as the command and nothing else does.
func (l *Launch) keepPort(yes bool) {
	if l.crew != nil {
		port.SetInherit(l.meeting.FD, yes)
	}
}

// setRankDevices shows each member its own device.
func (l *Launch) setRankDevices(crew ranks.Crew, m gpu.Machine) {
	for i := range crew.Members {
		one := l.Plan
		one.Devices = l.Plan.Devices[i : i+1]
		crew.Members[i].Vars = visible.ForJob(l.host.Env, l.Lease, one, claim.FormOfIDs(l.spec, one), m)
	}
}

// RankNotes are what is odd about such a job, one sentence each.
func RankNotes(host *machine.Host, spec job.Spec, plan job.Plan) (notes []string) {
	if rankVisibility(spec, plan) == "own" {
		notes = append(notes, "each rank sees one device, which is its device 0: LOCAL_RANK is its rank, and no device's number")
	}
	if spec.Ranks.Torchrun {
		for _, name := range ranks.OverruledVariables() {
			if _, set := host.Env.Lookup(name); set {
				notes = append(notes, name+" is not passed on to torchrun: gpuard decides what it says")
			}
		}
	}
	return append(notes, ranks.NCCLRemarks(host.Env)...)
}

// findTorchrun finds PyTorch's launcher: on PATH, or as a module of the Python there.
func findTorchrun(ctx context.Context, host *machine.Host) (path string, argv []string, err error) {
	const program = "torchrun"
	path, err = launch.FindCommand(program)
	if err == nil {
		return path, []string{program}, nil
	}

	for _, python := range []string{"python3", "python"} {
		found, unfound := launch.FindCommand(python)
		if unfound != nil {
			continue
		}

		looking, cancel := context.WithTimeout(ctx, 20*time.Second)
		has := interpreter.HasModule(looking, found, "torch")
		cancel()
		if has {
			return found, []string{python, "-m", "torch.distributed.run"}, nil
		}

		err = fmt.Errorf("%w, and %s has no PyTorch either; activate the environment that has, or install it: %s -m pip install torch", err, found, python)

		return "", nil, err
	}

	return "", nil, fmt.Errorf("%w, and no python3 either; activate the environment that has PyTorch, or start the processes without torchrun: gpuard run --ranks -- ./program", err)
}

// makeTorchrunCommand makes the command torchrun, with each process through ourselves.
func (l *Launch) makeTorchrunCommand(crew ranks.Crew) ([]visible.Var, error) {
	t, err := ranks.ReadTorchrun(l.spec.Command)
	if err != nil {
		return nil, &exit.Usage{Text: err.Error()}
	}

	self := ownExecutable()
	if self == selfExe {
		return nil, errors.New("cannot find this program again, through which torchrun starts its processes: its file was replaced just now; try again")
	}

	l.argv = slices.Concat(l.argv, t.Line(l.host.Env, len(crew.Members), crew.Port, []string{self, machine.RankFlag}))
	var vars []visible.Var
	for _, name := range ranks.OverruledVariables() {
		vars = append(vars, visible.Var{Name: name, Unset: true})
	}

	if n := crew.ThreadCount(); n != "" {
		// Or torchrun would set 1, and warn of it.
		vars = append(vars, visible.Var{Name: "OMP_NUM_THREADS", Value: n})
	}

	return vars, nil
}

// selfExe is this program for this process alone.
const selfExe = "/proc/self/exe"

// ownExecutable is the file of this program, under its own name where it is still there: that is what ps shows.
func ownExecutable() string {
	self, err := os.Executable()
	if err != nil {
		return selfExe
	}
	if _, err := os.Stat(self); err != nil {
		return selfExe
	}

	return self
}
