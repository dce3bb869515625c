package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/run"
	"gpuard/internal/core/job"
	"gpuard/internal/core/service"
	"gpuard/internal/core/status"
	"gpuard/internal/host/daemonize"
	"gpuard/internal/host/projectdir"
	"gpuard/internal/host/tail"
)

// KeeperFlag is the first argument of a keeper; the folder of the project and its orders follow.
const KeeperFlag = "project-keep"

// KeeperOrders say which start of which instance a keeper is for.
type KeeperOrders struct {
	Instance string `json:"instance"`
	// The hash of the instance that is meant; "" only ends what is left of it.
	Hash string `json:"hash,omitempty"`
	// Host.Machine; bytes, because the path of a file need not be UTF-8.
	Machine []byte `json:"machine,omitempty"`
}

// Words read and write what people read.
type Words struct {
	// What an instance asks for.
	Read func(ctx context.Context, host *machine.Host, i service.Instance) (run.Task, error)
	// The place in the queue as text.
	Standing func(status.Standing) string
}

// KeepInstance is the life of the keeper of one instance of the project in a folder. It does what gpuard run does for a
// command, and keeps a record of it. It ends with the instance. If an earlier keeper was killed and its command lives,
// KeepInstance supervises that command and does not start a second one.
func KeepInstance(ctx context.Context, host *machine.Host, dir string, o KeeperOrders, words Words) error {
	if err := daemonize.BeginBackground("gpuard"); err != nil {
		return err
	}

	folder, err := projectdir.Open(dir)
	if err != nil {
		return err
	}

	k := &keeper{host: host, folder: folder, orders: o, words: words, own: newBelongings(host, folder, o.Instance), hurry: make(chan struct{}), unfit: make(chan run.EndReason, 1), late: make(chan struct{}, 1)}
	isWanted, err := k.findInstance()
	if err != nil || !isWanted {
		return err
	}

	if o.Hash != "" {
		// Before the lock: it may ask a driver that does not answer, and without a keeper the instance is ended at once.
		k.readInstance(ctx)
	}

	k.lock, err = folder.LockKeeper(o.Instance)
	if err != nil || k.lock == nil {
		return err
	}

	isWanted, err = k.findInstance()
	if err != nil || !isWanted {
		return err
	}

	return k.runInstance(ctx)
}

// findInstance finds the instance among those that are wanted, and reports whether it is still one of them.
func (k *keeper) findInstance() (isWanted bool, err error) {
	wanted, err := k.folder.ReadWanted()
	if err != nil {
		return false, err
	}

	k.project = wanted.Name
	if k.orders.Hash == "" {
		// It only ends what is left.
		return true, nil
	}

	i := slices.IndexFunc(wanted.Instances, func(i service.Instance) bool { return i.Name == k.orders.Instance && i.Hash == k.orders.Hash })
	if i < 0 {
		return false, nil
	}

	k.instance = wanted.Instances[i]

	return true, nil
}

// readInstance gives this process the environment of the instance, and reads what that asks for. A mistake in it
// refuses the instance.
func (k *keeper) readInstance(ctx context.Context) {
	for _, pair := range append(slices.Clone(k.instance.Env), "PWD="+k.instance.WorkDir) {
		name, value, _ := strings.Cut(pair, "=")
		_ = os.Setenv(name, value)
	}

	k.host.Env, k.host.Machine, k.host.Project = os.Environ(), string(k.orders.Machine), k.instance.Policy
	i := k.instance
	if logOf(&i) == "" {
		i.Flags = append(slices.Clone(i.Flags), "--log="+k.folder.LogPath(i.Name))
	}

	k.task, k.mistake = k.words.Read(ctx, k.host, i)
	if i.Restart != service.Never {
		k.task.Care.Restart, k.task.Care.Limit = job.Restart(i.Restart), i.Limit
	}
}

// keeper supervises one instance.
type keeper struct {
	host   *machine.Host
	folder *projectdir.Folder
	lock   *projectdir.Lock
	// That the command inherits.
	life   *projectdir.Lock
	orders KeeperOrders
	words  Words
	task   run.Task
	// The mistake in what was asked for: the instance is refused.
	mistake  error
	instance service.Instance
	project  string // its name
	own      *unkeptProcesses
	// Closed: no time is left for the end.
	hurry chan struct{}
	// Why the command has to be ended.
	unfit chan run.EndReason
	// Has a value when the record could not be written.
	late chan struct{}
	// Ends the checks of this start; nil without any.
	calm func()

	mu     sync.Mutex
	record service.Record
	// That the record could not be written.
	told bool
	// Why this start has to end, by its checks.
	doomed run.EndReason
}

