package machine

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/isolate"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
	"gpuard/internal/host/isolation"
)

// SettleIsolation settles, before anything is claimed, what keeps the job from other devices: Spec.Isolate is the level
// in force then. What is not possible is a refusal.
func (h *Host) SettleIsolation(spec job.Spec) (job.Spec, error) {
	if !isolate.WantsIsolation(spec.Isolate, spec.Isolated) {
		spec.Isolate = job.NoIsolation
		return spec, nil
	}

	can := h.IsolationMeans(spec.Isolate)
	level, note, refusal := isolate.ChooseLevel(spec.Isolate, spec.Isolated, can)
	if refusal != nil {
		return spec, refusal
	}

	if note == "" && len(spec.Command) > 0 {
		note = isolate.ProgramDoubt(level, filepath.Base(spec.Command[0]))
	}

	if note != "" {
		h.Say(note)
	}

	if spec.IDs == job.IndexIDs && level != job.NoIsolation {
		return spec, errors.New("cannot write --ids index behind --isolate " + string(level) + ": the libraries count only the GPUs that they can open there; leave --ids out")
	}

	spec.Isolate = level

	return spec, nil
}

// IsolationRule is the rule for the caller that requires most isolation; nil for none, as on an invented machine, which
// has nothing to keep a job from.
func (h *Host) IsolationRule() (*policy.Rule, error) {
	if !h.IsHardware() {
		return nil, nil //nolint:nilnil // none
	}
	limits, err := h.Limits()
	return isolate.Rule(limits), err
}

// SettleCommand is SettleIsolation for a command that gpuard starts, with what the rules for the caller require of it.
func (h *Host) SettleCommand(spec job.Spec) (job.Spec, error) {
	rule, err := h.IsolationRule()
	if err != nil {
		return spec, err
	}

	required, refusal := isolate.UnderRule(spec.Isolate, spec.Isolated, rule)
	if refusal != nil {
		return spec, refusal
	}

	ownWish := required == spec.Isolated
	spec.Isolated = required
	spec, err = h.SettleIsolation(spec)
	if errors.As(err, &refusal) && !ownWish {
		return spec, isolate.Impossible(refusal, rule)
	}

	return spec, err
}

// IsolationMeans is what this machine can do about the devices of others. A control group is made to find out, so that
// is done only where it is asked for, or nothing else is possible.
func (h *Host) IsolationMeans(asked job.Isolation) isolate.Means {
	if !h.IsHardware() {
		const invented = "the machine is invented, and has no device files"
		return isolate.Means{Namespace: invented, Landlock: invented, Cgroup: invented}
	}

	if _, err := os.Stat(filepath.Join(h.Root, "dev/dxg")); err == nil {
		const windows = "in Windows' subsystem all GPUs have one device file, /dev/dxg"
		return isolate.Means{Namespace: windows, Landlock: windows, Cgroup: windows}
	}

	can := isolate.Means{Namespace: isolation.NamespaceObstacle(), Landlock: isolation.LandlockObstacle(), Cgroup: "that was not tried"}
	if can.Namespace == "" && asked.Level() == job.NoIsolation {
		// Who asks for that level is told what to close.
		can.Namespace = isolation.InheritedEscape()
	}

	if asked == job.Cgroup || can.Namespace != "" && can.Landlock != "" {
		can.Cgroup = isolation.Cgroup()
	}

	return can
}

// WallOf is what a command with this plan is started behind. m is the machine on which it was decided.
func (h *Host) WallOf(plan job.Plan, m gpu.Machine) (isolation.Wall, error) {
	wall := isolation.Wall{Level: plan.Isolation}
	if plan.Isolation == job.NoIsolation {
		return wall, nil
	}

	nodes, err := isolation.DeviceNodes(cmp.Or(h.Root, "/"))
	if err != nil {
		return wall, err
	}

	exists := func(path string) bool {
		_, err := os.Stat(filepath.Join(h.Root, path))
		return err == nil
	}

	refusal := isolate.Suits(plan.Isolation, plan.Devices)
	if refusal == nil {
		refusal = isolate.CheckSharedFiles(plan.Devices, exists)
	}

	if refusal == nil {
		refusal = isolate.CheckSliceFiles(plan.Isolation, nodes, m, plan.Devices)
	}

	if refusal == nil {
		wall.Nodes, refusal = isolate.FilesToClose(nodes, m, plan.Devices)
	}

	if refusal != nil {
		return wall, refusal
	}

	return wall, nil
}
