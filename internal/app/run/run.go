// Package run leases devices and starts the command on them: in place of this process, or beside it where --timeout,
// --retry, --log or --drift ask for that.
//
//	l, err := run.Prepare(ctx, host, spec) // the lease is held
//	if err == nil { err = l.Exec() }       // returns only on an error
package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/judge"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/verify"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/ranks"
	"gpuard/internal/host/isolation"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/limits"
	"gpuard/internal/host/logfile"
	"gpuard/internal/host/port"
	"gpuard/internal/host/store"
)

// Launch is a job about to start: its lease is held, and nothing can be refused any more.
type Launch struct {
	Plan job.Plan
	// "" for a job without a device.
	Lease string
	path  string
	argv  []string
	env   []string
	// Descriptors that the command gets; nil all.
	open    map[int]bool
	claimed *claim.Decision
	host    *machine.Host
	spec    job.Spec

	// That the output goes to; nil: none.
	log       *logfile.Log
	oversight *Oversight  // nil: not verified
	crew      *ranks.Plan // nil: one process
	// The port where the ranks meet, the same for all starts of the command; nil: none.
	meeting *port.KeptPort
	service serviceHooks
	wall    isolation.Wall
	// A command that starts a container; nil any other.
	contained *containerCommand
	// The command needs no lease of its own.
	passedOn bool
	// The parent of gpuard: while it lives it may start the command again (--keep-while).
	parent int
	// gpuard starts the command once more, and stays beside it.
	isRestart bool
	// That this process keeps; nil: gpuard was called by a user.
	task *Task
}

// Prepare finds the program and leases. On an error (*job.Refusal, *job.Late, a program that is not found, a state
// folder that cannot be used) nothing is left behind.
func Prepare(ctx context.Context, host *machine.Host, spec job.Spec) (*Launch, error) {
	return prepareStart(ctx, &Launch{host: host}, spec)
}

// prepareStart fills l, which has what remains from an earlier start.
func prepareStart(ctx context.Context, l *Launch, spec job.Spec) (*Launch, error) {
	l.argv, l.open, l.parent = spec.Command, launch.OpenDescriptors(), os.Getppid()
	if len(l.argv) == 0 {
		l.argv = []string{userShell(l.host)}
		spec.Command = l.argv
	}

	l.spec = spec
	if IsEngineCommand(spec.Command) {
		return l.prepareContainer(ctx)
	}

	// What it remarks was said where the job was asked for.
	_, err := judge.Command(l.host, spec, spec.Command, judge.Place{})
	if err != nil {
		return nil, err
	}

	err = l.findProgram(ctx)
	if err != nil {
		return nil, err
	}

	// After the program is found: a misspelt command must not take a GPU.
	err = l.leaseDevices(ctx)
	if err != nil {
		return nil, err
	}

	if spec.Ranks == nil {
		return l, nil
	}

	err = l.prepareRanks()
	if err != nil {
		l.releaseLease()
		return nil, err
	}

	return l, nil
}

// findProgram finds the program that is started.
func (l *Launch) findProgram(ctx context.Context) (err error) {
	if l.spec.Ranks != nil && l.spec.Ranks.Torchrun {
		l.path, l.argv, err = findTorchrun(ctx, l.host)
		return err
	}
	if l.task != nil {
		l.path = l.task.Path
		return nil
	}
	l.path, err = launch.FindCommand(l.argv[0])

	return err
}

