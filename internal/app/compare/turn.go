package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/experiment"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/sys"
)

// sampleEvery is the time between two readings of the devices.
const sampleEvery = 500 * time.Millisecond

// killGrace is the time between SIGTERM and SIGKILL.
const killGrace = 10 * time.Second

// loadVariable is the variable in which a load has the name of the command that it is for.
const loadVariable = "GPUARD_COMPARE"

// outputRead is how much of the end of an output is searched for metrics.
const outputRead = 4 << 20

// awaitedChildren knows which children are waited for.
type awaitedChildren struct {
	mu   sync.Mutex
	pids map[int]bool
}

func (a *awaitedChildren) isAwaited(pid int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pids[pid]
}

// startProcess starts a command; nothing else may reap it from then on.
func (a *awaitedChildren) startProcess(command batch.Command, null *os.File) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pid, err := batch.StartCommand(command, null)
	if err != nil {
		return pid, err
	}

	if a.pids == nil {
		a.pids = map[int]bool{}
	}

	a.pids[pid] = true

	return pid, err
}

// reapProcess reaps it.
func (a *awaitedChildren) reapProcess(pid int) {
	batch.ReapChild(pid)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pids, pid)
}

// runningStep is one step while it runs.
type runningStep struct {
	*experimentRun
	run     *experiment.Run
	meter   *experiment.Meter
	seats   []*claim.CommandLease // each once
	members []*stepCommand
	// One lease of all members.
	shared  bool
	began   time.Time
	sampled time.Time
}

// stepCommand is one command of a stage.
type stepCommand struct {
	command int
	seat    *claim.CommandLease
	// The logs of the command and of its load.
	logs [2]string
	pids [2]int
	// When its load began and ended, where there is one.
	began, ended time.Time
	how          batch.ExitStatus // that ended
	failed       bool
	peak         *gpu.Bytes
}

// Indexes of a member's processes.
const (
	ownProcess = iota
	loadProcess
)

// processExit is the end of a process.
type processExit struct {
	of  *stepCommand
	who int
	how batch.ExitStatus
	err error
	at  time.Time
}

// runTurn is one run of an arm: its steps, one after the other. An error ends the experiment.
func (x *experimentRun) runTurn(ctx context.Context, t experiment.Turn) (*experiment.Run, error) {
	run := &experiment.Run{Arm: t.Arm, Round: t.Round, Devices: []string{}, Commands: make([]experiment.Outcome, len(x.request.Commands))}
	for c := range run.Commands {
		run.Commands[c] = experiment.Outcome{Command: experiment.CommandLetter(c), Metrics: []experiment.Value{}}
	}

	meter := &experiment.Meter{}
	for _, step := range x.turnSteps(t) {
		s := &runningStep{experimentRun: x, run: run, meter: meter}
		if err := s.runStep(ctx, step); err != nil {
			return nil, err
		}
		if run.Problem != "" {
			break
		}
	}

	run.Use = meter.Use()

	return run, nil
}

// runStep leases for a step, runs it, and notes what was measured.
func (r *runningStep) runStep(ctx context.Context, what turnStep) (err error) {
	defer func() { err = cmp.Or(err, releaseLeases(r.seats)) }()

	r.seats, err = r.takeLeases(ctx, what)
	if err != nil {
		return cmp.Or(ctx.Err(), err)
	}

	for _, seat := range r.seats {
		for _, d := range seat.Plan.Devices {
			if id := string(d.UUID); !slices.Contains(r.run.Devices, id) {
				r.run.Devices = append(r.run.Devices, id)
			}
		}
	}

	r.shared = len(what.desks) < len(what.commands)
	r.startClock()

	for i, c := range what.commands {
		err = r.startMember(c, r.seats[min(i, len(r.seats)-1)])
		if err != nil {
			break
		}
	}

	if err == nil && r.request.Load != "" {
		r.startClock()
		for _, m := range r.members {
			err = r.startLoad(m)
			if err != nil {
				break
			}
		}
	}

	interrupted := r.awaitMembers(ctx, err != nil)
	if kerr := r.tree.Kill(job.KillGrace); kerr != nil {
		// What commands leave behind would disturb the next run.
		r.host.Say(kerr.Error())
	}

	r.recordStep()

	for _, m := range r.members {
		for _, pid := range m.pids {
			if pid != 0 {
				r.crew.reapProcess(pid)
			}
		}
	}

	return cmp.Or(err, interrupted)
}

// takeLeases leases for a step. It waits for one lease at a time and holds none meanwhile: two experiments that held
// one each would wait for each other for ever.
func (r *runningStep) takeLeases(ctx context.Context, what turnStep) (seats []*claim.CommandLease, err error) {
	name := r.leaseName(what)
	for first := 0; ; {
		seats = make([]*claim.CommandLease, len(what.desks))
		seats[first], err = what.desks[first].Wait(ctx, name, r.sayWaiting(r.host))
		if err != nil {
			return nil, err
		}

		busy := -1
		for i, desk := range what.desks {
			if i == first {
				continue
			}
			seats[i], err = desk.TryNow(ctx, name)
			if err != nil {
				seats[i], busy = nil, i
				break
			}
		}

		if busy < 0 {
			return seats, nil
		}

		var refusal *job.Refusal
		if !errors.As(err, &refusal) || refusal.Never {
			return takenLeases(seats), err
		}
		if err := releaseLeases(seats); err != nil {
			return nil, err
		}

		first = busy
	}
}

