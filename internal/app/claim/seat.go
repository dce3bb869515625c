package claim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/measure"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/quota"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/interrupt"
	"gpuard/internal/host/isolation"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/store"
)

// Allocator leases for many commands that one process runs at the same time. It reads and opens once what each gpuard
// run would, and needs no holder, because this process stays. A Allocator is for one goroutine; its seats are for any.
type Allocator struct {
	host *machine.Host
	spec job.Spec
	self proc.Stat
	*leaseFolder
}

// leaseFolder is the folder of the leases, of all desks of a process: closing one would release the folder lock of the
// whole process.
type leaseFolder struct {
	// nil until the first claim.
	folder *store.Folder
	boot   string
}

// OpenAllocator gets ready to lease what spec asks for.
func OpenAllocator(ctx context.Context, host *machine.Host, spec job.Spec) (*Allocator, error) {
	d := &Allocator{host: host, spec: spec, leaseFolder: &leaseFolder{}}
	var err error
	if spec.CPU {
		d.spec, err = host.SettleCommand(spec)
		return d, err
	}

	d.self, err = host.Proc.Stat(os.Getpid())
	if err != nil {
		return d, err
	}

	d.spec, err = SettleQuota(ctx, host, spec, true)

	if err != nil {
		return d, err
	}

	d.spec, err = host.SettleCommand(d.spec)

	return d, err
}

// For is a desk for another request of this process. The first claim of all is made by one goroutine alone.
func (a *Allocator) For(ctx context.Context, host *machine.Host, spec job.Spec) (*Allocator, error) {
	other, err := OpenAllocator(ctx, host, spec)
	if err != nil {
		return other, err
	}
	other.leaseFolder = a.leaseFolder

	return other, err
}

// Spec is what each command is given.
func (a *Allocator) Spec() job.Spec { return a.spec }

// CommandLease is a lease for one command, together with what the command is to be given.
type CommandLease struct {
	Plan job.Plan
	// "" for a job without a device.
	Lease string
	Env   []string // of the command
	// The lock of the lease, which the command gets too; nil without a lease.
	Lock *os.File
	Wall isolation.Wall
	// That it fell back to the CPU, which its owner must see; "" it did not.
	Said string

	desk *Allocator
	// The folder of the lease; nil without one. The allocator's is not read: it may be at its first claim.
	folder *store.Folder
	vars   []visible.Var
	// nil without a lease, and when another process has it (DropReference).
	held    *store.Held
	machine gpu.Machine
	since   time.Time // of the lease
	pidfd   *os.File
	// Closed when the lease is over; nil if no process measures.
	done     chan struct{}
	measured chan struct{}
}

// TryNow leases what is free now for a command that is called so, or returns a *job.Refusal.
func (a *Allocator) TryNow(ctx context.Context, command string) (*CommandLease, error) {
	return a.takeSeat(ctx, command, func(c *claimer) (*Decision, error) {
		for stale := 1; ; stale++ {
			held, err := claimLocked(a.host, c.request, c.folder, c.boot, nil)
			if err == nil {
				return c.request.newDecision(held, c.folder), nil
			}

			var refusal *job.Refusal
			if errors.As(err, &refusal) && refusal.Never {
				return c.fallBack(ctx, refusal)
			}
			if !errors.Is(err, errStale) {
				return nil, err
			}

			c.request.final = stale >= rereads
			if err := c.rereadChanged(ctx, readingTooOld, c.host.ReadFor); err != nil {
				return nil, err
			}
		}
	})
}

// Wait leases as gpuard run does: it falls back, or queues until a device is free, or ctx ends. queued is called when
// it is in the line.
func (a *Allocator) Wait(ctx context.Context, command string, queued func()) (*CommandLease, error) {
	return a.takeSeat(ctx, command, func(c *claimer) (*Decision, error) {
		got, err := c.claimNow(ctx)
		var refusal *job.Refusal
		if errors.As(err, &refusal) {
			got, err = c.fallBack(ctx, refusal)
		}

		if !errors.As(err, &refusal) || refusal.Never || !c.request.spec.Waiting.Waits() {
			return got, err
		}

		w := &waitingRequest{claimer: c, began: time.Now(), awake: make(chan struct{}, 1), refusal: refusal, exits: map[blockingProcess]<-chan struct{}{}, queued: queued}
		defer w.showProgress(false)

		// Signals are the caller's.
		return w.queueOnce(ctx, &interrupt.SignalCatcher{})
	})
}

// takeSeat asks, and gets everything ready for the command.
func (a *Allocator) takeSeat(ctx context.Context, command string, claim func(*claimer) (*Decision, error)) (*CommandLease, error) {
	if a.spec.CPU {
		return a.cpuSeat("")
	}

	said := ""
	host := *a.host
	host.Loud = func(text string) { said = text }
	q, err := a.newRequest(ctx, Subject{PID: os.Getpid(), Start: a.self.Start, Command: command})
	if refusal := unavailableRefusal(a.spec, err); refusal != nil {
		useCPU(&host, refusal)
		return a.cpuSeat(said)
	}

	if err != nil {
		return nil, err
	}

	got, err := claim(&claimer{host: &host, request: q, folder: a.folder, boot: a.boot})
	if err != nil {
		return nil, registry.NameLockHolder(a.host, a.folder, err)
	}
	if got.Held == nil {
		return a.cpuSeat(said)
	}

	got.Unwatch()
	vars, err := LeaseVariables(ctx, a.host, a.spec, got)
	if err != nil {
		return nil, err
	}

	return &CommandLease{Plan: got.Plan, Lease: got.Held.Lease.ID, Env: a.host.UnmaskedEnv().With(vars), Lock: got.Held.Lock, Wall: got.Wall, desk: a, folder: a.folder, vars: vars, held: got.Held, machine: got.Machine, since: got.Held.Lease.Since}, nil
}

