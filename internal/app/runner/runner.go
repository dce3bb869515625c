// Package runner starts many commands, each with a lease of its own, on as many devices as there are: what a sweep and a
// queue have in common. Two processes do that: the conductor, which keeps the folder, and the runner, which starts the
// commands. Whichever of them is killed, the other writes down how the commands end, so that none is lost and none done
// twice.
package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	apprun "gpuard/internal/app/run"
	"gpuard/internal/core/job"
	"gpuard/internal/core/status"
	"gpuard/internal/core/supervise"

	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/queue"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/journal"
	"gpuard/internal/host/limits"
	"gpuard/internal/host/proctree"
)

// Descriptors that a runner is started with.
const (
	lifeFD    = 3 // a pipe that ends with the process that people see
	messageFD = 4 // a pipe to it
	lockFD    = 5 // the folder's lock, of both
)

const (
	mostAtOnce    = 200                    // leases of one user count up to 256
	mostWaiting   = 16                     // tickets of one user compete
	entrustDelay  = 20 * time.Millisecond  // a command that ends before needs no entry of its own name
	ownRunWait    = 100 * time.Millisecond // for one of our own runs to end, before standing in the line for what others have
	touchInterval = 6 * time.Hour          // between two touches of a lease
	retryInterval = 30 * time.Second       // before a run is tried again whose devices could not be read
)

// RunnerWork is what a runner does.
type RunnerWork struct {
	State   *batchlog.State
	Journal *journal.Journal // of which State has read everything
	AtOnce  int              // runs at the same time; 0 as many as there may be
	Grace   time.Duration
	// Prepare says how a run is started; an error, that it cannot be. Nothing else uses State meanwhile.
	Prepare func(run int) (StartOptions, error)
	Ended   func(run int) error  // called when a run is over; may be nil
	Mark    func(run int) string // the variable of a run with its folder, as its processes have it
	Each    bool                 // every run asks for its own: a refusal is its failure, and several wait at the same time
	Keep    func() error         // starts another conductor, after this one was killed; nil ends with what runs
}

// StartOptions is how a run is started.
type StartOptions struct {
	Desk    func(ctx context.Context) (*claim.Allocator, error) // where it gets its lease
	Path    string
	Argv    []string
	Name    string                   // of its lease; "" the base name of its program
	Folder  string                   // in which it runs
	Env     []string                 // before that of the lease; of two with one name the first counts
	Log     string                   // path of the file for its output, in a folder that is made
	Timeout time.Duration            // 0 without a limit
	Umask   int                      // of a queue
	Limits  string                   // of its processes (host/limits); "" those of this process
	log     func() (*os.File, error) // opens Log, once
	CPU     bool                     // it gets no device: of a queue, as many of them run as there are processors
	Task    *apprun.Task             // how its keeper looks after it; nil: it has none, and the runner does
}

// runner starts the commands, one after the other as devices are free, and waits for them.
type runner struct {
	host     *machine.Host
	work     *RunnerWork
	grace    time.Duration
	lock     *os.File // of the folder, which the conductor has, too
	boot     string
	cancel   context.CancelFunc // nothing new is started
	null     *os.File
	slots    chan struct{}
	cpus     chan struct{} // of a queue, those that run without a device
	waits    chan struct{} // of those that wait for a device at the same time
	starts   chan struct{} // has a value while a run is being started beside the next claim
	freed    chan struct{} // has a value when a run has ended, or another may be started
	stopping atomic.Bool   // what runs is being ended
	alone    atomic.Bool   // the conductor was killed
	limits   func() string // that the runs get
	attended sync.WaitGroup
	starting sync.Mutex // from a Begin to its Start

	mu      sync.Mutex // of everything below
	journal *journal.Journal
	state   *batchlog.State
	due     queue.Line                  // runs to be started
	light   queue.Line                  // those of a queue that need no device
	added   int64                       // how many were added to it
	live    map[int]*claim.CommandLease // by PID
	taken   map[int]bool                // runs between due and live
	resting map[int]bool                // runs that have failed, and are in the line again after a pause
	graces  map[int]time.Duration       // how long they may take to end, by PID
	stops   map[int]func()              // how a run that waits or runs is ended, by run
	why     string                      // runs are tried again later, as said last
	tickets map[int]queue.Own           // of a queue, what orders those that wait with a ticket, by run
	failure error                       // that ends the sweep
}

