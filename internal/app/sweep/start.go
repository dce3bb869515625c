package sweep

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

	core "gpuard/internal/core/sweep"
	"gpuard/internal/host/batch"
)

// start starts a run. Nothing else is started between its Begin and its Start, so that a process that finds only the
// Begin knows which child it may be.
func (r *runner) start(run int, path string, words []string, seat *claim.Seat) error {
	dir := filepath.Join(r.dir, core.Folder(run, len(r.state.Runs)))
	log, err := openLog(dir)
	if err == nil {
		err = r.journal.Reserve(r.room())
	}
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the run has its own
	up, err := r.host.Proc.Uptime()
	if err == nil {
		err = r.add(core.Event{Kind: core.Begin, Run: run, Ticks: uint64(up / (10 * time.Millisecond)), Boot: r.boot}) //nolint:gosec // positive
	}
	if err != nil {
		return err
	}
	env := append([]string{"GPUARD_SWEEP_RUN=" + fmt.Sprint(run), "GPUARD_SWEEP_DIR=" + dir}, seat.Env...)
	began := time.Now()
	r.mu.Lock() // a child must be known before it can be reaped
	pid, err := batch.Start(batch.Command{Path: path, Dir: r.question.Folder, Argv: words, Env: first(env), Log: log, Lease: seat.Lock}, r.null)
	if err == nil {
		r.live[pid] = seat
	}
	r.mu.Unlock()
	if err != nil {
		defer r.leave(run, 0)
		_ = seat.Leave()
		why := fmt.Sprintf("cannot run %q: %v", words[0], err)
		return r.add(core.Event{Kind: core.End, Run: run, Exit: 126, Problem: why})
	}
	e := core.Event{Kind: core.Start, Run: run, PID: pid, Boot: r.boot, Lease: seat.Lease, Devices: devices(seat.Plan)}
	if stat, err := r.host.Proc.Stat(pid); err == nil {
		e.Ticks = stat.Start
	}
	err = r.add(e)
	r.attended.Go(func() { r.awaitRun(run, pid, seat, began) })
	if err != nil {
		r.fail(err)
	}
	return nil
}

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

func openLog(dir string) (*os.File, error) {
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cannot make the folder of a run: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot make the log of a run: %w", err)
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
func (r *runner) awaitRun(run, pid int, seat *claim.Seat, began time.Time) {
	limit := r.question.Spec.Timeout
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
	late := r.limit(pid, limit)
	ended, err := batch.Await(pid)
	if later == nil || !later.Stop() {
		<-entrusted
	}
	e := core.Event{Kind: core.End, Run: run, Exit: ended.Code, Signal: ended.Signal, Seconds: time.Since(began).Seconds(),
		Stopped: r.stopping.Load(), Lease: seat.Lease, Devices: devices(seat.Plan)}
	if late() {
		e.Problem = fmt.Sprintf("ended after its time was over (--timeout %s)", limit)
	}
	if err != nil {
		e.Exit, e.Problem = -1, err.Error()
	}
	if (e.Exit != 0 || e.Signal != "") && !e.Stopped {
		e.Fault = seat.Fault(context.Background())
	}
	err = r.add(e)
	batch.Bury(pid)
	if lerr := seat.Leave(); lerr != nil {
		r.host.Say(lerr.Error())
	}
	r.leave(run, pid)
	if err != nil {
		r.fail(err)
	}
}

// leave makes room for others.
func (r *runner) leave(run, pid int) {
	r.mu.Lock()
	delete(r.live, pid)
	if r.state.Runs[run].Phase == core.Waiting && !r.stopping.Load() {
		r.due = append(r.due, run)
	}
	r.mu.Unlock()
	<-r.slots
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// limit ends a run, and what it started, when its time is over. The answer, which is to be asked before the run is
// buried, says whether that was so.
func (r *runner) limit(pid int, most time.Duration) (late func() bool) {
	if most == 0 {
		return func() bool { return false }
	}
	ended, over := make(chan struct{}), make(chan bool, 1)
	go func() {
		select {
		case <-ended:
			over <- false
			return
		case <-time.After(most):
		}
		known := map[int]uint64{}
		batch.End(pid, "SIGTERM", known)
		select {
		case <-ended:
		case <-time.After(r.question.Grace):
		}
		batch.End(pid, "SIGKILL", known)
		over <- true
	}()
	return func() bool {
		close(ended)
		return <-over
	}
}
