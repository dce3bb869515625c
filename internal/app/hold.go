package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/quota"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/launch"
)

// Holding is a lease for the life of a process that this program did not start.
type Holding struct {
	Schema  string `json:"schema"` // "gpuard.hold/1"
	Lease   string `json:"lease"`
	PID     int    `json:"pid"`
	Already bool   `json:"already"` // the process had this lease before; nothing new was leased
	job.Plan
	Variables []visible.Var `json:"-"` // what would show that process these devices
}

// Hold leases for the life of pid and returns at once: a holder in the background keeps the lease and frees it when the
// process ends. A process that is on devices already gets those, unless others are named; else one that it sees, by the
// environment it was started with. One that has a lease keeps it. Only one's own processes (root: any) can be held for.
func (a *App) Hold(ctx context.Context, spec job.Spec, pid int) (*Holding, error) {
	h, m, err := a.hold(ctx, spec, pid, true)
	if err == nil {
		h.Notes = append(h.Notes, a.sees(pid, m, h.Plan)...)
	}
	return h, err
}

// Announce says in one line what was given, as for a launch.
func (h *Holding) Announce() string {
	if h.Already {
		return fmt.Sprintf("process %d already holds lease %s (%s)", h.PID, h.Lease, devicesOf(h.Plan))
	}
	return announce(h.Plan, h.Lease)
}

// Undo gives back what was leased for an answer that could not be delivered.
func (a *App) Undo(ctx context.Context, h *Holding) error {
	if h.Already || h.Lease == "" {
		return nil
	}
	_, err := a.Release(ctx, h.Lease)
	return err
}

// HoldShell is Hold for the shell that the caller's command substitution belongs to. The shell is about to get the
// variables, and its other jobs have nothing to do with the choice.
func (a *App) HoldShell(ctx context.Context, spec job.Spec) (*Holding, error) {
	shell := a.Proc.Shell(os.Getppid())
	h, _, err := a.hold(ctx, spec, shell, false)
	if err == nil {
		h.Variables = a.forShell(h.Variables)
	}
	return h, err
}

func (a *App) hold(ctx context.Context, spec job.Spec, pid int, running bool) (*Holding, gpu.Machine, error) {
	if pid == 1 && !a.insideFirst() {
		return nil, gpu.Machine{}, usagef("cannot hold for process 1: everything here runs in it, and the lease would end with the machine or the container; name the process that uses the GPU")
	}
	before, err := a.Proc.Stat(pid)
	if err != nil || before.State == "Z" {
		return nil, gpu.Machine{}, usagef("cannot hold for process %d: there is no such process", pid)
	}
	pidfd, err := launch.Pidfd(pid)
	if err != nil {
		return nil, gpu.Machine{}, err
	}
	defer pidfd.Close() //nolint:errcheck // close-on-exec anyway
	// The PID may have been used again between the two: then the descriptor means somebody else.
	if after, err := a.Proc.Stat(pid); err != nil || after.Start != before.Start {
		return nil, gpu.Machine{}, usagef("cannot hold for process %d: it has just ended", pid)
	}
	if uid, ok := a.Proc.Owner(pid); !a.Proc.Root() && (!ok || int(uid) != os.Geteuid()) {
		return nil, gpu.Machine{}, usagef("cannot hold for process %d: it belongs to %s, not to you", pid, a.Proc.Describe(pid).User)
	}
	name := baseName(strings.Fields(a.Proc.Describe(pid).Command))
	if running && (spec.Quota == job.MPS || spec.Require == job.MPS) {
		return nil, gpu.Machine{}, usagef("cannot hold for process %d through MPS: a program connects to it at its start; leave --quota mps out, or start the program by gpuard run", pid)
	}
	if spec, err = a.harden(ctx, spec); err != nil {
		return nil, gpu.Machine{}, err
	}
	d, err := a.claim(ctx, spec, subject{pid: pid, start: before.Start, command: name, running: running, apart: true})
	var had *had
	if errors.As(err, &had) && had.same {
		h := &Holding{Schema: "gpuard.hold/1", Lease: had.lease.ID, PID: pid, Plan: had.plan, Already: true}
		h.Variables = append(visible.WriteOver(a.Env, targets(had.plan), identifiers(spec, had.plan), had.machine), own(h.Lease, had.plan)...)
		if had.plan.Share > 0 && had.plan.Quota != job.MPS { // what leads through MPS was set when the lease was made
			h.Variables = append(h.Variables, quota.Settings(a.Env, had.plan.Share, largest(had.machine, had.plan), nil)...)
		}
		return h, had.machine, nil
	}
	if err != nil {
		return nil, gpu.Machine{}, err
	}
	defer d.Folder.Close() //nolint:errcheck // the holder has its own
	d.unwatch()
	if d.Held == nil { // fallen back to the CPU
		return a.holdNone(spec, pid, d.Plan), d.Machine, nil
	}
	vars, err := a.variablesOf(ctx, spec, d)
	if err != nil {
		return nil, gpu.Machine{}, err
	}
	fd, err := launch.Inherit(d.Held.Lock)
	if err == nil {
		err = launch.StartHolderFor(pidfd, fd, d.Folder.Path, d.Held.Lease.ID)
	}
	if err != nil {
		_ = d.Folder.Release(d.Held.Lease, d.Held.Lease.Boot)
		return nil, gpu.Machine{}, err
	}
	h := &Holding{Schema: "gpuard.hold/1", Lease: d.Held.Lease.ID, PID: pid, Plan: d.Plan, Variables: vars}
	return h, d.Machine, nil
}

// holdNone is what falling back to the CPU gives: no lease, and variables that hide every GPU.
func (a *App) holdNone(spec job.Spec, pid int, plan job.Plan) *Holding {
	vars := append(visible.WriteOver(a.Env, nil, spec.IDs, gpu.Machine{}), own("", plan)...)
	return &Holding{Schema: "gpuard.hold/1", PID: pid, Plan: plan, Variables: vars}
}

// insideFirst: the shell in which gpuard was typed is the first process of a container, which ends when it is left.
func (a *App) insideFirst() bool {
	initial, err := a.Proc.InitialPIDNamespace()
	return err == nil && !initial && a.Proc.Shell(os.Getppid()) == 1
}

// sees warns when the process, by the variables it started with, does not see what was leased for it.
func (a *App) sees(pid int, m gpu.Machine, plan job.Plan) []string {
	env, err := a.Proc.Environ(pid)
	if err != nil {
		return nil
	}
	hidden, _ := visible.Limit(env, m)
	var notes []string
	for _, d := range plan.Devices {
		if why, ok := hidden[d.UUID]; ok {
			notes = append(notes, fmt.Sprintf("process %d does not see GPU %d: %s (its environment when it started)", pid, d.Index, why))
		}
	}
	return slices.Compact(notes)
}
