package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"gpuard/internal/app/claim"
	apprun "gpuard/internal/app/run"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/job"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/limits"
	"gpuard/internal/host/sys"
)

// startRun starts a run. Nothing else is started between its Begin and its Start, so that a process that finds only the
// Begin knows which child it may be.
func (r *runner) startRun(run int, what StartOptions, seat *claim.CommandLease) error {
	r.starting.Lock()
	defer r.starting.Unlock()
	log, err := what.log()
	if err != nil && r.Queue && !errors.Is(err, syscall.ENOSPC) {
		// Its owner named a file that cannot be written.
		r.leaveProcessor(what)
		_ = seat.Release()
		return r.recordFailedStart(run, err)
	}

	if err != nil {
		return err
	}

	defer log.Close() //nolint:errcheck // the run has its own
	if err := r.reserveSpace(); err != nil {
		return err
	}

	r.mu.Lock()
	before, retried := r.State.Runs[run].Starts, r.State.DescribeRetry(run)
	r.mu.Unlock()
	command, err := r.processCommand(run, before, what, seat)
	if err != nil {
		// It cannot be handed to a keeper.
		r.leaveProcessor(what)
		_ = seat.Release()
		return r.recordFailedStart(run, err)
	}

	command.Log = log
	if command.Input != nil {
		defer command.Input.Close() //nolint:errcheck // the run has its own
	}

	begin, err := r.announceStart(run, what)
	if err != nil {
		return err
	}

	for _, text := range []string{retried, seat.Said} {
		if text != "" {
			// The job runs even if this cannot be written.
			_, _ = fmt.Fprintln(log, apprun.LogLine(text))
		}
	}

	began := time.Now()
	pid, err := r.startProcess(run, command, what, seat)
	if err != nil {
		defer r.freeSlot(0, what)
		_ = seat.Release()
		why := fmt.Sprintf("cannot run %q: %v", what.Argv[0], err)

		return r.addEvent(batchlog.Event{Kind: batchlog.End, Run: run, Exit: 126, Problem: why})
	}

	e := batchlog.Event{Kind: batchlog.Start, Run: run, PID: pid, Boot: r.boot, Lease: seat.Lease, Devices: eventDevices(seat.Plan.Devices), Kept: begin.Kept, Grace: begin.Grace}
	if stat, err := r.host.Proc.Stat(pid); err == nil {
		e.Ticks = stat.Start
	}

	err = r.addEvent(e)
	r.attended.Go(func() { r.awaitRun(runProcess{run, pid, e.Ticks, e.Kept}, what, seat, began) })
	if err != nil {
		r.stopWithError(err)
	}

	return nil
}

// announceStart writes that a run is about to be started.
func (r *runner) announceStart(run int, what StartOptions) (batchlog.Event, error) {
	begin := batchlog.Event{Run: run, Boot: r.boot, Kept: what.Task != nil, Grace: what.graceOf(0)}
	up, err := r.host.Proc.Uptime()
	if err != nil {
		return begin, err
	}

	begin.Ticks = uint64(up / (10 * time.Millisecond)) //nolint:gosec // positive

	return begin, r.writeBegin(begin)
}

// startProcess starts the process of a run.
func (r *runner) startProcess(run int, command batch.Command, what StartOptions, seat *claim.CommandLease) (pid int, err error) {
	if r.Queue {
		// No other job is started now, and what this process makes has a mode of its own.
		defer syscall.Umask(syscall.Umask(what.Umask))
	}

	// A child must be known before it can be reaped.
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err = batch.StartCommand(command, r.null)
	if err == nil {
		r.live[pid], r.graces[pid] = seat, what.graceOf(r.Grace)
		if what.Task != nil {
			seat.DropReference()
		}
	}

	delete(r.taken, run)
	r.State.ReturnArrayPlace(run)
	r.refillLines()

	return pid, err
}

// processCommand is what is started for a run that was started so often before: itself, with its limits where they are
// not those that it gets anyway, or its keeper.
func (r *runner) processCommand(run, before int, what StartOptions, seat *claim.CommandLease) (batch.Command, error) {
	if what.Limits != "" && what.Limits == r.limits() {
		what.Limits = ""
	}

	if what.Task != nil {
		return r.keeperCommand(run, before, what, seat)
	}

	path, argv, err := seat.Wall.Command(what.Path, what.Argv)
	if err != nil {
		return batch.Command{}, err
	}

	c := batch.Command{Path: path, Argv: argv, Dir: what.Folder, Lease: seat.Lock, Env: visible.Env(append(what.Env, seat.Env...)).FirstOfEach().WithRestart(before, "")}
	if what.Limits != "" {
		c.Path, c.Argv = limits.ExecCommand(what.Limits, c.Path, c.Argv)
	}

	return c, nil
}

