// Package observe reads the machine again and again for those who look at it: the page, its metrics and top. The
// reading is done by a child, because a call of a driver can hang: the child is then replaced, and what was read before
// stays. It changes no lease, and nothing that leases need depends on it.
//
//	o, err := observe.New(host, folder)
//	go o.Run(ctx)
//	seen := o.Now()
package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gpuard/internal/app/leases"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

// Snapshot is what there was to see at one moment. It is not changed any more.
type Snapshot struct {
	Report status.Report
	// When the report came; zero: none has come yet.
	At time.Time
	// Why there is no newer report; "" if this one is new.
	Trouble string
	// What was counted since this process began.
	Counts trend.Counts
	// The minutes of the last day, oldest first.
	Minutes []trend.Minute
	Width   time.Duration // of a minute
	// How many readers were started.
	Children int
	// The use of the leases that have not ended, until now.
	Uses []trend.EndedLease
	// That have ended in the last minutes, before who reads files knows of them.
	Over []trend.EndedLease
}

// Observer keeps what was seen last.
type Observer struct {
	// Reads what the child has read: no call of the driver happens in this process.
	Host *machine.Host
	// nil: what is wrong is said, and nothing else is done. Set it before Run.
	Tell OwnerNotifier

	// nil: the last day is only kept in memory.
	file *dayFile
	day  *trend.Day
	uses trend.Uses
	// nil: what becomes of leases is not kept.
	log *endedLog
	// nil: no files for dcgm-exporter.
	jobs *jobMap

	// The watch for what the owner of the machine should know.
	watch trend.Watch

	// Filled by each reader that was started and has not ended.
	readers chan struct{}
	mapping bool // jobs are kept
	// The last write was not taken.
	lost bool
	// Writes to files, in this order; a file system that hangs keeps nobody waiting.
	writes chan func()

	mu        sync.Mutex
	last      childMessage // of the child
	came      time.Time
	seen      Snapshot
	listeners map[chan struct{}]bool
}

// OwnerNotifier is told what the owner of the machine should know, with root's rules about that. It must not wait.
type OwnerNotifier func(rules policy.Watch, troubles []trend.Trouble)

// keepEndedFor is how long a lease that has ended is among those that were seen: the files are read again before.
const keepEndedFor = 5 * time.Minute

// reportInterval is between two reports.
func reportInterval(host *machine.Host) time.Duration { return cmp.Or(host.Times.Observe, time.Second) }

// New makes an observer. folder is where the last day is kept, and continued; "" nowhere. A folder that cannot be used
// is told by the error, and the observer works without it.
func New(host *machine.Host, folder string) (*Observer, error) {
	own := *host
	o := &Observer{Host: &own, listeners: map[chan struct{}]bool{}, readers: make(chan struct{}, mostStuck), writes: make(chan func(), mostWrites)}
	width := cmp.Or(host.Times.Minute, time.Minute)
	o.day, o.watch.Minute = trend.NewDay(width), width
	if host.IsHardware() {
		own.Reader = o.lastReading
	}

	o.seen.Width = width
	o.seen.Trouble = "the machine is being read"
	if folder == "" {
		return o, nil
	}

	file, minutes, err := openDay(folder)
	if err != nil {
		return o, err
	}

	o.file = file
	o.day.Restore(minutes)
	o.seen.Minutes = o.day.Minutes()
	log, open, err := openEnded(folder)
	if err != nil {
		return o, err
	}

	o.log = log
	o.uses.Restore(open)

	return o, nil
}

// MapJobs keeps files with the leases of each device in a folder, for dcgm-exporter. Call it before Run.
func (o *Observer) MapJobs(folder string) (err error) {
	o.jobs, err = openJobs(folder)
	o.mapping = err == nil
	return err
}

// Now is what was seen last.
func (o *Observer) Now() Snapshot {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen
}

// Listen returns a channel that is filled after each change, until leave is called. It holds one notice: a slow
// listener misses moments and gets the last.
func (o *Observer) Listen() (changed <-chan struct{}, leave func()) {
	c := make(chan struct{}, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listeners[c] = true

	return c, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.listeners, c)
	}
}

