package measure

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/quota"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/quotawatch"
)

// measuring is what is known of one lease.
type measuring struct {
	*measurer
	lease     job.Lease
	process   *os.File        // of the lease; nil: it has ended, and what it left behind has the lease
	ended     <-chan struct{} // closed when that process has
	limits    quota.Limits
	uid       uint32 // only processes of this user may be ended
	began     time.Time
	cases     map[gpu.UUID]quota.Case
	members   map[int]uint64 // process id and start of everything that was ever in the lease's tree
	level     job.Quota      // at the start
	said      job.Quota      // what the lease says now
	blindness int            // measurements in a row that could not be made here
	through   through

	where whereabouts
}

// roots are the living processes of those that were ever in the lease's tree.
func (w *measuring) roots() (pids []int) {
	for pid, start := range w.members {
		if w.host.Proc.Alive(pid, start) {
			pids = append(pids, pid)
		} else {
			delete(w.members, pid)
		}
	}
	return pids
}

// measureOnce measures every device of the lease once, and reports whether it uses more than its share.
func (w *measuring) measureOnce(ctx context.Context, r *reading) (over bool) {
	level := w.level
	var seen []quota.Use
	for _, id := range w.lease.Devices {
		s := quota.Sample{At: w.since(), Blind: w.blind(r, id)}
		if s.Blind == "" {
			s.Uses = w.uses(r, id)
		}
		next, order := w.cases[id].See(w.limits, s)
		w.cases[id] = next
		over = over || next.Over()
		w.act(measured{quota.Names{Lease: w.lease.ID, Device: machine.NameOf(r.machine, id)}, r.machine, id}, order, s.Uses)
		if seen = append(seen, s.Uses...); next.Unmeasured() {
			level = job.NoQuota
		}
	}
	if level == job.MPS { // after all devices were judged: its daemon may be slow
		w.verify(ctx, seen)
	}
	w.note(level)
	return over
}

// noteUse adds what the lease uses now to what is noted of it.
func (w *measuring) noteUse(r *reading) {
	u, known := w.used[w.lease.ID]
	if !known { // by the process that measured before
		u = w.oldUsed[w.lease.ID]
	}
	if u.Until.Before(w.lease.Since) {
		u = quota.Measured{}
	}
	u.Add(r.machine, &w.lease, func(device gpu.UUID) (sum gpu.Bytes) {
		for _, use := range w.uses(r, device) {
			if use.Memory != nil {
				sum += *use.Memory
			}
		}
		return sum
	})
	w.used[w.lease.ID] = u
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
	if w.process != nil && quotawatch.Tell(int(w.process.Fd()), w.lease.PID, line) == nil {
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
