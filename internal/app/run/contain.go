package run

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/engine"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/container"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/isolate"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/files"
)

// containerCommand is a command that starts a container: its engine is told of the devices, and the lease lives as long
// as the container and not as long as the engine's command.
type containerCommand struct {
	call   container.Call
	engine engine.Engine
	facts  container.Facts
	// The ids of the containers of a start.
	names []string
	notes []string // for the plan
	// The services of a compose that have GPUs.
	services []container.Service
	// How its devices are named to the engine.
	form container.Form
	// Options of gpuard's own.
	labels []string
	// The value of the label of a container without a lease.
	mark string
}

// IsEngineCommand reports whether a command is the command line of a container engine.
func IsEngineCommand(command []string) bool {
	return len(command) > 0 && container.EngineOf(command[0]) != ""
}

// readContainer asks the engine what is needed before a lease is taken. It returns the request: the devices of a start
// are those of its container. nil, without an error: the command needs no lease of its own.
func readContainer(ctx context.Context, host *machine.Host, spec job.Spec) (*containerCommand, job.Spec, error) {
	call, err := container.ReadCall(spec.Command)
	if err != nil {
		return nil, spec, exit.Usagef("cannot read the command line of %s: %v; see: %s %s --help", spec.Command[0], err, spec.Command[0], cmp.Or(call.Verb, "run"))
	}
	if call.HasOption("--help") {
		return nil, spec, nil
	}
	if err := call.CheckStart(); err != nil {
		// Before an engine is asked.
		return nil, spec, &exit.Usage{Text: err.Error()}
	}
	if !call.KeepsLease() {
		// No process is started in a container, or it is one that has its devices.
		return nil, spec, nil
	}
	if err := refuseInContainer(host, spec); err != nil {
		return nil, spec, err
	}

	// The engine gives the container nothing but its devices.
	spec.Isolate = job.NoIsolation
	c := &containerCommand{call: call}
	if isNew := call.Verb == "run" || call.Verb == "create"; isNew && call.Compose == nil && !host.IsHardware() {
		// Only to be shown: no engine is needed.
		c.facts = container.Facts{Engine: call.Engine, CDI: true}
		return c, spec, nil
	}

	c.engine, err = engine.FindEngine(host, call)
	if err != nil {
		return nil, spec, err
	}

	if spec.Name == "" && call.Compose == nil {
		spec.Name = call.Name()
	}

	switch {
	case call.Verb == "start", call.Verb == "restart":
		return c.startRequest(ctx, spec)
	case call.Compose != nil:
		return c.composeRequest(ctx, host, spec)
	}

	c.facts, err = c.engine.Facts(ctx, host)
	if err != nil {
		return nil, spec, err
	}

	found, err := c.engine.LookUp(ctx, call.NeededLookups(), c.facts.Rootless)
	if err != nil {
		return nil, spec, err
	}

	c.call = call.WithFound(found)
	if err := c.call.CheckStart(); err != nil {
		return nil, spec, &exit.Usage{Text: err.Error()}
	}

	return c, spec, nil
}

// RefuseCare refuses a container that gpuard cannot start as it is asked for, or as a rule wants it, or look after in a
// way that it only has for a process of this machine. verified says that it is to be verified, too; wall is the level
// of isolation that was asked for by name.
func RefuseCare(host *machine.Host, spec job.Spec, care *job.Care, verified bool, wall job.Isolation) error {
	if !IsEngineCommand(spec.Command) {
		return nil
	}

	// What is wrong with it is said later.
	call, _ := container.ReadCall(spec.Command)
	switch {
	case !call.StartsContainer():
		return nil
	case wall.Level() != job.NoIsolation:
		return exit.Usagef("cannot isolate a container by %s: its engine starts it outside of the wall, and gives it only its own devices unless it is privileged; write --isolate off", wall)
	case verified:
		return exit.Usagef("cannot use --verify with a container: gpuard verifies processes of this machine; leave it out, and ask while it runs: gpuard verify LEASE")
	case care == nil:
		return refuseInContainer(host, spec)
	case len(care.Drift) > 0:
		return exit.Usagef("cannot use --drift with a container: it keeps the GPUs that it was created with; leave it out")
	case !call.IsAttached():
		return exit.Usagef("cannot use --timeout, --retry, --log or --notify with %s %s, unless it is run in the foreground: without a command of %[1]s beside it, it is the engine that looks after the container; write %[1]s run without --detach, or leave them out", call.Engine, call.Verb)
	case care.Retries > 0 && (call.HasOption("--cidfile") || call.HasOption("--name") && !call.HasOption("--rm", "--replace")):
		return exit.Usagef("cannot use --retry with a container that leaves its name or its file of the ID behind: the next start could not have it; add --rm, and leave --cidfile out")
	}

	return nil
}

