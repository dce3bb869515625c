package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/host/interrupt"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/store"
)

// Desk leases for many commands that one process starts beside each other: it reads and opens once what a run of its own
// would read and open each time, and needs no holder, because this process stays. It is for one goroutine; seats are not.
type Desk struct {
	app    *App
	spec   job.Spec
	self   proc.Stat
	folder *store.Folder // nil until something was claimed: closing it would drop the lock of everybody in this process
	boot   string
}

// Desk gets ready to lease what spec asks for.
func (a *App) Desk(ctx context.Context, spec job.Spec) (*Desk, error) {
	d := &Desk{app: a, spec: spec}
	if spec.CPU {
		return d, nil
	}
	var err error
	if d.self, err = a.Proc.Stat(os.Getpid()); err == nil {
		d.spec, err = a.harden(ctx, spec)
	}
	return d, err
}

// Seat is a lease for one command, together with what the command is to be given.
type Seat struct {
	Plan  job.Plan
	Lease string   // "" for a job without a device
	Env   []string // of the command
	Lock  *os.File // for the command too; nil without a lease

	desk     *Desk
	held     *store.Held
	machine  gpu.Machine
	pidfd    *os.File
	done     chan struct{} // closed when the lease is over; nil when nobody measures
	measured chan struct{}
}

// Try leases what is free now for a command of that name, or returns a *job.Refusal.
func (d *Desk) Try(ctx context.Context, command string) (*Seat, error) {
	return d.seat(ctx, command, func(c *claiming) (*decision, error) {
		for stale := 0; ; stale++ {
			c.question.last = stale >= rereads
			held, err := d.app.record(c.question, c.folder, c.boot, nil)
			if err == nil {
				return c.question.decided(held, c.folder), nil
			}
			if !errors.Is(err, errStale) {
				return nil, err
			}
			if err := c.read(ctx, c.app.machine); err != nil {
				return nil, err
			}
		}
	})
}

// Wait leases like everybody else: it stands in the line until a device is free, or ctx is over.
func (d *Desk) Wait(ctx context.Context, command string) (*Seat, error) {
	return d.seat(ctx, command, func(c *claiming) (*decision, error) {
		got, err := c.now(ctx)
		var refusal *job.Refusal
		if !errors.As(err, &refusal) || refusal.Never {
			return got, err
		}
		w := &waiting{claiming: c, began: time.Now(), awake: make(chan struct{}, 1), refusal: refusal, exits: map[blocking]<-chan struct{}{}}
		defer w.show(false)
		return w.queue(ctx, &interrupt.Caught{}) // signals are the caller's
	})
}

// seat asks, and gets everything ready for the command.
func (d *Desk) seat(ctx context.Context, command string, claim func(*claiming) (*decision, error)) (*Seat, error) {
	if d.spec.CPU {
		return &Seat{desk: d, Env: d.app.without(d.spec)}, nil
	}
	q, err := d.ask(ctx, subject{pid: os.Getpid(), start: d.self.Start, command: baseName([]string{command})})
	if err != nil {
		return nil, err
	}
	got, err := claim(&claiming{app: d.app, question: q, folder: d.folder, boot: d.boot})
	if err != nil {
		return nil, d.app.named(d.folder, err)
	}
	got.unwatch()
	vars, err := d.app.variablesOf(ctx, d.spec, got)
	if err != nil {
		return nil, err
	}
	return &Seat{Plan: got.Plan, Lease: got.Held.Lease.ID, Env: apply(d.app.unmasked(), vars), Lock: got.Held.Lock, desk: d, held: got.Held, machine: got.Machine}, nil
}

// ask reads the machine; the first time it also finds the folder.
func (d *Desk) ask(ctx context.Context, whose subject) (q *question, err error) {
	if d.folder == nil {
		q, folder, boot, err := d.app.ask(ctx, d.spec, whose)
		if err == nil {
			d.folder, d.boot = folder, boot
		}
		return q, err
	}
	rules, err := d.app.rules()
	if err != nil {
		return nil, err
	}
	q = &question{app: d.app, whose: whose, spec: d.spec, env: d.app.unmasked(), since: d.folder.Generation(d.boot), rules: rules}
	if q.machine, q.partial, err = d.app.glance(ctx, reading(d.spec)); err != nil && q.partial {
		q.partial = false
		q.machine, err = d.app.whole(ctx, reading(d.spec))
	}
	q.read = time.Now()
	return q, err
}