// leaseDevices leases what the spec asks for, and sets the variables.
func (l *Launch) leaseDevices(ctx context.Context) error {
	host := l.host
	spec, err := host.SettleCommand(l.spec)
	if err != nil {
		return err
	}
	if spec.CPU {
		return l.useCPU(spec)
	}

	self, err := host.Proc.Stat(os.Getpid())
	if err == nil && spec.KeepWhile != "" {
		spec.KeepWhile, err = claim.KeptFile(host, spec)
		l.spec.KeepWhile = spec.KeepWhile
	}

	if err != nil {
		return err
	}

	spec, err = claim.SettleQuota(ctx, host, spec, l.isRestart)
	if err != nil {
		return err
	}

	d, err := claim.Claim(ctx, host, spec, claim.Subject{PID: os.Getpid(), Start: self.Start, Command: machine.JobName(spec)})
	if err != nil {
		return err
	}

	l.Plan = d.Plan
	if d.Held == nil {
		// Fallen back to the CPU.
		return l.useCPU(spec)
	}

	vars, err := claim.LeaseVariables(ctx, host, spec, d)
	if err != nil {
		return err
	}

	l.claimed, l.Plan, l.Lease, l.wall = d, d.Plan, d.Held.Lease.ID, d.Wall
	l.env = host.UnmaskedEnv().With(vars)

	return nil
}

// useCPU sets the variables of a job without a device.
func (l *Launch) useCPU(spec job.Spec) (err error) {
	l.Plan.Isolation = spec.Isolate
	l.wall, err = l.host.WallOf(l.Plan, gpu.Machine{})
	if err != nil {
		return err
	}

	l.env = claim.EnvWithoutDevices(l.host, l.spec)
	if l.spec.Ranks == nil {
		// Ranks share the processors (rankMembers).
		l.Plan.Notes = append(l.Plan.Notes, ranks.ThreadRemarks(l.host.Env, len(allowedCPUs()))...)
	}

	return nil
}

// Exec turns this process into the command and starts a holder that keeps the lease until the command is gone. It
// returns only if that fails, and then the lease is free.
func (l *Launch) Exec() error {
	var behind func(path string, argv, env []string) error
	if l.wall.Level != job.NoIsolation {
		behind = l.wall.Exec
	}

	if l.claimed == nil {
		l.keepPort(true)
		return launch.Exec(l.path, l.argv, l.env, l.open, -1, behind)
	}

	if l.claimed.Machine.Stuck {
		return l.runAsChild()
	}

	err := l.execWithHolder(behind)
	l.releaseLease()

	return err
}

// execWithHolder starts what remains beside the command, and executes it. It returns only if that fails.
func (l *Launch) execWithHolder(behind func(path string, argv, env []string) error) error {
	lock, err := launch.DupInheritable(l.claimed.Held.Lock)
	if err != nil {
		return err
	}

	err = l.startHolder(lock)
	if err != nil {
		return err
	}

	_ = l.claimed.Watch.Close()
	err = l.startVerifier(os.Getpid())
	if err != nil {
		return err
	}

	l.keepPort(true)

	return launch.Exec(l.path, l.argv, l.env, l.open, lock, behind)
}

// startHolder starts the holder, where this process can have one.
func (l *Launch) startHolder(lock int) error {
	if launch.CanHold() {
		words, err := l.holderOrders().Words()
		if err != nil {
			return err
		}

		return launch.StartHolder(lock, l.claimed.Watch, words...)
	}
	if l.spec.Timeout > 0 {
		return errors.New("cannot use --keep-while here: a rule limits the time of the lease, and where gpuard is the first process of a container no process can enforce that; leave it out")
	}

	return nil
}

// releaseLease gives the lease back.
func (l *Launch) releaseLease() {
	if l.claimed != nil {
		_ = l.claimed.Folder.Release(l.claimed.Held.Lease, l.claimed.Held.Lease.Boot)
		_ = l.claimed.Held.Lock.Close()
	}
}

// runAsChild runs the command as a child. This process cannot become the command while one of its threads is inside a
// driver call that hangs: execve(2) waits for that thread.
func (l *Launch) runAsChild() error {
	l.host.SurviveDriver()
	child, err := l.startChild(launch.Command{}, 0)
	if err != nil {
		return err
	}

	l.host.Say(fmt.Sprintf("a driver call hangs, so the command runs as process %d beside gpuard", child.PID()))
	child.WaitAndExit()

	return nil
}

