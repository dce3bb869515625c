package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/core/status"

	core "gpuard/internal/core/sweep"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/journal"
	"gpuard/internal/host/proctree"
)

// Flag is the first argument of a runner; the sweep's folder follows.
const Flag = "__sweep"

// Running reports whether this process was started as a runner; Run is then all that it does.
func Running() bool { return len(os.Args) > 1 && os.Args[1] == Flag }

// Descriptors that a runner is started with.
const (
	lifeFD    = 3 // a pipe that ends with the process that people see
	messageFD = 4 // a pipe to it
	lockFD    = 5 // the folder's lock, of both
)

const (
	mostAtOnce = 200                    // leases of one user count up to 256
	short      = 20 * time.Millisecond  // a command that ends before needs no entry of its own name
	soon       = 100 * time.Millisecond // for one of our own runs to end, before standing in the line for what others have
	youth      = 6 * time.Hour          // between two touches of a lease
)

// runner starts the commands of a sweep, one after the other as devices are free, and waits for them.
type runner struct {
	host     *machine.Host
	question *Request
	dir      string
	boot     string
	command  *core.Command
	desk     *claim.Desk
	cancel   context.CancelFunc // nothing new is started
	null     *os.File
	slots    chan struct{}
	freed    chan struct{} // has a value when a run has ended
	stopping atomic.Bool   // what runs is being ended
	attended sync.WaitGroup

	mu      sync.Mutex // of everything below
	journal *journal.Journal
	state   *core.State
	due     []int               // runs to be started, in this order
	live    map[int]*claim.Seat // by PID
	failure error               // that ends the sweep
}

// Run is the life of a runner. An error is told to the process that people see.
func Run(ctx context.Context, host *machine.Host, args []string) {
	_, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d", lockFD))
	if len(args) != 1 || err != nil {
		fmt.Fprintln(os.Stderr, "gpuard: cannot run a sweep by hand: gpuard sweep starts its runner itself")
		return
	}
	for fd := lifeFD; fd <= lockFD; fd++ {
		syscall.CloseOnExec(fd)
	}
	batch.Patient(messageFD)
	host.Say = func(text string) { sendMessage(messageFD, message{Say: text}) }
	host.Loud = func(text string) { sendMessage(messageFD, message{Loud: text}) }
	host.Stand = func(s *status.Standing) { sendMessage(messageFD, message{Stand: s, Moves: s == nil}) }
	r := &runner{host: host, dir: args[0], freed: make(chan struct{}, 1), live: map[int]*claim.Seat{}}
	if err = r.open(ctx); err == nil {
		err = r.run(ctx)
	}
	var refusal *job.Refusal
	switch {
	case errors.As(err, &refusal):
		sendMessage(messageFD, message{Refusal: refusal})
	case err != nil:
		sendMessage(messageFD, message{Error: err.Error(), Full: errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)})
	}
}

func (r *runner) open(ctx context.Context) (err error) {
	if r.question, err = readRequest(r.dir); err != nil {
		return err
	}
	r.host.Machine, r.host.PrivateState = r.question.Machine, r.question.Private
	if r.command, err = core.Parse(r.question.Command, &r.question.Grid); err != nil {
		return err
	}
	if r.boot, err = r.host.Proc.BootID(); err != nil {
		return err
	}
	if r.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return err
	}
	r.state = core.NewState(r.question.Grid.Len(), r.question.Retry)
	if r.journal, err = journal.Open(filepath.Join(r.dir, journalFile)); err == nil {
		err = r.journal.Next(r.state.Read)
	}
	if err != nil {
		return err
	}
	r.due = r.state.In(core.Waiting)
	spec, most := r.question.Spec, r.question.Jobs
	if r.question.ElseCPU {
		if spec, err = claim.ElseCPU(ctx, r.host, spec); err != nil {
			return err
		}
	}
	if most == 0 && spec.CPU {
		most = runtime.NumCPU()
	}
	if most == 0 || most > mostAtOnce {
		most = mostAtOnce
	}
	r.slots = make(chan struct{}, most)
	if r.question.PerGPU > 1 && !spec.CPU {
		if spec.Share, err = claim.Portion(ctx, r.host, spec, r.question.PerGPU); err != nil {
			return err
		}
		r.host.Say(fmt.Sprintf("%d runs share a GPU: each has %s", r.question.PerGPU, spec.Share))
	}
	spec.Grace = r.question.Grace
	r.desk, err = claim.OpenDesk(ctx, r.host, spec)
	return err
}