// runInstance is the whole life.
func (k *keeper) runInstance(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, found := k.folder.ReadRecord(k.orders.Instance)
	if err := k.continueRecord(&before, found); err != nil {
		return err
	}

	watcher, err := k.folder.Watch(k.orders.Instance)
	if err != nil {
		return err
	}

	defer watcher.Close()
	go k.watchForEnd(watcher, cmp.Or(k.orders.Hash, before.Hash), cancel)
	defer k.stopChecks()
	if k.resumeInstance(ctx, before) {
		return nil
	}

	k.life, err = k.takeLifeLock(ctx)
	switch {
	case ctx.Err() != nil:
		k.recordOver(service.Done, endedBeforeStart)
	case err != nil:
		k.recordOver(service.Refused, err.Error())
	default:
		k.startCommand(ctx)
	}

	return nil
}

// endedBeforeStart is why an instance ended that was ended before its start.
const endedBeforeStart = "it was ended before it was started"

// continueRecord identifies this keeper and continues the record of the one before. Of a record from another boot only
// the devices count.
func (k *keeper) continueRecord(before *service.Record, found bool) error {
	self, err := k.host.Proc.Stat(os.Getpid())
	if err != nil {
		return err
	}

	boot, err := k.host.Proc.BootID()
	if err != nil {
		return err
	}

	if !found || before.Boot != boot {
		*before = service.Record{Last: before.Last, Boot: boot, Namespace: k.host.Proc.PIDNamespace()}
	}

	if before.Stop == "" {
		before.Stop, before.Grace = "SIGTERM", usualGrace
	}

	k.record = *before
	k.record.Boot, k.record.Namespace, k.record.Keeper = boot, k.host.Proc.PIDNamespace(), service.Process{PID: os.Getpid(), Start: self.Start}

	return nil
}

// usualGrace is for what is left of an instance of which nothing is known.
const usualGrace = 10 * time.Second

// resetRecord is the record of another start than the one before.
func (k *keeper) resetRecord(restarts int, streak int) {
	k.changeRecord(func(r *service.Record) {
		*r = service.Record{
			State: service.Starting, Since: time.Now(), Hash: k.instance.Hash, Service: k.instance.Service, After: k.instance.After,
			Keeper: r.Keeper, Boot: r.Boot, Namespace: r.Namespace, Last: r.Last, Devices: []job.Given{}, Restarts: restarts, Streak: streak,
			Stop: k.task.Care.Stop, Grace: k.task.Spec.Grace, Exit: r.Exit, Signal: r.Signal,
		}
	})
}

// watchForEnd ends the run when the folder says so: a user wants this start to end, or the folder was removed, so that
// no command could find the instance later.
func (k *keeper) watchForEnd(w *projectdir.Watcher, meant string, cancel func()) {
	for hurried := false; ; {
		hash, now := k.folder.RequestedEnd(k.orders.Instance)
		asked := hash != "" && hash == meant
		if asked || !k.lock.IsInPlace() {
			k.setEnding()
			cancel()
		}

		if asked && now && !hurried {
			hurried = true
			close(k.hurry)
		}

		select {
		case <-w.Changed:
		case <-k.late:
			// Until there is room on the disk.
			time.Sleep(2 * time.Second)
			k.changeRecord(func(*service.Record) {})
		}
	}
}

// setEnding writes nothing where the record says so already: what is written there is a change that listen looks at.
func (k *keeper) setEnding() {
	k.mu.Lock()
	state := k.record.State
	k.mu.Unlock()
	if isOver(state) || state == service.Ending {
		return
	}

	k.changeRecord(func(r *service.Record) {
		if !isOver(r.State) {
			r.State, r.Since, r.Why = service.Ending, time.Now(), ""
		}
	})
}

// changeRecord changes the record and writes it. A disk that is full costs the record, which is said once, and not the
// service.
func (k *keeper) changeRecord(change func(*service.Record)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.record)
	if !k.lock.IsInPlace() {
		// The folder is being removed.
		return
	}

	err := k.folder.SetRecord(k.orders.Instance, k.record)
	if err == nil {
		return
	}

	select {
	case k.late <- struct{}{}:
	default:
	}

	if !k.told {
		k.told = true
		k.writeNote("what is shown of this service is not up to date: " + err.Error())
	}
}

// writeNote writes a line of gpuard's own into the log.
func (k *keeper) writeNote(text string) {
	// A log that cannot be written is no fault of the service.
	_ = run.WriteNote(k.host, k.logPath(), text)
}

func (k *keeper) logPath() string {
	return cmp.Or(k.task.Care.Log, k.folder.LogPath(k.orders.Instance))
}

// recordOver writes the last record.
func (k *keeper) recordOver(state service.State, why string) {
	k.stopChecks()
	k.changeRecord(func(r *service.Record) {
		r.State, r.Why, r.Since, r.Main, r.Lease, r.Healthy = state, why, time.Now(), service.Process{}, "", nil
		if state != service.Done {
			r.Ready = false
		}
	})
}