// Run observes until ctx ends. A child that was replaced before its first reading may only have been slow, as on a
// machine that is busy with something else: the next one gets more time, else no reading would ever come.
func (o *Observer) Run(ctx context.Context) {
	defer o.startWriter()()
	usual := o.readerPatience()
	patience := usual
	for pause := time.Second; ctx.Err() == nil; {
		began := time.Now()
		readings, why := o.runReader(ctx, patience)
		if ctx.Err() != nil {
			return
		}

		if readings > 0 {
			patience = usual
		} else {
			patience = min(2*patience, lateMost*usual)
		}

		if time.Since(began) > 10*time.Minute {
			pause = time.Second
		}

		o.noteTrouble(why)

		select {
		case <-ctx.Done():
		case <-time.After(pause):
			// What hangs once hangs again: not a new process each second.
		}

		pause = min(2*pause, time.Minute)
	}
}

// lastReading is the reader of this process: it gives what the child read last.
func (o *Observer) lastReading(context.Context, gpu.Query) (gpu.Machine, error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	switch {
	case o.came.IsZero():
		return gpu.Machine{}, errors.New("cannot read the devices: no reading has come yet")
	case o.last.Unavailable != nil:
		return gpu.Machine{}, o.last.Unavailable
	case o.last.Machine == nil:
		return gpu.Machine{}, errors.New(o.last.Error)
	}

	m := *o.last.Machine
	m.Devices, m.Processes, m.Problems = slices.Clone(m.Devices), slices.Clone(m.Processes), slices.Clone(m.Problems)

	return m, nil
}

// acceptReading takes one reading in, and reports the use of the machine that it shows.
func (o *Observer) acceptReading(ctx context.Context, m childMessage) {
	o.mu.Lock()
	o.last, o.came = m, time.Now()
	o.mu.Unlock()
	report, err := leases.Status(ctx, o.Host)
	if err != nil {
		o.noteTrouble(err.Error())
		return
	}

	rules := o.watchRules()
	say, troubles := o.showReport(&report, rules)
	for _, text := range say {
		// Not under the lock: standard error may be a pipe that nobody reads.
		o.Host.Say(text)
	}

	if o.Tell != nil {
		o.Tell(rules, troubles)
		return
	}

	for _, t := range troubles {
		o.Host.Say(t.Text)
	}
}

// watchRules are those of the machine's file for what is wrong. Only root acts for the machine; files that cannot be
// used permit nothing.
func (o *Observer) watchRules() policy.Watch {
	files, err := o.Host.Config()
	if err != nil {
		files = nil
	}

	all, _ := o.Host.Rules()
	w := files.Watch()
	w.Display = all.Tolerate.Display
	if o.Tell == nil || !o.Host.IsHardware() || !o.Host.Proc.IsRoot() {
		w = w.WithoutRootRights()
	}

	return w
}

// showReport makes a report what is seen now, and returns what could not be kept, and what the owner of the machine
// should know.
func (o *Observer) showReport(s *status.Report, rules policy.Watch) (say []string, troubles []trend.Trouble) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var before *status.Report
	if !o.seen.At.IsZero() {
		before = &o.seen.Report
	}

	o.seen.Counts = o.seen.Counts.WithReport(before, s)
	o.watch.Rules = rules
	troubles = o.watch.Add(s)
	over, ended := o.day.Add(s), o.uses.Add(s)
	if over != nil {
		o.seen.Minutes = o.day.Minutes()
	}

	o.seen.Uses = o.uses.OpenLeases()
	o.seen.Over = slices.DeleteFunc(slices.Concat(o.seen.Over, ended), func(e trend.EndedLease) bool { return s.Taken.Sub(e.Until) > keepEndedFor })
	say = append(say, o.queueFiles(s, over, ended)...)
	o.seen.Report, o.seen.At, o.seen.Trouble = *s, time.Now(), ""
	o.notifyListeners()

	return say, troubles
}

// noteTrouble notes why there is no report.
func (o *Observer) noteTrouble(why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if why != o.seen.Trouble {
		o.seen.Trouble = why
		o.notifyListeners()
	}
}

func (o *Observer) notifyListeners() {
	for c := range o.listeners {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// lateText says that the driver does not answer.
func lateText(since time.Duration) string {
	return fmt.Sprintf("the driver has not answered for %d s: the readings are old", int(since.Seconds()))
}