// Entrust notes that the lease is the process's, a child that was not waited for yet. A share is measured from then on.
func (s *Seat) Entrust(pid int) error {
	if s.held == nil {
		return nil
	}
	stat, err := s.desk.app.Proc.Stat(pid)
	if err != nil {
		return err
	}
	lease, err := s.desk.folder.Entrust(s.held.Lease, pid, stat.Start, s.desk.spec.Limit())
	s.held.Lease = lease
	if err != nil || lease.Share == 0 || lease.Quota == job.NoQuota {
		return err
	}
	if s.pidfd, err = launch.Pidfd(pid); err != nil {
		return err
	}
	s.done, s.measured = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(s.measured)
		guard(int(s.pidfd.Fd()), s.desk.folder, lease, s.done)
	}()
	return nil
}

// Leave gives the lease back when the command is gone. Where something that it left behind still has it, it stays for that, and
// says so.
func (s *Seat) Leave() error {
	if s.held == nil {
		return nil
	}
	_ = s.held.Lock.Close() // first: nobody waits for what measures
	if s.done != nil {
		close(s.done)
		defer func() {
			<-s.measured
			_ = s.pidfd.Close()
		}()
	}
	gone, err := s.desk.folder.End(s.held.Lease, s.held.Lease.Boot)
	if err != nil || gone {
		return err
	}
	return stillHeld(s.desk.app.Proc, s.desk.folder, s.held.Lease, os.Getpid())
}

// Touch keeps the lease young where old files are swept.
func (s *Seat) Touch() {
	if s.held != nil {
		s.desk.folder.Touch(s.held.Lease)
	}
}

// stillHeld notes who holds a lease whose command is gone, but for one who will let go by itself.
func stillHeld(processes proc.FS, folder *store.Folder, lease job.Lease, but int) error {
	dev, ino, err := folder.LockFile(lease)
	if err != nil {
		return err
	}
	holders := []job.Blocker{}
	for _, b := range processes.OpenBy(dev, ino) {
		if b.PID != but {
			b.Command = baseName(strings.Fields(b.Command)) // everybody may read a lease: names of commands, not their arguments
			holders = append(holders, b)
		}
	}
	if len(holders) == 0 {
		return nil
	}
	return folder.Mark(lease, holders)
}

// Portion is what each of n jobs on a device can be promised: an equal part of what the smallest device that the job could be
// given has for shares.
func (a *App) Portion(ctx context.Context, spec job.Spec, n int) (gpu.Bytes, error) {
	plan, m, err := a.decide(ctx, spec)
	reasons := plan.Reasons
	var refusal *job.Refusal
	if errors.As(err, &refusal) && !refusal.Never {
		reasons, err = refusal.Reasons, nil
	}
	least := gpu.Bytes(-1)
	for _, r := range reasons {
		d, _, found := m.Find(r.UUID)
		if !found || r.Verdict == job.Never {
			continue
		}
		room := pick.Promisable(d)
		if room == nil {
			return 0, fmt.Errorf("cannot share GPU %d among %d runs: its memory is not known; name a size: --share 8G", d.Index, n)
		}
		if least < 0 || *room < least {
			least = *room
		}
	}
	part := least / gpu.Bytes(n) / gpu.MiB * gpu.MiB
	if err == nil && part <= 0 {
		err = usagef("cannot run %d jobs on each GPU: there is no memory for that many", n)
	}
	return part, err
}

// Fault is what was wrong with the machine while the command ran, "" when nothing says that anything was.
func (s *Seat) Fault(ctx context.Context) string {
	if s.held == nil || !s.desk.app.hardware() {
		return ""
	}
	after, err := s.desk.app.machine(ctx, gpu.Identity|gpu.Load|gpu.Health)
	if err != nil {
		return "the GPUs cannot be read any more: " + err.Error()
	}
	fault, _ := health.Blame(s.machine, after, given(s.Plan), s.held.Lease.Since, time.Now())
	return fault
}