// run starts the runs until all are done, or the sweep is ended.
func (r *runner) run(ctx context.Context) error {
	ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() { // the process that people see is gone: nothing new is started
		_, _ = io.Copy(io.Discard, os.NewFile(lifeFD, "life"))
		r.cancel()
	}()
	all := proctree.Adopt(r.awaits, machine.OwnHelper)
	dispatched, over := make(chan struct{}), make(chan struct{})
	go func() {
		r.dispatch(ctx)
		close(dispatched)
		r.attended.Wait()
		close(over)
	}()
	touch := time.NewTicker(youth)
	defer touch.Stop()
	for {
		select {
		case <-over:
			all.Leave()
			return r.failure
		case <-touch.C:
			r.touch()
		case <-signals:
			r.stopping.Store(true)
			r.cancel()
			select { // so that nothing more is started, unless a driver call hangs
			case <-dispatched:
			case <-time.After(time.Second):
			}
			r.endAll(all, over, signals)
		}
	}
}

// endAll asks everything below this process to end, and kills what does not in time, or when it is asked twice.
func (r *runner) endAll(all *proctree.Tree, over <-chan struct{}, signals <-chan os.Signal) {
	grace := time.NewTimer(r.question.Grace)
	defer grace.Stop()
	all.Signal("SIGTERM")
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case <-tick.C:
			if len(all.Members()) > 0 {
				continue
			}
		case <-grace.C:
		case <-signals:
		}
		break
	}
	if err := all.Kill(job.Dying); err != nil {
		r.host.Say(err.Error())
	}
	select {
	case <-over:
	case <-time.After(job.Dying):
	}
}

// awaits reports whether a goroutine waits for the child.
func (r *runner) awaits(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.live[pid]
	return known
}

func (r *runner) touch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, seat := range r.live {
		seat.Touch()
	}
}

// dispatch starts one run after the other, each as soon as there is a device.
func (r *runner) dispatch(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		run, more := r.next(ctx)
		if !more {
			return
		}
		if err := r.one(ctx, run); err != nil {
			r.fail(err)
			return
		}
	}
}

// next is the run to start now. While none is due but some run, one of those may be due again.
func (r *runner) next(ctx context.Context) (run int, more bool) {
	for {
		r.mu.Lock()
		due, live := len(r.due), len(r.live)
		if due > 0 {
			run, r.due = r.due[0], r.due[1:]
		}
		r.mu.Unlock()
		if due > 0 || live == 0 {
			return run, due > 0
		}
		select {
		case <-r.freed:
		case <-ctx.Done():
			return 0, false
		}
	}
}

// one leases for a run and starts it. An error ends the sweep.
func (r *runner) one(ctx context.Context, run int) error {
	words, err := r.command.Words(run)
	path := ""
	if err == nil {
		path, err = find(r.question, words[0])
	}
	if err != nil {
		return r.stillborn(run, err)
	}
	seat, err := r.claim(ctx, words[0])
	if ctx.Err() != nil && err != nil {
		return nil //nolint:nilerr // ended meanwhile: that is no failure
	}
	if err != nil {
		return err
	}
	if batch.HungUp(lifeFD) { // without delay: the goroutine that reads it may run later
		r.cancel()
	}
	if ctx.Err() != nil {
		return seat.Leave()
	}
	if err = r.start(run, path, words, seat); err != nil {
		_ = seat.Leave()
	}
	return err
}

// claim takes what is free. Devices of our own runs will be free soon; for others it queues.
func (r *runner) claim(ctx context.Context, command string) (*claim.Seat, error) {
	for ctx.Err() == nil {
		seat, err := r.desk.TryNow(ctx, command)
		var refusal *job.Refusal
		if !errors.As(err, &refusal) || refusal.Never {
			return seat, err
		}
		if !r.another() {
			return r.desk.Wait(ctx, command)
		}
	}
	return nil, ctx.Err()
}

// another reports whether one of our own runs has ended within a moment.
func (r *runner) another() bool {
	timer := time.NewTimer(soon)
	defer timer.Stop()
	select {
	case <-r.freed:
		return true
	case <-timer.C:
		return false
	}
}

// stillborn writes down that a run cannot be started.
func (r *runner) stillborn(run int, why error) error {
	defer func() { <-r.slots }()
	if err := r.journal.Reserve(r.room()); err != nil {
		return err
	}
	if err := r.add(core.Event{Kind: core.Begin, Run: run}); err != nil {
		return err
	}
	return r.add(core.Event{Kind: core.End, Run: run, Exit: exit.Run(why), Problem: why.Error()})
}

// room is what the events of one more run, and the ends of all that run, may take: a line names each device.
func (r *runner) room() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(len(r.live)+16) << 12
}

// add writes an event.
func (r *runner) add(e core.Event) error {
	e.At = time.Now().Truncate(time.Millisecond)
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.journal.Append(line); err != nil {
		return err
	}
	return r.state.Add(e)
}

// fail ends the sweep when what runs has ended.
func (r *runner) fail(err error) {
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.failure = err
	}
}