// takenLeases are those that there are.
func takenLeases(seats []*claim.CommandLease) []*claim.CommandLease {
	return slices.DeleteFunc(seats, func(s *claim.CommandLease) bool { return s == nil })
}

func releaseLeases(seats []*claim.CommandLease) (err error) {
	for _, seat := range takenLeases(seats) {
		err = cmp.Or(err, seat.Release())
	}
	return err
}

// startClock is when measuring begins.
func (r *runningStep) startClock() {
	r.began = time.Now()
	r.sampled = r.began
}

// leaseName is what the leases of a step are called.
func (r *runningStep) leaseName(what turnStep) string {
	var names []string
	for _, c := range what.commands {
		names = append(names, machine.BaseName(r.request.Commands[c].Argv))
	}
	return strings.Join(names, "+")
}

// startMember starts a command on a seat.
func (r *runningStep) startMember(c int, seat *claim.CommandLease) error {
	m, command := &stepCommand{command: c, seat: seat}, r.request.Commands[c]
	env := visible.Env(seat.Env).With(command.Env)
	if err := r.launchProcess(m, ownProcess, batch.Command{Path: r.paths[c], Dir: command.Dir, Argv: command.Argv, Env: env, Lease: seat.Lock}); err != nil {
		return err
	}

	r.members = append(r.members, m)
	if r.shared {
		// The lease stays this process's.
		return nil
	}

	return seat.Entrust(m.pids[ownProcess])
}

// startLoad starts what uses a command while it runs. It has no device.
func (r *runningStep) startLoad(m *stepCommand) error {
	env := visible.Env(claim.EnvWithoutDevices(r.host, job.Spec{CPU: true})).With([]visible.Var{{Name: loadVariable, Value: r.request.Commands[m.command].Name}})
	return r.launchProcess(m, loadProcess, batch.Command{Path: "/bin/sh", Argv: []string{"sh", "-c", r.request.Load}, Env: env})
}

// launchProcess starts one process of a member, with its output in a file.
func (r *runningStep) launchProcess(m *stepCommand, who int, command batch.Command) (err error) {
	name := fmt.Sprintf("%s-%d-%s%s.log", strings.ReplaceAll(string(r.run.Arm), ":", "-"), r.run.Round, experiment.CommandLetter(m.command), []string{"", "-load"}[who])
	m.logs[who] = filepath.Join(r.output, name)
	command.Log, err = sys.OpenFile(m.logs[who], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("cannot keep the output of the commands: %w", err)
	}

	defer command.Log.Close() //nolint:errcheck // the command has its own
	m.began = time.Now()
	m.pids[who], err = r.crew.startProcess(command, r.null)
	if err != nil {
		_ = os.Remove(m.logs[who])
		return fmt.Errorf("cannot run %q: %w", command.Argv[0], err)
	}

	return nil
}

// awaitMembers waits for all processes, and measures meanwhile. When one fails, or the experiment is to end, all are
// ended; at once where one could not be started.
func (r *runningStep) awaitMembers(ctx context.Context, incomplete bool) (interrupted error) {
	ended, left := make(chan processExit), 0
	for _, m := range r.members {
		for who, pid := range m.pids {
			if pid != 0 {
				left++
				go func() {
					how, err := batch.AwaitChild(pid)
					ended <- processExit{m, who, how, err, time.Now()}
				}()
			}
		}
	}

	tick := time.NewTicker(cmp.Or(r.host.Times.Sample, sampleEvery))
	defer tick.Stop()
	var kill <-chan time.Time
	stop := func() {
		if kill == nil {
			r.tree.SignalAll("SIGTERM")
			kill = time.After(killGrace)
		}
	}

	over := ctx.Done()
	if incomplete {
		stop()
	}

	for left > 0 {
		select {
		case e := <-ended:
			left--
			if r.recordEnd(e, kill != nil) {
				stop()
			}
		case <-tick.C:
			r.sampleDevices(ctx)
			r.showProgress(r.run.Arm, time.Since(r.began))
		case <-over:
			interrupted, over = ctx.Err(), nil
			stop()
		case <-kill:
			_ = r.tree.Kill(job.KillGrace)
		case <-r.again:
			_ = r.tree.Kill(job.KillGrace)
		}
	}

	return interrupted
}

// recordEnd notes the end of a process. The answer is whether the others are to end too: the run has failed, or all
// load is done.
func (r *runningStep) recordEnd(e processExit, stopping bool) bool {
	m, served := e.of, r.request.Load != ""
	if !m.ended.IsZero() {
		// A command whose load is done, or a load whose command has ended.
		return false
	}

	m.ended, m.how = e.at, e.how
	what := experiment.CommandLetter(m.command)
	if e.who == loadProcess {
		what = "the load of " + what
	}

	how := ""
	switch {
	case e.err != nil:
		how, m.how.Code = e.err.Error(), -1
	case e.how.Signal != "":
		how = "was ended by " + e.how.Signal
	case e.how.Code != 0:
		how = fmt.Sprintf("ended with exit code %d", e.how.Code)
	case served && e.who == ownProcess:
		how = "ended before its load"
	}

	if how != "" && !stopping {
		m.failed = true
		r.run.Problem = fmt.Sprintf("%s %s; its output: %s", what, how, m.logs[e.who])
	}

	return how != "" || served && !slices.ContainsFunc(r.members, func(m *stepCommand) bool { return m.ended.IsZero() })
}
