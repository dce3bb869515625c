package leases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/holder"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/quota"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/launch"
)

// HeldLease is a lease without a command of its own.
type HeldLease struct {
	Schema string `json:"schema"` // "gpuard.reserve/1"
	Lease  string `json:"lease"`
	// The process that it ends with; of a lease for a time, one that sleeps until then.
	PID int `json:"pid"`
	// When it ends by itself, for a process by a rule's time; null only with its process.
	Until *time.Time `json:"until"`
	// The process had this lease before; nothing new was leased.
	Already bool `json:"already"`
	// The rule that gave Until to a process or a shell; "" none did.
	Limit string `json:"-"`
	job.Plan
	// What would show that process these devices.
	Variables []visible.Var `json:"-"`
}

const reserveSchema = "gpuard.reserve/1"

// HoldProcess leases for the life of pid and returns immediately: a holder in the background frees the lease when the
// process ends. A process that uses devices already gets those, unless others are named; else one that it sees with the
// environment of its start. A process that has a lease keeps it. Only the caller's own processes (root: any) can get
// one. Where a rule limits the time, the lease ends with it.
func HoldProcess(ctx context.Context, host *machine.Host, spec job.Spec, pid int) (*HeldLease, error) {
	h, m, err := holdFor(ctx, host, spec, pid, true)
	if err != nil {
		return h, err
	}
	h.Notes = append(h.Notes, visibilityNotes(host, pid, m, h.Plan)...)

	return h, err
}

// PlanLine says in one line what was given, as for a launch.
func (h *HeldLease) PlanLine() string {
	if h.Already {
		return fmt.Sprintf("process %d already holds lease %s (%s)", h.PID, h.Lease, h.DeviceNumbers())
	}
	return claim.PlanLine(h.Plan, h.Lease)
}

// UndoHold gives back what was leased for an answer that could not be delivered.
func UndoHold(ctx context.Context, host *machine.Host, h *HeldLease) error {
	if h.Already || h.Lease == "" {
		return nil
	}
	_, err := Release(ctx, host, h.Lease)
	return err
}

// HoldShell is HoldProcess for the shell that the caller's command substitution belongs to. The shell is about to get
// the variables, and its other jobs have nothing to do with the choice.
func HoldShell(ctx context.Context, host *machine.Host, spec job.Spec) (*HeldLease, error) {
	shell := host.Proc.Shell(os.Getppid())
	h, _, err := holdFor(ctx, host, spec, shell, false)
	if err != nil {
		return h, err
	}

	h.Variables = host.VarsForShell(h.Variables)

	return h, err
}

func holdFor(ctx context.Context, host *machine.Host, spec job.Spec, pid int, running bool) (*HeldLease, gpu.Machine, error) {
	if pid == 1 && !isContainerShell(host) {
		return nil, gpu.Machine{}, exit.Usagef("cannot lease for process 1: everything here runs in it, and the lease would end with the machine or the container; name the process that uses the GPU")
	}

	start, pidfd, err := openOwn(host, pid)
	if err != nil {
		return nil, gpu.Machine{}, err
	}

	defer pidfd.Close() //nolint:errcheck // close-on-exec anyway
	name := machine.BaseName(strings.Fields(host.Proc.DescribeProcess(pid).Command))
	if running && (spec.Quota == job.MPS || spec.Require == job.MPS) {
		return nil, gpu.Machine{}, exit.Usagef("cannot lease for process %d through MPS: a program connects to it at its start; leave --quota mps out, or start the program by gpuard run", pid)
	}

	spec, err = claim.SettleQuota(ctx, host, spec, false)
	if err != nil {
		return nil, gpu.Machine{}, err
	}

	d, err := claim.Claim(ctx, host, spec, claim.Subject{PID: pid, Start: start, Command: name, Running: running, Apart: true})
	var had *claim.AlreadyHeld
	if errors.As(err, &had) && had.Same {
		h := &HeldLease{Schema: reserveSchema, Lease: had.Lease.ID, PID: pid, Plan: had.Plan, Already: true}

		// The end of another lease is that of its command.
		if up, err := host.Proc.Uptime(); err == nil && had.Lease.Apart && had.Lease.Until > 0 {
			h.Limit, h.Until = "a rule", new(time.Now().Add(time.Duration(had.Lease.Until)-up).Truncate(time.Second))
		}

		h.Variables = visible.ForJob(host.Env, h.Lease, had.Plan, claim.FormOfIDs(spec, had.Plan), had.Machine)
		if had.Plan.Share > 0 && had.Plan.Quota != job.MPS {
			// What leads through MPS was set when the lease was made.
			h.Variables = append(h.Variables, quota.ShareVars(host.Env, had.Plan.Share, claim.LargestMemory(had.Machine, had.Plan), nil)...)
		}

		return h, had.Machine, nil
	}

	if err != nil {
		return nil, gpu.Machine{}, err
	}
	if d.Held == nil {
		// Fallen back to the CPU.
		return emptyHolding(host, spec, pid, d.Plan), d.Machine, nil
	}

	defer d.Folder.Close() //nolint:errcheck // the holder has its own
	d.Unwatch()
	vars, err := claim.LeaseVariables(ctx, host, spec, d)
	if err != nil {
		return nil, gpu.Machine{}, err
	}

	h := &HeldLease{Schema: reserveSchema, Lease: d.Held.Lease.ID, PID: pid, Plan: d.Plan, Variables: vars}
	if err := startHolder(host, d, pidfd, h); err != nil {
		_ = d.Folder.Release(d.Held.Lease, d.Held.Lease.Boot)
		return nil, gpu.Machine{}, err
	}

	return h, d.Machine, nil
}