// labelContainer makes the command line of a container that is looked after: one without a lease has a label by which
// it is found again, and a further start knows that it is one, because the engine passes that variable on.
func (l *Launch) labelContainer(again bool) {
	c := l.contained
	if c == nil || !c.call.IsAttached() {
		return
	}

	more := slices.Clone(c.labels)
	if l.Lease == "" {
		c.mark = rand.Text()
		more = append(more, "--label", engine.JobLabel+"="+c.mark)
	}

	if again {
		more = append(more, "--env", "GPUARD_RESTART")
	}

	// It could be made before.
	l.argv, _, _ = c.call.With(c.form, more...)
}

// endContainer sends a signal to the container in the foreground that the command has started; "" ends it: it does not
// end with the engine's command, which passes no signals on where it has a terminal. sent is false where there is no
// such container.
func (l *Launch) endContainer(signal string) (sent bool, err error) {
	if l.contained == nil || !l.contained.call.IsAttached() {
		return false, nil
	}
	w := engine.Watch{Engine: l.contained.engine, Lease: l.Lease, Mark: l.contained.mark}
	return w.SignalContainers(context.Background(), signal)
}

// refuseInContainer refuses what gpuard does for a process and cannot do for a container.
func refuseInContainer(host *machine.Host, spec job.Spec) error {
	limits, err := host.Limits()
	if err != nil {
		return err
	}

	rule := limits.ShortestTime()
	wall, err := host.IsolationRule()
	switch {
	case err != nil:
		return err
	case rule != nil:
		return exit.Usagef("cannot start a container on a GPU: %s allows it for %s, and gpuard does not end every container; run the command without one", rule, pick.DurationText(rule.Time))
	case spec.Ranks != nil:
		return exit.Usagef("cannot use --ranks or --torchrun with a container: they start processes on this machine; start them in the container: … IMAGE torchrun --nproc-per-node=gpu train.py")
	case spec.Share > 0:
		return exit.Usagef("cannot give a share of a GPU to a container: gpuard does not see to it there that the container keeps to its share; leave --share out")
	case wall != nil:
		return exit.Usagef("cannot start a container on a GPU: %s requires isolation by %s at least, and its engine starts it outside of any wall; run the command without one", wall, wall.Isolate)
	case isolate.WantsIsolation(job.NoIsolation, spec.Isolated):
		return exit.Usagef("cannot see to --require-isolation for a container: its engine starts it, and gives it only its own devices unless it is privileged; leave it out, or write --isolate off")
	case spec.KeepWhile != "":
		return exit.Usagef("cannot use --keep-while with a container: the lease lives as long as the container; leave it out")
	}

	return nil
}

// startRequest is the request of a start: the devices that the container was created with. A container that runs is
// left to the engine.
func (c *containerCommand) startRequest(ctx context.Context, spec job.Spec) (*containerCommand, job.Spec, error) {
	names := c.call.Containers()
	if len(names) != 1 {
		return nil, spec, exit.Usagef("cannot lease for %d containers at once: %s one after the other, by name", len(names), c.call.Verb)
	}

	found, err := c.engine.Inspect(ctx, names...)
	switch {
	case err != nil:
		return nil, spec, fmt.Errorf("cannot ask %s about the container %s: %w", c.engine.Name, names[0], err)
	case len(found) == 0:
		return nil, spec, exit.Usagef("cannot start the container %s: %s knows none of that name; see: %s ps -a", names[0], c.engine.Name, c.engine.Name)
	case found[0].IsAlive():
		return nil, spec, nil
	}

	devices := found[0].Config.Labels[engine.DevicesLabel]
	if devices == "" {
		return nil, spec, exit.Usagef("cannot lease for the container %s: it was not created through gpuard, so its GPUs are not known; create it by gpuard %s -- create …", names[0], c.engine.Name)
	}

	if spec.GPUs > 1 || spec.Devices != nil || spec.MIG != "" {
		c.notes = []string{"a container starts on the GPUs that it was created with, whatever --gpus, --device and --mig say"}
	}

	spec.Devices, spec.GPUs, spec.MIG = strings.Split(devices, ","), 0, ""
	c.names = []string{found[0].ID}

	return c, spec, nil
}

// prepareContainer finds the engine, leases, and makes the command line of the engine.
func (l *Launch) prepareContainer(ctx context.Context) (_ *Launch, err error) {
	if call, err := container.ReadCall(l.spec.Command); !l.host.IsHardware() && (err != nil || !call.Idle()) {
		return nil, exit.Usagef("cannot start a container on an invented machine: it has no device files; add --dry-run to see what its engine would get")
	}

	err = l.findProgram(ctx)
	if err != nil {
		return nil, err
	}

	l.contained, l.spec, err = readContainer(ctx, l.host, l.spec)
	if err != nil {
		return nil, err
	}

	if l.contained == nil {
		// The container has its devices already, or none is started.
		l.env, l.passedOn = l.host.UnmaskedEnv(), true
		return l, nil
	}

	err = l.leaseDevices(ctx)
	if err == nil {
		err = l.makeEngineCommand()
	}

	if err != nil || l.isCreateOnly() {
		l.releaseLease()
		l.claimed, l.Lease = nil, ""
	}

	if err != nil {
		return nil, err
	}

	return l, nil
}

