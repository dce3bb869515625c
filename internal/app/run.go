package app

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/launch"
)

// Launch is a job about to start: its lease is held, and nothing can be refused any more.
type Launch struct {
	Plan  job.Plan
	Lease string // "" for a job without a device
	path  string
	argv  []string
	env   []string
	open  map[int]bool
	held  *decision
	say   func(string)

	oversight *Oversight // nil: not verified
}

// Prepare chooses and leases, and returns a *job.Refusal, a command error or a state error with nothing left behind.
func (a *App) Prepare(ctx context.Context, spec job.Spec) (*Launch, error) {
	l := &Launch{argv: spec.Command, open: launch.OpenDescriptors()}
	if len(l.argv) == 0 {
		l.argv = []string{a.shell()}
		spec.Command = l.argv
	}
	var err error
	if l.path, err = launch.Find(l.argv[0]); err != nil {
		return nil, err // before claiming: a misspelt command must not cost anybody a GPU
	}
	if spec.CPU {
		l.env = apply(a.Env, append(visible.WriteOver(a.Env, nil, visible.Form(spec.IDs), gpu.Machine{}), own("", job.Plan{})...))
		return l, nil
	}
	self, err := a.Proc.Stat(os.Getpid())
	if err != nil {
		return nil, err
	}
	d, err := a.claim(ctx, spec, subject{pid: os.Getpid(), start: self.Start, command: baseName(l.argv)})
	if err != nil {
		return nil, err
	}
	l.held, l.Plan, l.Lease, l.say = d, d.Plan, d.Held.Lease.ID, a.Say
	vars := append(visible.WriteOver(a.Env, targets(d.Plan), visible.Form(spec.IDs), d.Machine), own(l.Lease, d.Plan)...)
	l.env = apply(a.Env, vars)
	return l, nil
}

// Exec turns this process into the command, beside a holder that keeps the lease until the command is gone.
// It returns only when that fails, and then the lease is gone.
func (l *Launch) Exec() error {
	if l.held == nil {
		return launch.Exec(l.path, l.argv, l.env, l.open, -1)
	}
	fd, err := launch.Inherit(l.held.Held.Lock)
	if err == nil && l.held.Machine.Stuck {
		return l.beside(fd)
	}
	if err == nil && launch.CanHold() {
		err = launch.StartHolder(fd, l.held.Folder.Path, l.Lease)
	}
	if err == nil {
		err = l.verifier()
	}
	if err == nil {
		err = launch.Exec(l.path, l.argv, l.env, l.open, fd)
	}
	_ = l.held.Folder.Release(l.held.Held.Lease, l.held.Held.Lease.Boot)
	return err
}

// beside runs the command as a child. This process cannot become the command while one of its threads is inside a driver
// that does not answer: exec waits for that thread. The child has the lease, and nothing of the lease stays here.
func (l *Launch) beside(fd int) error {
	child, err := launch.Start(l.path, l.argv, l.env)
	if err == nil {
		err = child.Hold(fd, l.held.Held.Lock, l.held.Folder.Path, l.Lease)
	}
	if err != nil {
		_ = l.held.Folder.Release(l.held.Held.Lease, l.held.Held.Lease.Boot)
		return err
	}
	l.say(fmt.Sprintf("a driver call hangs, so the command runs as process %d beside gpuard", child.PID()))
	if l.oversight != nil {
		_ = l.unverified(child.PID()).tell(os.Stderr, l.oversight.JSON) // the command runs, whoever hears of it
	}
	child.Exit()
	return nil
}

// shell is what a run without a command starts: the user's own, unless it cannot be started.
func (a *App) shell() string {
	s, _ := a.Env.Lookup("SHELL")
	if !strings.HasPrefix(s, "/") {
		return "/bin/sh"
	}
	if _, err := launch.Find(s); err != nil {
		a.Say(fmt.Sprintf("%v, which SHELL names; starting /bin/sh instead", err))
		return "/bin/sh"
	}
	return s
}

// Decide answers what Prepare would decide now, and records nothing.
func (a *App) Decide(ctx context.Context, spec job.Spec) (job.Plan, error) {
	plan, m, err := a.decide(ctx, spec)
	if err == nil && a.hardware() && !spec.CPU {
		path, _, _ := a.place(m)
		err = a.shared(path)
	}
	return plan, err
}

func (a *App) decide(ctx context.Context, spec job.Spec) (job.Plan, gpu.Machine, error) {
	if spec.CPU {
		return job.Plan{Devices: []job.Given{}, Reasons: []job.Reason{}, Notes: []string{}}, gpu.Machine{}, nil
	}
	m, err := a.machine(ctx, reading(spec))
	if err != nil {
		return job.Plan{}, m, err
	}
	held, _, err := a.leases(m)
	if err != nil {
		return job.Plan{}, m, err
	}
	q := question{app: a, spec: spec, machine: m, names: a.ownerNames(held), env: a.Env}
	plan, refusal := q.decide(held, a.last(m), time.Now())
	if refusal != nil {
		return plan, m, refusal
	}
	return plan, m, nil
}

func targets(p job.Plan) []visible.Target {
	out := make([]visible.Target, len(p.Devices))
	for i, d := range p.Devices {
		out[i] = visible.Target{UUID: d.UUID, Index: d.Index, Vendor: d.Vendor, MIG: d.Parent != ""}
	}
	return out
}

// own are gpuard's own variables beside the vendors'.
func own(lease string, p job.Plan) []visible.Var {
	ids := make([]string, len(p.Devices))
	for i, d := range p.Devices {
		ids[i] = string(d.UUID)
	}
	return []visible.Var{
		{Name: "GPUARD_LEASE", Value: lease, Unset: lease == ""},
		{Name: "GPUARD_GPUS", Value: strings.Join(ids, ",")},
	}
}

// apply replaces variables; a name that stood there twice stands there once.
func apply(env visible.Env, vars []visible.Var) []string {
	set := make(map[string]bool, len(vars))
	for _, v := range vars {
		set[v.Name] = true
	}
	out := make([]string, 0, len(env)+len(vars))
	for _, pair := range env {
		if name, _, _ := strings.Cut(pair, "="); !set[name] {
			out = append(out, pair)
		}
	}
	for _, v := range vars {
		if !v.Unset {
			out = append(out, v.Name+"="+v.Value)
		}
	}
	return out
}

// Announce says in one line what was given: "GPU 2 (NVIDIA A100-SXM4-80GB) is cuda:0, lease k3f9".
func (l *Launch) Announce() string { return announce(l.Plan, l.Lease) }

// announce is the same line for any plan.
func announce(plan job.Plan, lease string) string {
	if len(plan.Devices) == 0 {
		return "no GPU is visible to this job"
	}
	parts := make([]string, len(plan.Devices))
	for i, d := range plan.Devices {
		parts[i] = fmt.Sprintf("%s is %s:%d", d, d.Runtime(), d.Logical)
	}
	return strings.Join(parts, ", ") + ", lease " + lease
}
