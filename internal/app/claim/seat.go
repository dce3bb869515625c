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
func (d *Allocator) For(ctx context.Context, host *machine.Host, spec job.Spec) (*Allocator, error) {
	other, err := OpenAllocator(ctx, host, spec)
	if err != nil {
		return other, err
	}
	other.leaseFolder = d.leaseFolder

	return other, err
}

// Spec is what each command is given.
func (d *Allocator) Spec() job.Spec { return d.spec }

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
func (d *Allocator) TryNow(ctx context.Context, command string) (*CommandLease, error) {
	return d.takeSeat(ctx, command, func(c *claimer) (*Decision, error) {
		for stale := 1; ; stale++ {
			held, err := claimLocked(d.host, c.request, c.folder, c.boot, nil)
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
func (d *Allocator) Wait(ctx context.Context, command string, queued func()) (*CommandLease, error) {
	return d.takeSeat(ctx, command, func(c *claimer) (*Decision, error) {
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
func (d *Allocator) takeSeat(ctx context.Context, command string, claim func(*claimer) (*Decision, error)) (*CommandLease, error) {
	if d.spec.CPU {
		return d.cpuSeat("")
	}

	said := ""
	host := *d.host
	host.Loud = func(text string) { said = text }
	q, err := d.newRequest(ctx, Subject{PID: os.Getpid(), Start: d.self.Start, Command: command})
	if refusal := unavailableRefusal(d.spec, err); refusal != nil {
		useCPU(&host, refusal)
		return d.cpuSeat(said)
	}

	if err != nil {
		return nil, err
	}

	got, err := claim(&claimer{host: &host, request: q, folder: d.folder, boot: d.boot})
	if err != nil {
		return nil, registry.NameLockHolder(d.host, d.folder, err)
	}
	if got.Held == nil {
		return d.cpuSeat(said)
	}

	got.Unwatch()
	vars, err := LeaseVariables(ctx, d.host, d.spec, got)
	if err != nil {
		return nil, err
	}

	return &CommandLease{Plan: got.Plan, Lease: got.Held.Lease.ID, Env: d.host.UnmaskedEnv().With(vars), Lock: got.Held.Lock, Wall: got.Wall, desk: d, folder: d.folder, vars: vars, held: got.Held, machine: got.Machine, since: got.Held.Lease.Since}, nil
}

// cpuSeat is the seat of a job without a device; said is why it fell back to that, "" where it asked for it.
func (d *Allocator) cpuSeat(said string) (*CommandLease, error) {
	vars := varsWithoutDevices(d.host, d.spec)
	plan := job.Plan{Isolation: d.spec.Isolate}
	wall, err := d.host.WallOf(plan, gpu.Machine{})
	if err != nil {
		return nil, err
	}

	return &CommandLease{Plan: plan, Wall: wall, desk: d, vars: vars, Env: d.host.UnmaskedEnv().With(vars), Said: said}, nil
}

// newRequest reads the machine; the first time it also finds the folder.
func (d *Allocator) newRequest(ctx context.Context, whose Subject) (q *request, err error) {
	if d.folder == nil {
		q, folder, boot, err := newRequest(ctx, d.host, d.spec, whose, gpu.Query{What: WhatToRead(d.spec)})
		if err != nil {
			return q, err
		}
		d.folder, d.boot = folder, boot

		return q, err
	}

	rules, err := d.host.Rules()
	if err != nil {
		return nil, err
	}

	q = &request{host: d.host, subject: whose, spec: d.spec, env: d.host.UnmaskedEnv(), since: d.folder.Generation(d.boot), rules: rules}
	q.machine, q.partial, err = readFirst(ctx, d.host, gpu.Query{What: WhatToRead(d.spec)})
	q.readAt = time.Now()

	return q, err
}

// Entrust notes that the lease is the process's, a child that was not waited for yet. From then on the lease is
// measured (measure.GuardLease).
func (s *CommandLease) Entrust(pid int) error {
	if s.held == nil {
		return nil
	}

	stat, err := s.desk.host.Proc.Stat(pid)
	if err != nil {
		return err
	}

	lease, err := s.folder.TransferLease(s.held.Lease, pid, stat.Start, s.desk.spec.TimeLimit())
	s.held.Lease = lease
	if err != nil {
		return err
	}

	s.pidfd, err = launch.OpenPidfd(pid)
	if err != nil {
		return err
	}

	s.done, s.measured = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(s.measured)
		measure.GuardLease(s.desk.host, int(s.pidfd.Fd()), s.folder, lease, s.done)
	}()

	return nil
}

// NoteEnd says how the command ended, for the line that the lease leaves, and what the caller has measured of it; 0
// nothing. Call it before Release.
func (s *CommandLease) NoteEnd(exit *int, signal string, peak gpu.Bytes) {
	if s.held != nil {
		s.held.Lease.Exit, s.held.Lease.Signal, s.held.Lease.Peak = exit, signal, peak
	}
}

// MeasuredUse is what was measured of a lease of this command: of the one that it ended with.
func (s *CommandLease) MeasuredUse(lease string) (used quota.Measured) {
	if s.folder != nil {
		used = s.desk.host.MeasuredUse(s.folder, lease, s.since)
	}
	return used
}

// Release frees the lease when the command is gone. If a process that it left behind still holds the lease, Release
// records that.
func (s *CommandLease) Release() error {
	if s.held == nil {
		return nil
	}

	defer s.folder.AnnounceEnd(s.held.Lease)()

	// First: the measuring process must not delay it.
	_ = s.held.Lock.Close()
	if s.done != nil {
		close(s.done)

		// It is measured as long as a process that was left behind has it.
		go func() {
			<-s.measured
			_ = s.pidfd.Close()
		}()
	}

	gone, err := s.folder.EndIfUnheld(s.held.Lease, s.held.Lease.Boot)
	if err != nil || gone {
		return err
	}

	return registry.NoteHolders(s.desk.host.Proc, s.folder, s.held.Lease, os.Getpid())
}

// TouchLease keeps the lease young where old files are swept.
func (s *CommandLease) TouchLease() {
	if s.held != nil {
		s.folder.TouchLease(s.held.Lease)
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
func (s *CommandLease) FindFault(ctx context.Context) string {
	if s.Lease == "" || !s.desk.host.IsHardware() {
		return ""
	}

	after, err := s.desk.host.Read(ctx, gpu.Identity|gpu.Load|gpu.Health)
	if err != nil {
		return "the GPUs cannot be read any more: " + err.Error()
	}

	fault, _ := health.BlameDevices(s.machine, after, s.Plan.UUIDs(), s.since, time.Now())

	return fault
}
