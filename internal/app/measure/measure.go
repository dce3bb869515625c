// Package measure keeps jobs to their share of a device's memory: one process beside each holder measures it, warns,
// and ends what uses more.
package measure

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/quota"
	"gpuard/internal/host/daemonize"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/quotawatch"
	"gpuard/internal/host/store"
)

// Intervals of measuring, unless the App has others.
const (
	measuredEvery = time.Second
	measuredGrace = 3 * time.Second
)

// measuring is the life of such a process.
type measuring struct {
	host    *machine.Host
	folder  *store.Folder
	lease   job.Lease
	process *os.File // of the lease
	limits  quota.Limits
	uid     uint32 // only processes of this user may be ended
	began   time.Time
	cases   map[gpu.UUID]quota.Case
	members map[int]uint64 // process id and start of everything that was ever in the lease's tree
	level   job.Quota      // at the start
	said    job.Quota      // what the lease says now
	through through
}

// Run measures repeatedly how much memory the processes of one lease use on its devices, and does what core/quota
// decides, until the lease is over. args are a descriptor of the lease's process, the state folder and the lease ID.
func Run(ctx context.Context, host *machine.Host, args []string) error {
	if len(args) != 3 {
		return exit.Usagef("cannot measure by hand: gpuard run --share starts what measures itself")
	}
	process, err := quotawatch.Process(args[0])
	if err != nil {
		return err
	}
	defer process.Close() //nolint:errcheck // it ends with us
	daemonize.Outlast("gpu-measure")
	folder, err := store.Open(args[1], nil, time.Minute)
	if err != nil {
		return err
	}
	host.Say = func(string) {}
	w := &measuring{host: host, folder: folder, process: process, began: time.Now(), cases: map[gpu.UUID]quota.Case{}, members: map[int]uint64{}}
	var found bool
	if w.lease, found = folder.Own(args[2]); !found { // it was over before we looked
		w.leave(ctx)
		return nil
	}
	w.level, w.said = w.lease.Quota, w.lease.Quota
	w.limits = quota.Limits{Share: w.lease.Share, Grace: cmp.Or(host.Times.Grace, measuredGrace)}
	w.members[w.lease.PID] = w.lease.Start
	w.uid = uint32(os.Geteuid())
	if uid, ok := host.Proc.Owner(w.lease.PID); ok {
		w.uid = uid
	}
	ended := launch.Exited(process)
	for w.alive(ended) {
		pace := w.measureOnce(ctx)
		over := ended
		if closed(ended) { // processes that the command left behind may hold the lease, and nothing tells their end
			over, pace = nil, quota.Pace{Every: min(pace.Every, measuredEvery)}
		}
		select {
		case <-time.After(pace.NextLook()):
		case <-over:
		case <-ctx.Done():
			return nil
		}
	}
	if w.level == job.MPS {
		w.leave(ctx)
	}
	return nil
}

// alive reports whether the lease is live. After the end of its command its lock tells, because processes that the
// command left behind may hold it.
func (w *measuring) alive(ended <-chan struct{}) bool {
	if !closed(ended) {
		_, _, err := w.folder.LockFile(w.lease)
		return err == nil
	}
	_, found := w.folder.Own(w.lease.ID)
	return found && len(w.gather()) > 0
}

// measureOnce measures every device of the lease once, and says when to do it again.
func (w *measuring) measureOnce(ctx context.Context) quota.Pace {
	began, spent := time.Now(), w.spent()
	w.gather()
	m, err := w.host.Read(ctx, gpu.Processes)
	kin := w.kin()
	level := w.level
	pace := quota.Pace{Every: cmp.Or(w.host.Times.Measure, measuredEvery), Watched: kin.watched}
	var seen []quota.Use
	for _, id := range w.lease.Devices {
		s := quota.Sample{At: w.since()}
		if err != nil {
			s.Blind = err.Error()
		} else {
			s.Blind = w.host.Unlisted(m, []gpu.UUID{id})
		}
		if s.Blind == "" {
			s.Uses = w.uses(m.On(id), kin)
		}
		next, order := w.cases[id].See(w.limits, s)
		w.cases[id] = next
		pace.Over = pace.Over || next.Over()
		w.act(measured{quota.Names{Lease: w.lease.ID, Device: machine.NameOf(m, id)}, m, id}, order, s.Uses)
		if seen = append(seen, s.Uses...); next.Unmeasured() {
			level = job.NoQuota
		}
	}
	if level == job.MPS { // after all devices were judged: its daemon may be slow
		w.verify(ctx, seen)
	}
	w.note(level)
	pace.Cost, pace.Took = w.spent()-spent, time.Since(began)
	return pace
}