// startHolder gives the lease to a holder that ends it with the process of pidfd, or as soon as the time of a rule is
// over: then the process goes on without it, as after gpuard release.
func startHolder(host *machine.Host, d *claim.Decision, pidfd *os.File, h *HeldLease) error {
	orders := holder.Orders{Folder: d.Folder.Path, Lease: d.Held.Lease.ID, Starter: os.Getpid()}
	limits, err := host.Limits()
	if err != nil {
		return err
	}

	if rule := limits.ShortestTime(); rule != nil {
		lease, err := d.Folder.TransferLease(d.Held.Lease, h.PID, d.Held.Lease.Start, rule.Time)
		if err != nil {
			return err
		}
		h.Limit, h.Until = rule.String(), new(time.Now().Add(rule.Time).Truncate(time.Second))
		orders.Until = lease.Until
	}

	words, err := orders.Words()
	if err != nil {
		return err
	}

	fd, err := launch.DupInheritable(d.Held.Lock)
	if err != nil {
		return err
	}

	return launch.StartHolderFor(pidfd, fd, words...)
}

// openOwn gives a descriptor of a living process that the caller may lease for, and when it started, in ticks since
// boot.
func openOwn(host *machine.Host, pid int) (start uint64, pidfd *os.File, err error) {
	if why := host.Proc.MissingReason(pid); why != "" {
		return 0, nil, exit.Usagef("cannot lease for process %d: %s", pid, why)
	}

	owner, known := host.Proc.Owner(pid)
	if !host.Proc.IsRoot() && (!known || int(owner) != os.Geteuid()) {
		return 0, nil, exit.Usagef("cannot lease for process %d: it belongs to %s, not to you", pid, host.Proc.DescribeProcess(pid).User)
	}

	before, err := host.Proc.Stat(pid)
	if err != nil {
		return 0, nil, exit.Usagef("cannot lease for process %d: it has just ended", pid)
	}

	pidfd, err = openProcess(host, pid, before.Start, owner)
	if err != nil {
		return 0, nil, exit.Usagef("cannot lease for process %d: %s", pid, err)
	}

	return before.Start, pidfd, nil
}

// emptyHolding is what falling back to the CPU gives: no lease, and variables that hide every GPU.
func emptyHolding(host *machine.Host, spec job.Spec, pid int, plan job.Plan) *HeldLease {
	vars := visible.ForJob(host.Env, "", plan, spec.IDs, gpu.Machine{})
	return &HeldLease{Schema: reserveSchema, PID: pid, Plan: plan, Variables: vars}
}

// isContainerShell: the shell in which gpuard was typed is the first process of a container, which ends when it is
// left.
func isContainerShell(host *machine.Host) bool {
	initial, err := host.Proc.InitialPIDNamespace()
	return err == nil && !initial && host.Proc.Shell(os.Getppid()) == 1
}

// visibilityNotes warns when the process, by the variables it started with, does not see what was leased for it.
func visibilityNotes(host *machine.Host, pid int, m gpu.Machine, plan job.Plan) []string {
	env, err := host.Proc.Environ(pid)
	if err != nil {
		return nil
	}

	hidden, _ := visible.HiddenDevices(env, m)
	var notes []string
	for _, d := range plan.Devices {
		if why, ok := hidden[d.UUID]; ok {
			notes = append(notes, fmt.Sprintf("process %d does not see GPU %d: %s (its environment when it started)", pid, d.Index, why))
		}
	}

	return slices.Compact(notes)
}