// takeLifeLock takes the lock that the command inherits.
func (k *keeper) takeLifeLock(ctx context.Context) (*projectdir.Lock, error) {
	for told := false; ; told = true {
		lock, err := k.folder.LockLife(k.orders.Instance)
		if lock != nil || err != nil {
			return lock, err
		}

		if !told {
			k.changeRecord(func(r *service.Record) {
				r.State, r.Since = service.Waiting, time.Now()
				r.Why = "waits for processes of an earlier start that cannot be seen from here: they run in a container, or as another user"
			})
		}

		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// startCommand runs the command until it ends for good.
func (k *keeper) startCommand(ctx context.Context) {
	if k.mistake != nil {
		k.recordRefusal(ctx, k.mistake)
		return
	}

	if err := os.Chdir(k.instance.WorkDir); err != nil {
		k.recordOver(service.Refused, fmt.Sprintf("cannot use the workdir of %s: %v", k.instance.Name, err))
		return
	}

	k.host.Env = k.commandEnv()
	k.host.Stand = k.showProgress
	supervised := false
	k.host.Say = func(text string) {
		if !supervised {
			// From then on the log hears it by itself.
			k.writeNote(text)
		}
	}

	// That it falls back to the CPU, too.
	k.host.Loud = k.host.Say
	spec := k.task.Spec
	spec.Prefer, spec.Name = k.recordSnapshot().Last, k.project+"/"+k.instance.Name
	l, err := run.Prepare(ctx, k.host, spec)
	if err != nil {
		k.recordRefusal(ctx, err)
		return
	}

	supervised = true
	k.task.Care.Streak = k.recordSnapshot().Streak
	l.SetOversight(k.task.Oversight)
	l.SetService(k.recordEnd, k.recordFreed, k.unfit, k.hurry, k.life.File)
	done, _, err := l.Supervise(ctx, k.task.Care, k.recordStart)
	if err != nil {
		k.recordRefusal(ctx, err)
		return
	}

	k.recordFinalEnd(ctx, done)
}

// commandEnv is what the command and its probes are started with.
func (k *keeper) commandEnv() []string {
	return append(withoutServiceVar(k.host.Env), serviceVariable+"="+k.own.serviceTag())
}

// recordRefusal is the end of a start that did not come about.
func (k *keeper) recordRefusal(ctx context.Context, err error) {
	if ctx.Err() != nil {
		k.recordOver(service.Done, endedBeforeStart)
		return
	}

	text := err.Error()
	var refusal *job.Refusal
	if errors.As(err, &refusal) && refusal.Remedy != "" {
		text += "; " + refusal.Remedy
	}

	k.writeNote(text)
	if refusal != nil {
		for _, r := range refusal.Reasons {
			k.writeNote(fmt.Sprintf("GPU %d (%s): %s", r.Index, r.Name, r.Text))
		}
	}

	k.recordOver(service.Refused, text)
}

// showProgress records the place of the request in the queue.
func (k *keeper) showProgress(s *status.Standing) {
	if s == nil {
		return
	}
	text := k.words.Standing(*s)
	k.changeRecord(func(r *service.Record) {
		if r.State == service.Waiting && r.Why == text || r.State == service.Ending {
			return
		}
		if r.State != service.Waiting {
			r.State, r.Since = service.Waiting, time.Now()
		}
		r.Why = text
	})
}

// recordStart hears of a start: just before it, and right after it with the command's PID.
func (k *keeper) recordStart(l *run.Launch, pid int) error {
	var process service.Process
	if pid != 0 {
		if s, err := k.host.Proc.Stat(pid); err == nil {
			// Else it is over already.
			process = service.Process{PID: pid, Start: s.Start}
		}
	} else {
		k.stopChecks()
	}

	inode, offset := tail.InodeAndSize(k.logPath())
	k.changeRecord(func(r *service.Record) {
		if pid == 0 {
			r.Output = service.Place{Inode: inode, Offset: offset}
		}

		r.Lease, r.Devices, r.Share, r.Main = l.Lease, append([]job.Given{}, l.Plan.Devices...), l.Plan.Share, process
		r.Last = nil
		if len(r.Devices) > 0 {
			for _, d := range r.Devices {
				r.Last = append(r.Last, d.UUID)
			}
		}

		switch {
		case r.State == service.Ending:
		case pid == 0:
			r.State, r.Since, r.Why, r.Ready, r.Healthy = service.Starting, time.Now(), "", false, nil
		default:
			r.State, r.Since, r.Ready = service.Running, time.Now(), k.instance.Ready == nil
		}
	})

	if pid != 0 {
		k.startChecks(k.instance.Ready == nil)
	}

	return nil
}