// cpuSeat is the seat of a job without a device; said is why it fell back to that, "" where it asked for it.
func (a *Allocator) cpuSeat(said string) (*CommandLease, error) {
	vars := varsWithoutDevices(a.host, a.spec)
	plan := job.Plan{Isolation: a.spec.Isolate}
	wall, err := a.host.WallOf(plan, gpu.Machine{})
	if err != nil {
		return nil, err
	}

	return &CommandLease{Plan: plan, Wall: wall, desk: a, vars: vars, Env: a.host.UnmaskedEnv().With(vars), Said: said}, nil
}

// newRequest reads the machine; the first time it also finds the folder.
func (a *Allocator) newRequest(ctx context.Context, whose Subject) (q *request, err error) {
	if a.folder == nil {
		q, folder, boot, err := newRequest(ctx, a.host, a.spec, whose, gpu.Query{What: WhatToRead(a.spec)})
		if err != nil {
			return q, err
		}
		a.folder, a.boot = folder, boot

		return q, err
	}

	rules, err := a.host.Rules()
	if err != nil {
		return nil, err
	}

	q = &request{host: a.host, subject: whose, spec: a.spec, env: a.host.UnmaskedEnv(), since: a.folder.Generation(a.boot), rules: rules}
	q.machine, q.partial, err = readFirst(ctx, a.host, gpu.Query{What: WhatToRead(a.spec)})
	q.readAt = time.Now()

	return q, err
}

// Entrust notes that the lease is the process's, a child that was not waited for yet. From then on the lease is
// measured (measure.GuardLease).
func (c *CommandLease) Entrust(pid int) error {
	if c.held == nil {
		return nil
	}

	stat, err := c.desk.host.Proc.Stat(pid)
	if err != nil {
		return err
	}

	lease, err := c.folder.TransferLease(c.held.Lease, pid, stat.Start, c.desk.spec.TimeLimit())
	c.held.Lease = lease
	if err != nil {
		return err
	}

	c.pidfd, err = launch.OpenPidfd(pid)
	if err != nil {
		return err
	}

	c.done, c.measured = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(c.measured)
		measure.GuardLease(c.desk.host, int(c.pidfd.Fd()), c.folder, lease, c.done)
	}()

	return nil
}

// NoteEnd says how the command ended, for the line that the lease leaves, and what the caller has measured of it; 0
// nothing. Call it before Release.
func (c *CommandLease) NoteEnd(exit *int, signal string, peak gpu.Bytes) {
	if c.held != nil {
		c.held.Lease.Exit, c.held.Lease.Signal, c.held.Lease.Peak = exit, signal, peak
	}
}

// MeasuredUse is what was measured of a lease of this command: of the one that it ended with.
func (c *CommandLease) MeasuredUse(lease string) (used quota.Measured) {
	if c.folder != nil {
		used = c.desk.host.MeasuredUse(c.folder, lease, c.since)
	}
	return used
}

// Release frees the lease when the command is gone. If a process that it left behind still holds the lease, Release
// records that.
func (c *CommandLease) Release() error {
	if c.held == nil {
		return nil
	}

	defer c.folder.AnnounceEnd(c.held.Lease)()

	// First: the measuring process must not delay it.
	_ = c.held.Lock.Close()
	if c.done != nil {
		close(c.done)

		// It is measured as long as a process that was left behind has it.
		go func() {
			<-c.measured
			_ = c.pidfd.Close()
		}()
	}

	gone, err := c.folder.EndIfUnheld(c.held.Lease, c.held.Lease.Boot)
	if err != nil || gone {
		return err
	}

	return registry.NoteHolders(c.desk.host.Proc, c.folder, c.held.Lease, os.Getpid())
}

// TouchLease keeps the lease young where old files are swept.
func (c *CommandLease) TouchLease() {
	if c.held != nil {
		c.folder.TouchLease(c.held.Lease)
	}
}

// EqualShare is what each of n jobs on a device can be promised: an equal part of what the smallest device that the job
// could be given has for shares.
func EqualShare(ctx context.Context, host *machine.Host, spec job.Spec, n int) (gpu.Bytes, error) {
	plan, m, err := DecideNow(ctx, host, spec)
	reasons := plan.Reasons
	var refusal *job.Refusal
	if errors.As(err, &refusal) && !refusal.Never {
		reasons, err = refusal.Reasons, nil
	}

	least := gpu.Bytes(-1)
	for _, r := range reasons {
		d, _, found := m.FindDevice(r.UUID)
		if !found || r.Verdict == job.Never {
			continue
		}

		room := pick.ShareableMemory(d)
		if room == nil {
			return 0, fmt.Errorf("cannot share GPU %d among %d runs: its memory is not known; name a size: --share 8G", d.Index, n)
		}

		if least < 0 || *room < least {
			least = *room
		}
	}

	part := least / gpu.Bytes(n) / gpu.MiB * gpu.MiB
	if err == nil && part <= 0 {
		err = exit.Usagef("cannot run %d jobs on each GPU: there is no memory for that many", n)
	}

	return part, err
}

// FindFault is what was wrong with the machine while the command ran, "" when nothing says that anything was.
func (c *CommandLease) FindFault(ctx context.Context) string {
	if c.Lease == "" || !c.desk.host.IsHardware() {
		return ""
	}

	after, err := c.desk.host.Read(ctx, gpu.Identity|gpu.Load|gpu.Health)
	if err != nil {
		return "the GPUs cannot be read any more: " + err.Error()
	}

	fault, _ := health.BlameDevices(c.machine, after, c.Plan.UUIDs(), c.since, time.Now())

	return fault
}