// startChild runs the command as a child, with the streams of c. The child has the lease and a holder of its own, and
// nothing of the lease stays here: what becomes of this process does not matter to it. most is how long it may run, 0
// without a limit.
func (l *Launch) startChild(c launch.Command, most time.Duration) (*launch.Child, error) {
	var err error
	c.Env, c.Before = l.env, l.open
	c.Path, c.Argv, err = l.wall.Command(l.path, l.argv)
	if err != nil {
		l.releaseLease()
		return nil, err
	}

	if l.task != nil && l.task.Limits != "" {
		c.Path, c.Argv = limits.ExecCommand(l.task.Limits, c.Path, c.Argv)
	}

	l.keepPort(true)
	defer l.keepPort(false)
	noted := func(child *launch.Child) error {
		if l.task != nil {
			l.task.notes.Started(child.PID(), l.Lease, l.Plan.Devices)
		}
		return nil
	}

	c.Born = noted
	if l.claimed == nil {
		return c.Start()
	}

	c.Keep, err = launch.DupInheritable(l.claimed.Held.Lock)
	if err != nil {
		l.releaseLease()
		return nil, err
	}

	c.Born = func(child *launch.Child) error {
		// First: from now on its end is known, whatever becomes of this process.
		_ = noted(child)
		return l.handOver(child, c.Keep, most)
	}

	child, err := c.Start()

	// Not before: the child would have the last one, and its exec would wait for the close.
	l.claimed.Unwatch()
	if err != nil {
		l.releaseLease()
	}

	return child, err
}

// handOver makes the lease the child's.
func (l *Launch) handOver(child *launch.Child, keep int, most time.Duration) error {
	s, err := l.host.Proc.Stat(child.PID())
	if err != nil {
		return err
	}

	lease, err := l.claimed.Folder.TransferLease(l.claimed.Held.Lease, child.PID(), s.Start, most)
	switch {
	case errors.Is(err, store.ErrReleased):
		l.host.Say(fmt.Sprintf("lease %s was released while its command started", l.Lease))
	case err != nil:
		// The lease is held all the same.
		l.host.Say(err.Error())
	}

	l.claimed.Held.Lease = lease
	orders := l.holderOrders()
	switch {
	case most > 0 && err == nil:
		l.endInTime(orders, lease.Until)
	case most > 0:
		// When it has certainly ended is not noted.
		orders.Until = 0
	}

	words, err := orders.Words()
	if err != nil {
		return err
	}

	err = child.StartHolder(keep, l.claimed.Held.Lock, words...)
	if err != nil {
		return err
	}

	switch {
	case !l.claimed.Machine.Stuck:
		return l.startVerifier(child.PID())
	case l.oversight != nil:
		// The command runs even if this cannot be written.
		_ = verify.HangingResult(child.PID(), machine.BaseName(l.spec.Command), l.claimed.Machine, l.claimed.Held.Lease).Print(os.Stderr, l.oversight.JSON)
	}

	return nil
}

// userShell is what a run without a command starts: the user's own, unless it cannot be started.
func userShell(host *machine.Host) string {
	s, _ := host.Env.Lookup("SHELL")
	if !strings.HasPrefix(s, "/") {
		return "/bin/sh"
	}
	if _, err := launch.FindCommand(s); err != nil {
		host.Say(fmt.Sprintf("%v, which SHELL names; starting /bin/sh instead", err))
		return "/bin/sh"
	}

	return s
}

// PlanLine says in one line what was given: "GPU 2 (NVIDIA A100-SXM4-80GB) is cuda:0, lease k3f9"; "" where nothing was
// asked for, as for a process in a container that runs.
func (l *Launch) PlanLine() string {
	if l.passedOn {
		return ""
	}
	if l.isCreateOnly() {
		return strings.TrimSuffix(claim.PlanLine(l.Plan, ""), ", lease ") + ", leased when it starts"
	}

	line := claim.PlanLine(l.Plan, l.Lease)
	if l.crew != nil {
		line += "; " + l.crew.String()
	}

	return line
}
