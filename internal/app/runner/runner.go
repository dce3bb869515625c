// Package runner starts many commands, each with a lease of its own, on as many devices as there are: what a sweep and
// a queue have in common. Two processes do that: the conductor, which keeps the folder, and the runner, which starts
// the commands. Whichever of them is killed, the other writes down how the commands end, so that none is lost and none
// done twice.
package runner

import (
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
	"gpuard/internal/app/machine"
	apprun "gpuard/internal/app/run"
	"gpuard/internal/core/job"
	"gpuard/internal/core/status"

	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/queue"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/limits"
	"gpuard/internal/host/proctree"
)

// Descriptors that a runner is started with.
const (
	// A pipe that ends with the process that people see.
	lifeFD    = 3
	messageFD = 4 // a pipe to it
	// The folder's lock, of both.
	lockFD = 5
)

const (
	// Leases of one user count up to 256.
	mostAtOnce = 200
	// Tickets of one user compete.
	mostWaiting = 16
	// A command that ends before needs no entry of its own name.
	entrustDelay = 20 * time.Millisecond
	// For one of our own runs to end, before standing in the line for what others have.
	ownRunWait = 100 * time.Millisecond
	// Between two touches of a lease.
	touchInterval = 6 * time.Hour
	// Before a run is tried again whose devices could not be read.
	retryInterval = 30 * time.Second
)

// FolderWork is what a runner does.
type FolderWork struct {
	*Folder
	// Runs at the same time; 0 as many as there may be.
	AtOnce int
	// Prepare says how a run is started; an error, that it cannot be. Nothing else uses State meanwhile.
	Prepare func(run int) (StartOptions, error)
	// Starts another conductor of a queue, after this one was killed.
	Keep func() error
}

// StartOptions is how a run is started.
type StartOptions struct {
	// Where it gets its lease.
	Desk func(ctx context.Context) (*claim.Allocator, error)
	Path string
	Argv []string
	// The name of its lease; "" the base name of its program.
	Name   string
	Folder string // in which it runs
	// Variables before those of the lease; of two with one name the first counts.
	Env []string
	// Path of the file for its output, in a folder that is made.
	Log     string
	Timeout time.Duration // 0 without a limit
	Umask   int           // of a queue
	// The limits of its processes (host/limits); "" those of this process.
	Limits string
	log    func() (*os.File, error) // opens Log, once
	// It gets no device: of a queue, as many of them run as there are processors.
	CPU bool
	// How its keeper looks after it; nil: it has none, and the runner does.
	Task *apprun.Task
}

// runner starts the commands, one after the other as devices are free, and waits for them.
type runner struct {
	*FolderWork
	host *machine.Host
	boot string
	// Nothing new is started.
	cancel context.CancelFunc
	null   *os.File
	slots  chan struct{}
	// A place for each job of a queue that runs without a device.
	cpus chan struct{}
	// A place for each of those that wait for a device at the same time.
	waits chan struct{}
	// Has a value while a run is being started beside the next claim.
	starts chan struct{}
	// Has a value when a run has ended, or another may be started.
	freed chan struct{}
	// What runs is being ended.
	stopping atomic.Bool
	// The conductor was killed.
	alone    atomic.Bool
	limits   func() string // that the runs get
	attended sync.WaitGroup
	// The lock of a start, held from a Begin to its Start.
	starting sync.Mutex

	// The lock of everything below, the journal and the state.
	mu  sync.Mutex
	due queue.Line // runs to be started
	// Those of a queue that need no device.
	light queue.Line
	// How many were added to it.
	added int64
	live  map[int]*claim.CommandLease // by PID
	// Runs between due and live.
	taken map[int]bool
	// Runs that have failed, and are in the line again after a pause.
	resting map[int]bool
	// How long they may take to end, by PID.
	graces map[int]time.Duration
	// How a run that waits or runs is ended, by run.
	stops map[int]func()
	// Runs are tried again later, as said last.
	why string
	// What orders the jobs of a queue that wait with a ticket, by run.
	tickets map[int]queue.Own
	// That ends the sweep.
	failure error
}

// RunFolder is the life of the runner of a folder. open says what it does. An error is told to the conductor.
func RunFolder(ctx context.Context, host *machine.Host, dir string, open func(ctx context.Context, host *machine.Host, dir string) (*FolderWork, error)) {
	_, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d", lockFD))
	if err != nil {
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

	// One run is started after the other: threads that hand that on to each other took a fifth more time.
	runtime.GOMAXPROCS(1)
	batch.SetNonblocking(messageFD)
	host.Say = func(text string) { sendMessage(messageFD, runnerMessage{Say: text}) }
	host.Loud = func(text string) { sendMessage(messageFD, runnerMessage{Loud: text}) }
	host.Stand = func(s *status.Standing) { sendMessage(messageFD, runnerMessage{Stand: s, Moves: s == nil}) }
	r := &runner{host: host, freed: make(chan struct{}, 1), starts: make(chan struct{}, 1), live: map[int]*claim.CommandLease{}, taken: map[int]bool{}, resting: map[int]bool{}, tickets: map[int]queue.Own{}, stops: map[int]func(){}, graces: map[int]time.Duration{}, limits: sync.OnceValue(limits.ChildLimits)}
	err = r.runWork(ctx, dir, lock, open)
	var refusal *job.Refusal
	switch {
	case errors.As(err, &refusal):
		sendMessage(messageFD, runnerMessage{Refusal: refusal})
	case err != nil:
		sendMessage(messageFD, runnerMessage{Error: err.Error(), Full: errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)})
	}
}