func openLog(path string) (*os.File, error) {
	if err := sys.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cannot make the folder of a run: %w", err)
	}

	log, err := sys.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot make the log of a run: %w", err)
	}

	info, err := log.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular() && info.Mode()&os.ModeCharDevice == 0:
		err = errors.New("it is no file")
	default:
		err = syscall.SetNonblock(int(log.Fd()), false)
	}

	if err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("cannot make the log of a run: %s: %w", path, err)
	}

	return log, nil
}

// runProcess is the process of a run: the command itself, or its keeper.
type runProcess struct {
	run, pid int
	start    uint64
	kept     bool
}

// awaitRun waits for a run's end, records it, and only then reaps the process: if the runner is killed in between, the
// foreground process does it.
func (r *runner) awaitRun(p runProcess, what StartOptions, seat *claim.CommandLease, began time.Time) {
	limit := what.Timeout
	entrusted := make(chan struct{})
	entrust := func() {
		defer close(entrusted)
		if err := seat.Entrust(p.pid); err != nil {
			r.host.Say(err.Error())
		}
	}

	var later *time.Timer
	if seat.Plan.Share > 0 || limit > 0 {
		// The process shows how much of a share it uses.
		entrust()
	} else {
		later = time.AfterFunc(entrustDelay, entrust)
	}

	now := &atomic.Pointer[runProcess]{}
	now.Store(&p)
	late := r.limitRun(now, limit, what.graceOf(r.Grace))
	ended, err := r.awaitProcess(now, seat)
	awaitKill(r.host.Env, ended)
	if later == nil || !later.Stop() {
		<-entrusted
	}

	r.mu.Lock()
	cerr := r.catchUp()
	e := endEvent(&r.State.Runs[p.run], p.run, ended)
	r.mu.Unlock()
	e.Stopped = r.stopping.Load()
	if late() {
		e.Late, e.Problem = true, fmt.Sprintf("ended after its time was over (--timeout %s)", limit)
	}

	if err != nil {
		e.Exit, e.Problem = -1, err.Error()
	}

	if (e.Exit != 0 || e.Signal != "") && !e.Stopped && e.Lease == seat.Lease {
		// Else its keeper has moved it, and knows.
		e.Fault = seat.FindFault(context.Background())
	}

	used := seat.MeasuredUse(e.Lease)
	e.Peak, e.Load = used.Peak, used.MeanLoad()
	pid := now.Load().pid
	r.mu.Lock()

	// Before the event, after which the run may be started again.
	delete(r.stops, p.run)
	r.mu.Unlock()
	seat.NoteEnd(e.ExitCode(), e.Signal, 0)
	err = errors.Join(cerr, r.addEvent(e))
	batch.ReapChild(pid)
	if lerr := seat.Release(); lerr != nil {
		r.host.Say(lerr.Error())
	}

	r.freeSlot(pid, what)
	if err != nil {
		r.stopWithError(err)
	}
}

// freeSlot makes room for others.
func (r *runner) freeSlot(pid int, what StartOptions) {
	r.mu.Lock()
	delete(r.live, pid)
	delete(r.graces, pid)
	r.mu.Unlock()
	<-r.slots
	r.leaveProcessor(what)
	r.wakeDispatch()
}

// leaveProcessor lets another run without a device have the processor of this one.
func (r *runner) leaveProcessor(what StartOptions) {
	if what.CPU && r.Queue {
		<-r.cpus
	}
}

// limitRun ends a run, and what it started, when its time is over, or when its owner cancels it. The answer, which is
// to be asked before the run is buried, says whether its time was over. As long as it has a keeper that sees to the
// time.
func (r *runner) limitRun(now *atomic.Pointer[runProcess], most, grace time.Duration) (late func() bool) {
	var over <-chan time.Time
	if most > 0 {
		over = time.After(most)
	}

	if most == 0 && !r.Queue && !now.Load().kept {
		return func() bool { return false }
	}

	ended, answer, stop := make(chan struct{}), make(chan bool, 1), make(chan struct{}, 1)
	end := func() {
		// It may be asked twice.
		select {
		case stop <- struct{}{}:
		default:
		}
	}

	run := now.Load().run
	r.setStop(run, end)
	r.mu.Lock()
	if !r.State.IsWanted(run) {
		// Cancelled before it could be ended.
		end()
	}
	r.mu.Unlock()
	go func() {
		late, asked := false, false
		for !late && !asked {
			select {
			case <-ended:
				answer <- false
				return
			case <-stop:
				asked = true
			case <-over:
				late, over = !now.Load().kept, time.After(time.Second)
			}
		}

		known := map[int]uint64{}
		p := now.Load()
		endRun(p.pid, p.start, p.kept, "SIGTERM", known)

		select {
		case <-ended:
		case <-time.After(grace):
		}

		// Before the run may be started again.
		batch.KillJob(now.Load().pid, known, job.KillGrace)
		answer <- late
	}()

	return func() bool {
		close(ended)
		return <-answer
	}
}

// longestGrace is how long what runs has to end.
func (r *runner) longestGrace() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	longest := r.Grace
	for _, grace := range r.graces {
		longest = max(longest, grace)
	}

	return longest
}