// RunFolder is the life of a runner, whose folder is the only argument. open says what it does. An error is told to the
// conductor.
func RunFolder(ctx context.Context, host *machine.Host, args []string, open func(ctx context.Context, host *machine.Host, dir string) (*RunnerWork, error)) {
	_, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d", lockFD))
	if len(args) != 1 || err != nil {
		fmt.Fprintln(os.Stderr, "gpuard: cannot start a runner by hand: gpuard sweep and gpuard submit start theirs")
		return
	}
	for fd := lifeFD; fd <= lockFD; fd++ {
		syscall.CloseOnExec(fd)
	}
	lock := os.NewFile(lockFD, "the lock of the folder")
	if err := WriteLockOwner(host, lock, runnerPlace); err != nil {
		fmt.Fprintln(os.Stderr, "gpuard: "+err.Error())
		return
	}
	runtime.GOMAXPROCS(1) // one run is started after the other: threads that hand that on to each other took a fifth more time
	batch.SetNonblocking(messageFD)
	host.Say = func(text string) { sendMessage(messageFD, runnerMessage{Say: text}) }
	host.Loud = func(text string) { sendMessage(messageFD, runnerMessage{Loud: text}) }
	host.Stand = func(s *status.Standing) { sendMessage(messageFD, runnerMessage{Stand: s, Moves: s == nil}) }
	r := &runner{host: host, lock: lock, freed: make(chan struct{}, 1), starts: make(chan struct{}, 1), live: map[int]*claim.CommandLease{}, taken: map[int]bool{}, resting: map[int]bool{}, tickets: map[int]queue.Own{}, stops: map[int]func(){}, graces: map[int]time.Duration{}, limits: sync.OnceValue(limits.ChildLimits)}
	r.work, err = open(ctx, host, args[0])
	if err == nil {
		err = r.prepareRunner()
	}
	if err == nil {
		err = r.runAll(ctx)
	}
	if err == nil && r.alone.Load() && r.work.Keep != nil {
		err = r.handOffLock()
	}
	var refusal *job.Refusal
	switch {
	case errors.As(err, &refusal):
		sendMessage(messageFD, runnerMessage{Refusal: refusal})
	case err != nil:
		sendMessage(messageFD, runnerMessage{Error: err.Error(), Full: errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)})
	}
}

func (r *runner) prepareRunner() (err error) {
	r.journal, r.state, r.grace = r.work.Journal, r.work.State, r.work.Grace
	r.boot, err = r.host.Proc.BootID()
	if err != nil {
		return err
	}
	r.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	r.slots, r.waits = make(chan struct{}, runsAtOnce(r.work.AtOnce)), make(chan struct{}, mostWaiting)
	r.cpus = make(chan struct{}, runtime.NumCPU())
	r.refillLines()
	return nil
}

func runsAtOnce(atOnce int) int {
	if atOnce == 0 || atOnce > mostAtOnce {
		return mostAtOnce
	}
	return atOnce
}

// refillLines adds the runs that may be started by now. The lock is held, or nothing else runs yet. Those of a queue are in
// the order of core/queue, those of a sweep as they come.
func (r *runner) refillLines() {
	if r.work.Each && r.state.TakeNews() { // other runs of that command have another estimate now
		r.due.Reclass(batchlog.IsGuessed, r.state.Class)
		r.light.Reclass(batchlog.IsGuessed, r.state.Class)
	}
	for _, run := range r.state.TakeFresh() {
		r.addToLine(run)
	}
}