// runWork runs all that is to be done in the folder.
func (r *runner) runWork(ctx context.Context, dir string, lock *os.File, open func(ctx context.Context, host *machine.Host, dir string) (*FolderWork, error)) (err error) {
	r.FolderWork, err = open(ctx, r.host, dir)
	if err != nil {
		return err
	}

	r.Lock = lock
	err = r.prepareRunner()
	if err != nil {
		return err
	}

	err = r.runAll(ctx)
	if err != nil {
		return err
	}

	if r.alone.Load() && r.Keep != nil {
		return r.handOffLock()
	}

	return nil
}

func (r *runner) prepareRunner() (err error) {
	r.boot, err = r.host.Proc.BootID()
	if err != nil {
		return err
	}

	r.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}

	r.slots, r.waits = make(chan struct{}, runsAtOnce(r.AtOnce)), make(chan struct{}, mostWaiting)
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

// refillLines adds the runs that may be started by now. The lock is held, or nothing else runs yet. Those of a queue
// are in the order of core/queue, those of a sweep as they come.
func (r *runner) refillLines() {
	if r.Queue && r.State.TakeNews() {
		// Other runs of that command have another estimate now.
		r.due.Reclass(batchlog.IsGuessed, r.State.Class)
		r.light.Reclass(batchlog.IsGuessed, r.State.Class)
	}
	for _, run := range r.State.TakeFresh() {
		r.addToLine(run)
	}
}

// addToLine adds a run to those to be started. The lock is held.
func (r *runner) addToLine(run int) {
	r.added++
	arrival, line := r.added, &r.due
	if r.Queue {
		arrival = r.State.Runs[run].Submitted.UnixNano()
	}

	if r.State.Runs[run].CPU {
		line = &r.light
	}

	line.Add(r.State.Class(run), arrival, run)
}

// runAll starts the runs until all are done, or the sweep is ended.
func (r *runner) runAll(ctx context.Context) error {
	ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go r.awaitConductorEnd()
	if r.Queue {
		go r.followJournal()
	}

	all := proctree.AdoptOrphans(r.isAwaited, machine.IsOwnHelper, isKeeper)
	dispatched, over := make(chan struct{}), make(chan struct{})
	go func() {
		r.dispatchRuns(ctx)

		// The last one is started.
		r.starts <- struct{}{}
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

			select {
			// So that nothing more is started, unless a driver call hangs.
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
		r.Journal.WaitForWrite()
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

	// So that the next signal is not taken for this.
	hurry()
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

// errUnwanted: the owner of a run that was about to start has cancelled or held it.
var errUnwanted = errors.New("the run is not to be started any more")

// writeBegin writes the Begin of a run, unless it is not to be started any more. What its owner asked for may be in the
// journal and not yet read, so it is read while no other process can write.
func (r *runner) writeBegin(e batchlog.Event) error {
	e.Kind, e.At = batchlog.Begin, time.Now().Truncate(time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.Journal.AppendLocked(func(int64) ([]byte, error) {
		if err := r.catchUp(); err != nil {
			return nil, err
		}
		if !r.State.MayStart(e.Run) {
			return nil, errUnwanted
		}
		return json.Marshal(e)
	})

	if err != nil {
		return err
	}

	return r.catchUp()
}

// reserveSpace sees to it that the events of one more run, and the ends of all that run, have room on the disk: a line
// names each device.
func (r *runner) reserveSpace() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Journal.ReserveSpace(int64(len(r.live)+16) << 12)
}

// addEvent writes an event.
func (r *runner) addEvent(e batchlog.Event) error {
	e.At = time.Now().Truncate(time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := AppendEvent(r.Journal, e); err != nil {
		return err
	}

	err := r.catchUp()
	if err == nil && r.tellsEnd(e) {
		r.attended.Go(func() { r.notifyRunEnd(e.Run) })
	}

	return err
}

// notifyRunEnd has the end of a run told, while no run is being started: what that changes of this process is not for
// this.
func (r *runner) notifyRunEnd(run int) {
	r.starting.Lock()
	defer r.starting.Unlock()
	r.mu.Lock()
	err := r.Ended(run)
	r.mu.Unlock()
	if err != nil {
		r.host.Say(err.Error())
	}
}

// catchUp reads what was written since, also by others. The lock is held.
func (r *runner) catchUp() error {
	before := r.Journal.Offset()
	err := r.CatchUp()
	r.refillLines()
	if r.Journal.Offset() > before && r.Queue {
		for run, stop := range r.stops {
			if !r.State.IsWanted(run) {
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