// ShowContainer returns the command line that the engine would be started with for a plan, as a note.
func ShowContainer(ctx context.Context, host *machine.Host, spec job.Spec, plan job.Plan) (string, error) {
	l := &Launch{host: host, spec: spec, Plan: plan, Lease: "LEASE"}
	var err error
	l.contained, l.spec, err = readContainer(ctx, host, spec)
	if err != nil {
		return "", err
	}
	if l.contained == nil {
		return "no container is started, or it has its devices already; nothing would be leased", nil
	}

	m, err := host.Read(ctx, gpu.Identity)
	if err != nil {
		return "", err
	}

	l.claimed = &claim.Decision{Machine: m}
	if !host.IsHardware() {
		// As where CDI lists its GPUs.
		for _, d := range m.Devices {
			l.contained.facts.Names = append(l.contained.facts.Names, container.CDIKinds()[d.Vendor]+"="+string(d.UUID))
		}
	}

	if err := l.makeEngineCommand(); err != nil {
		return "", err
	}

	return strings.Join(append(l.Plan.Notes[len(plan.Notes):], "the engine would be started as: "+shellquote.JoinQuoted(shellquote.Sh, l.argv...)), "; "), nil
}

// makeEngineCommand makes the command that of the engine with the devices of the lease.
func (l *Launch) makeEngineCommand() error {
	c := l.contained
	plan := l.Plan
	if c.names != nil {
		l.argv, l.Plan.Notes = l.spec.Command, append(l.Plan.Notes, c.notes...)
	} else {
		devices, err := l.leasedDevices()
		if err != nil {
			return err
		}

		form, err := container.ChooseForm(c.facts, devices)
		if err != nil {
			return &exit.Usage{Text: err.Error()}
		}
		if c.services != nil {
			return l.makeComposeCommand(form)
		}
		if err := c.checkDeviceFiles(form); err != nil {
			return err
		}

		labels := []string{"--label", engine.DevicesLabel + "=" + joinUUIDs(plan.UUIDs())}
		if c.call.Verb == "run" {
			labels = append(labels, "--label", engine.LeaseLabel+"="+l.Lease)
		}

		if len(devices) == 0 {
			labels = nil
		}

		c.form, c.labels = form, labels
		argv, notes, err := c.call.With(form, labels...)
		if err != nil {
			return &exit.Usage{Text: err.Error()}
		}

		l.argv, l.Plan.Notes = argv, append(l.Plan.Notes, notes...)
	}

	l.env = l.engineEnv()

	return nil
}

// engineEnv is the environment of the engine's command: numbers of this machine mean nothing in the container, and
// podman --env-host passes on what is set here.
func (l *Launch) engineEnv() visible.Env {
	var vars []visible.Var
	for _, v := range visible.ForJob(l.host.Env, "", l.Plan, job.UUIDs, gpu.Machine{}) {
		vars = append(vars, visible.Var{Name: v.Name, Unset: true})
	}
	return l.host.UnmaskedEnv().With(append(vars, visible.Var{Name: "GPUARD_LEASE", Unset: true}))
}

// checkDeviceFiles is an error where a device file is missing that the engine is about to be given.
func (c *containerCommand) checkDeviceFiles(form container.Form) error {
	for _, file := range form.DeviceFiles() {
		if files.Exists(file) {
			continue
		}
		why := "no CDI file lists this GPU"
		if len(c.facts.Broken) > 0 {
			why = "a CDI file cannot be read (" + strings.Join(c.facts.Broken, "; ") + ")"
		}

		return fmt.Errorf("cannot give %s to a container of %s: it is not there, and %s; list the GPUs for containers: sudo gpuard setup cdi", file, c.engine.Name, why)
	}
	return nil
}

func joinUUIDs(ids []gpu.UUID) string {
	var words []string
	for _, id := range ids {
		words = append(words, string(id))
	}
	return strings.Join(words, ",")
}

// leasedDevices are those of the lease, as they were read.
func (l *Launch) leasedDevices() (all []gpu.Device, err error) {
	for _, given := range l.Plan.Devices {
		d, slice, found := l.claimed.Machine.FindDevice(given.UUID)
		if !found {
			return nil, fmt.Errorf("cannot find GPU %d again", given.Index)
		}

		one := *d
		if slice != nil {
			one.UUID = slice.UUID
		}

		all = append(all, one)
	}
	return all, nil
}

// isCreateOnly reports whether the container is only created: it has its devices, and needs the lease at its start.
func (l *Launch) isCreateOnly() bool {
	return l.contained != nil && l.contained.call.Verb == "create"
}
