package runs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/core/job"
	core "gpuard/internal/core/runs"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/sys"
)

// start starts a run. Nothing else is started between its Begin and its Start, so that a process that finds only the
// Begin knows which child it may be.
func (r *runner) start(run int, what Start, seat *claim.Seat) error {
	r.starting.Lock()
	defer r.starting.Unlock()
	log, err := what.log()
	if err != nil && r.work.Each && !errors.Is(err, syscall.ENOSPC) { // its owner named a file that cannot be written
		r.leaveProcessor(what)
		_ = seat.Leave()
		return r.stillborn(run, err)
	}
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the run has its own
	if err := r.reserve(); err != nil {
		return err
	}
	r.mu.Lock()
	before := r.state.Runs[run].Starts
	r.mu.Unlock()
	up, err := r.host.Proc.Uptime()
	if err == nil {
		err = r.begin(core.Event{Run: run, Ticks: uint64(up / (10 * time.Millisecond)), Boot: r.boot}) //nolint:gosec // positive
	}
	if err != nil {
		return err
	}
	env := visible.Env(first(append(what.Env, seat.Env...))).Restarted(before, "")
	began := time.Now()
	if r.work.Each {
		defer syscall.Umask(syscall.Umask(what.Umask)) // no other job is started now, and what this process makes has a mode of its own
	}
	path, argv := r.limited(what)
	r.mu.Lock() // a child must be known before it can be reaped
	pid, err := batch.Start(batch.Command{Path: path, Dir: what.Folder, Argv: argv, Env: env, Log: log, Lease: seat.Lock}, r.null)
	if err == nil {
		r.live[pid], r.uses[pid] = seat, &use{}
	}
	delete(r.taken, run)
	r.state.Untake(run)
	r.refill()
	r.mu.Unlock()
	if err != nil {
		defer r.leave(0, what)
		_ = seat.Leave()
		why := fmt.Sprintf("cannot run %q: %v", what.Argv[0], err)
		return r.add(core.Event{Kind: core.End, Run: run, Exit: 126, Problem: why})
	}
	e := core.Event{Kind: core.Start, Run: run, PID: pid, Boot: r.boot, Lease: seat.Lease, Devices: devices(seat.Plan)}
	if stat, err := r.host.Proc.Stat(pid); err == nil {
		e.Ticks = stat.Start
	}
	err = r.add(e)
	r.attended.Go(func() { r.awaitRun(run, pid, what, seat, began) })
	if err != nil {
		r.fail(err)
	}
	return nil
}

// limited is the command line that gives a run its limits, where they are not those that it gets anyway.
func (r *runner) limited(what Start) (path string, argv []string) {
	if what.Limits == "" || what.Limits == r.limits() {
		return what.Path, what.Argv
	}
	return "/proc/self/exe", append([]string{"gpuard", LimitsFlag, what.Limits, what.Path}, what.Argv...)
}

// LimitsFlag is the first argument of the process that becomes a run with limits of its own.
const LimitsFlag = "__limits"

// first keeps the first of each name.
func first(env []string) []string {
	known, out := map[string]bool{}, env[:0:0]
	for _, pair := range env {
		name := pair
		for i := range pair {
			if pair[i] == '=' {
				name = pair[:i]
				break
			}
		}
		if !known[name] {
			known[name] = true
			out = append(out, pair)
		}
	}
	return out
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
	if err == nil && !info.Mode().IsRegular() && info.Mode()&os.ModeCharDevice == 0 {
		err = errors.New("it is no file")
	}
	if err == nil {
		err = syscall.SetNonblock(int(log.Fd()), false)
	}
	if err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("cannot make the log of a run: %s: %w", path, err)
	}
	return log, nil
}

func devices(p job.Plan) (list []core.Device) {
	for _, d := range p.Devices {
		list = append(list, core.Device{Index: d.Index, UUID: d.UUID})
	}
	return list
}

// awaitRun waits for a run's end, records it, and only then reaps the process: if the runner is killed in between, the
// foreground process does it.
func (r *runner) awaitRun(run, pid int, what Start, seat *claim.Seat, began time.Time) {
	limit := what.Timeout
	entrusted := make(chan struct{})
	entrust := func() {
		defer close(entrusted)
		if err := seat.Entrust(pid); err != nil {
			r.host.Say(err.Error())
		}
	}
	var later *time.Timer
	if seat.Plan.Share > 0 || limit > 0 { // the process shows how much of a share it uses
		entrust()
	} else {
		later = time.AfterFunc(short, entrust)
	}
	late := r.limit(run, pid, limit)
	ended, err := batch.Await(pid)
	awaitKill(r.host.Env, ended)
	if later == nil || !later.Stop() {
		<-entrusted
	}
	e := core.Event{Kind: core.End, Run: run, Exit: ended.Code, Signal: ended.Signal, Seconds: time.Since(began).Seconds(),
		Stopped: r.stopping.Load(), Lease: seat.Lease, Devices: devices(seat.Plan)}
	if late() {
		e.Late, e.Problem = true, fmt.Sprintf("ended after its time was over (--timeout %s)", limit)
	}
	if err != nil {
		e.Exit, e.Problem = -1, err.Error()
	}
	if (e.Exit != 0 || e.Signal != "") && !e.Stopped {
		e.Fault = seat.Fault(context.Background())
	}
	r.mu.Lock()
	r.measured(pid, &e)
	delete(r.stops, run) // before the event, after which the run may be started again
	r.mu.Unlock()
	seat.Note(e.ExitCode(), e.Signal, e.Peak, e.Load)
	err = r.add(e)
	batch.Bury(pid)
	if lerr := seat.Leave(); lerr != nil {
		r.host.Say(lerr.Error())
	}
	r.leave(pid, what)
	if err != nil {
		r.fail(err)
	}
}

// leave makes room for others.
func (r *runner) leave(pid int, what Start) {
	r.mu.Lock()
	delete(r.live, pid)
	r.mu.Unlock()
	<-r.slots
	r.leaveProcessor(what)
	r.wake()
}

// leaveProcessor lets another run without a device have the processor of this one.
func (r *runner) leaveProcessor(what Start) {
	if what.CPU && r.work.Each {
		<-r.cpus
	}
}

// limit ends a run, and what it started, when its time is over, or when its owner cancels it. The answer, which is to be
// asked before the run is buried, says whether its time was over.
func (r *runner) limit(run, pid int, most time.Duration) (late func() bool) {
	var over <-chan time.Time
	if most > 0 {
		over = time.After(most)
	}
	if most == 0 && !r.work.Each {
		return func() bool { return false }
	}
	ended, answer, stop := make(chan struct{}), make(chan bool, 1), make(chan struct{}, 1)
	end := func() { // it may be asked twice
		select {
		case stop <- struct{}{}:
		default:
		}
	}
	r.stoppable(run, end)
	if r.mu.Lock(); !r.state.Wanted(run) { // cancelled before it could be ended
		end()
	}
	r.mu.Unlock()
	go func() {
		late := false
		select {
		case <-ended:
			answer <- false
			return
		case <-stop:
		case <-over:
			late = true
		}
		known := map[int]uint64{}
		batch.End(pid, "SIGTERM", known)
		select {
		case <-ended:
		case <-time.After(r.grace):
		}
		batch.End(pid, "SIGKILL", known)
		answer <- late
	}()
	return func() bool {
		close(ended)
		return <-answer
	}
}