// addToLine adds a run to those to be started. The lock is held.
func (r *runner) addToLine(run int) {
	r.added++
	arrival, line := r.added, &r.due
	if r.work.Each {
		arrival = r.state.Runs[run].Submitted.UnixNano()
	}
	if r.state.Runs[run].CPU {
		line = &r.light
	}
	line.Add(r.state.Class(run), arrival, run)
}

// runAll starts the runs until all are done, or the sweep is ended.
func (r *runner) runAll(ctx context.Context) error {
	ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go r.awaitConductorEnd()
	if r.work.Each {
		go r.followJournal()
	}
	all := proctree.AdoptOrphans(r.isAwaited, machine.IsOwnHelper, isKeeper)
	dispatched, over := make(chan struct{}), make(chan struct{})
	go func() {
		r.dispatchRuns(ctx)
		r.starts <- struct{}{} // the last one is started
		close(dispatched)
		r.attended.Wait()
		close(over)
	}()
	touch := time.NewTicker(touchInterval)
	defer touch.Stop()
	for {
		select {
		case <-over:
			all.StopReaping()
			return r.failure
		case <-touch.C:
			r.touchLeases()
		case <-signals:
			r.stopping.Store(true)
			r.cancel()
			select { // so that nothing more is started, unless a driver call hangs
			case <-dispatched:
			case <-time.After(time.Second):
			}
			r.endProcesses(all, over, signals)
		}
	}
}

// followJournal reads what others write into the journal: new runs, and what their owner asks for.
func (r *runner) followJournal() {
	for {
		r.journal.WaitForWrite()
		r.mu.Lock()
		err := r.catchUp()
		r.mu.Unlock()
		r.wakeDispatch()
		if err != nil {
			r.stopWithError(err)
			return
		}
	}
}

// endProcesses asks everything below this process to end, and kills what does not in time, or when it is asked twice.
func (r *runner) endProcesses(all *proctree.Tree, over <-chan struct{}, signals <-chan os.Signal) {
	grace, hurry := context.WithTimeout(context.Background(), r.longestGrace())
	defer hurry()
	go func() {
		select {
		case <-signals:
			hurry()
		case <-grace.Done():
		}
	}()
	err := all.End(grace, "SIGTERM", job.KillGrace)
	hurry() // so that the next signal is not taken for this
	if err != nil {
		r.host.Say(err.Error())
	}
	select {
	case <-over:
	case <-time.After(job.KillGrace):
	}
}

// isAwaited reports whether a goroutine waits for the child.
func (r *runner) isAwaited(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.live[pid]
	return known
}

func (r *runner) touchLeases() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, seat := range r.live {
		seat.TouchLease()
	}
}

// dispatchRuns starts one run after the other, each as soon as there is a device.
func (r *runner) dispatchRuns(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		run, more := r.nextRun(ctx)
		if !more {
			return
		}
		if err := r.leaseAndStart(ctx, run); err != nil {
			r.stopWithError(err)
			return
		}
	}
}

// nextRun is the run to start now. While none is due but some run, one of those may be due again.
func (r *runner) nextRun(ctx context.Context) (run int, more bool) {
	for {
		r.mu.Lock()
		if len(r.cpus) < cap(r.cpus) { // one that needs no device does not wait for those that do
			run, more = r.takeRun(&r.light)
		}
		if !more {
			run, more = r.takeWaiting()
		}
		busy := len(r.live) + len(r.taken)
		for one := range r.resting {
			if r.state.MayStart(one) { // else its owner has cancelled or held it
				busy++
			}
		}
		r.mu.Unlock()
		if more || busy == 0 {
			return run, more
		}
		select {
		case <-r.freed:
		case <-ctx.Done():
			return 0, false
		}
	}
}

// takeRun takes the run that is next out of a line. The lock is held.
func (r *runner) takeRun(line *queue.Line) (run int, found bool) {
	for left := true; left && !found; {
		run, left = line.Take(time.Now().UnixNano(), r.state.EstimateOf)
		postponed := left && r.postponeRetry(run)
		found = left && !postponed && !r.taken[run] && r.state.MayStart(run) && r.state.TakeArrayPlace(run) // it may have been cancelled meanwhile
	}
	if found {
		r.taken[run] = true
	}
	return run, found
}