// spent is the processor time of all that measures: also of the process that reads the devices, which costs the most.
func (w *measuring) spent() time.Duration {
	if w.host.Spent == nil {
		return quotawatch.Spent()
	}
	return quotawatch.Spent() + w.host.Spent()
}

func (w *measuring) since() time.Duration { return time.Since(w.began) }

// patience is how long a process may be on a device before it must be a client of MPS.
func (w *measuring) patience() time.Duration { return cmp.Or(w.host.Times.Reach, 30*time.Second) }

// note keeps what the lease says about itself true.
func (w *measuring) note(level job.Quota) {
	if level == job.MPS {
		level = w.through.level()
	}
	if level != w.said && w.folder.Level(w.lease.ID, level) == nil {
		w.said = level
	}
}

// measured is one device of the lease, as the driver has listed its processes.
type measured struct {
	quota.Names
	machine gpu.Machine
	device  gpu.UUID
}

// act carries out the order. A process that cannot read the warning is ended all the same: the share was agreed on.
func (w *measuring) act(n measured, o quota.Order, uses []quota.Use) {
	if o.Blind != "" {
		w.warn(o.Blindness(n.Names, w.limits), nil)
	}
	if o.Warn {
		w.warn(o.Warning(n.Names, w.limits, uses), uses)
	}
	w.endProcesses(n, o, uses, o.Terminate, false)
	w.endProcesses(n, o, uses, o.Kill, true)
}

// endProcesses says what is about to happen, for a command that is gone has no standard error, and does it.
func (w *measuring) endProcesses(n measured, o quota.Order, uses, who []quota.Use, force bool) {
	strange := slices.DeleteFunc(slices.Clone(who), func(u quota.Use) bool { return w.isMeasured(n, u) || !w.host.Proc.Alive(u.PID, u.Start) })
	who = slices.DeleteFunc(slices.Clone(who), func(u quota.Use) bool { return !w.isMeasured(n, u) })
	if len(strange) > 0 && force {
		w.warn(o.Untouched(n.Names, w.limits, strange), nil)
	}
	if len(who) == 0 {
		return
	}
	w.warn(o.Ending(n.Names, w.limits, uses, who, force), who)
	for _, u := range who {
		_ = quotawatch.End(u.PID, force, func() bool { return w.isMeasured(n, u) }) // one that has ended meanwhile is what was wanted
	}
}

// isMeasured reports whether this is the process that was measured, of the user of the lease, and proves it.
func (w *measuring) isMeasured(n measured, u quota.Use) bool {
	s, err := w.host.Proc.Stat(u.PID)
	uid, ok := w.host.Proc.Owner(u.PID)
	return err == nil && ok && s.Start == u.Start && u.Start != 0 && uid == w.uid && w.host.ProveUse(n.machine, u.PID, n.device) == nil
}

// warn says it on the standard error of the lease's command; where that is gone or closed, of a process that it is
// about.
func (w *measuring) warn(text string, about []quota.Use) {
	line := "gpuard: " + text + "\n"
	if quotawatch.Tell(int(w.process.Fd()), w.lease.PID, line) == nil {
		return
	}
	for _, u := range about {
		process, err := launch.Pidfd(u.PID)
		if err != nil {
			continue
		}
		err = quotawatch.Tell(int(process.Fd()), u.PID, line)
		_ = process.Close()
		if err == nil {
			return
		}
	}
}

// sorted keeps the order of sentences.
func sorted(uses []quota.Use) []quota.Use {
	slices.SortFunc(uses, func(a, b quota.Use) int { return cmp.Compare(a.PID, b.PID) })
	return uses
}