// postponeRetry puts a failed run back into the line after its pause, and reports whether there is one. The lock is held.
func (r *runner) postponeRetry(run int) bool {
	rest := r.state.RestBeforeRetry(run, cmp.Or(r.host.Times.Pause, supervise.FirstPause), time.Now())
	if rest > 0 && !r.resting[run] {
		r.resting[run] = true
		time.AfterFunc(rest, func() {
			r.mu.Lock()
			delete(r.resting, run)
			r.state.OfferRun(run)
			r.refillLines()
			r.mu.Unlock()
			r.wakeDispatch()
		})
	}
	return rest > 0
}

// takeWaiting takes the next run that needs a device. Where as many wait as may, it has to go before one of them. The lock
// is held.
func (r *runner) takeWaiting() (run int, found bool) {
	run, found = r.takeRun(&r.due)
	if !found || len(r.waits) < cap(r.waits) || r.displaceLast(run) {
		return run, found
	}
	delete(r.taken, run)
	r.state.ReturnArrayPlace(run)
	r.addToLine(run)
	return 0, false
}

// recordFailedStart writes down that a run cannot be started.
func (r *runner) recordFailedStart(run int, why error) error {
	defer r.abandonStart(run)
	err := r.reserveSpace()
	if err == nil {
		err = r.writeBegin(batchlog.Event{Run: run})
	}
	if err == nil {
		err = r.addEvent(batchlog.Event{Kind: batchlog.End, Run: run, Exit: exit.RunCode(why), Problem: why.Error()})
	}
	if errors.Is(err, errUnwanted) {
		return nil
	}
	return err
}

// errUnwanted: the owner of a run that was about to start has cancelled or held it.
var errUnwanted = errors.New("the run is not to be started any more")

// writeBegin writes the Begin of a run, unless it is not to be started any more. What its owner asked for may be in the
// journal and not yet read, so it is read while no other process can write.
func (r *runner) writeBegin(e batchlog.Event) error {
	e.Kind, e.At = batchlog.Begin, time.Now().Truncate(time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.journal.AppendLocked(func(int64) ([]byte, error) {
		if err := r.catchUp(); err != nil {
			return nil, err
		}
		if !r.state.MayStart(e.Run) {
			return nil, errUnwanted
		}
		return json.Marshal(e)
	})
	if err != nil {
		return err
	}
	return r.catchUp()
}

// reserveSpace sees to it that the events of one more run, and the ends of all that run, have room on the disk: a line names
// each device.
func (r *runner) reserveSpace() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.journal.ReserveSpace(int64(len(r.live)+16) << 12)
}

// addEvent writes an event.
func (r *runner) addEvent(e batchlog.Event) error {
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
	err = r.catchUp()
	if err == nil && (e.Kind == batchlog.End || e.Kind == batchlog.Gone) && r.work.Ended != nil && r.state.Over(e.Run) {
		r.attended.Go(func() { r.notifyRunEnd(e.Run) })
	}
	return err
}

// notifyRunEnd has the end of a run told, while no run is being started: what that changes of this process is not for this.
func (r *runner) notifyRunEnd(run int) {
	r.starting.Lock()
	defer r.starting.Unlock()
	r.mu.Lock()
	err := r.work.Ended(run)
	r.mu.Unlock()
	if err != nil {
		r.host.Say(err.Error())
	}
}

// catchUp reads what was written since, also by others. The lock is held.
func (r *runner) catchUp() error {
	before := r.journal.Offset()
	err := r.journal.EachNewLine(func(line []byte) error { return r.state.ReadLine(line, r.journal.Offset()) })
	r.refillLines()
	if r.journal.Offset() > before && r.work.Each {
		for run, stop := range r.stops {
			if !r.state.IsWanted(run) {
				go stop()
			}
		}
	}
	return err
}

// stopWithError ends all when what runs has ended.
func (r *runner) stopWithError(err error) {
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.failure = err
	}
}
