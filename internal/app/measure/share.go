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

// leaseMeter is what is known of one lease.
type leaseMeter struct {
	*measurer
	lease job.Lease
	// The process of the lease; nil: it has ended, and what it left behind has the lease.
	process *os.File
	// Closed when that process has.
	ended  <-chan struct{}
	limits quota.Limits
	// Only processes of this user may be ended.
	uid   uint32
	began time.Time
	cases map[gpu.UUID]quota.Case
	// Process id and start of everything that was ever in the lease's tree.
	members map[int]uint64
	level   job.Quota // at the start
	// What the lease says now.
	said job.Quota
	// Measurements in a row that could not be made here.
	blindness int
	through   mpsState

	where jobLocation
}

// livingMembers are the living processes of those that were ever in the lease's tree.
func (w *leaseMeter) livingMembers() (pids []int) {
	for pid, start := range w.members {
		if w.host.Proc.IsAlive(pid, start) {
			pids = append(pids, pid)
		} else {
			delete(w.members, pid)
		}
	}
	return pids
}

// measureOnce measures every device of the lease once, and reports whether it uses more than its share.
func (w *leaseMeter) measureOnce(ctx context.Context, r *machineReading) (over bool) {
	level := w.level
	var seen []quota.Use
	for _, id := range w.lease.Devices {
		s := quota.Sample{At: w.timeSinceStart(), Blind: w.deviceBlindReason(r, id)}
		if s.Blind == "" {
			s.Uses = w.usesOn(r, id)
		}

		next, order := w.cases[id].JudgeSample(w.limits, s)
		w.cases[id] = next
		over = over || next.Over()
		w.obeyOrder(measuredDevice{quota.Names{Lease: w.lease.ID, Device: machine.NameOf(r.machine, id)}, r.machine, id}, order, s.Uses)
		seen = append(seen, s.Uses...)
		if next.IsUnmeasured() {
			level = job.NoQuota
		}
	}

	if level == job.MPS {
		// After all devices were judged: its daemon may be slow.
		w.verifyMPS(ctx, seen)
	}

	w.noteLevel(level)

	return over
}

// noteUse adds what the lease uses now to what is noted of it.
func (w *leaseMeter) noteUse(r *machineReading) {
	u, known := w.used[w.lease.ID]
	if !known {
		// By the process that measured before.
		u = w.oldUsed[w.lease.ID]
	}

	if u.Until.Before(w.lease.Since) {
		u = quota.Measured{}
	}

	u.Add(r.machine, &w.lease, func(device gpu.UUID) (sum gpu.Bytes) {
		for _, use := range w.usesOn(r, device) {
			if use.Memory != nil {
				sum += *use.Memory
			}
		}
		return sum
	})

	w.used[w.lease.ID] = u
}

func (w *leaseMeter) timeSinceStart() time.Duration { return time.Since(w.began) }

// mpsPatience is how long a process may be on a device before it must be a client of MPS.
func (w *leaseMeter) mpsPatience() time.Duration { return cmp.Or(w.host.Times.Reach, 30*time.Second) }

// noteLevel keeps what the lease says about itself true.
func (w *leaseMeter) noteLevel(level job.Quota) {
	if level == job.MPS {
		level = w.through.quotaLevel()
	}
	if level != w.said && w.folder.SetQuota(w.lease.ID, level) == nil {
		w.said = level
	}
}

// measuredDevice is one device of the lease, as the driver has listed its processes.
type measuredDevice struct {
	quota.Names
	machine gpu.Machine
	device  gpu.UUID
}

// obeyOrder carries out the order. A process that cannot read the warning is ended all the same: the share was agreed
// on.
func (w *leaseMeter) obeyOrder(n measuredDevice, o quota.Order, uses []quota.Use) {
	if o.Blind != "" {
		w.warnOwner(o.BlindText(n.Names, w.limits), nil)
	}
	if o.Warn {
		w.warnOwner(o.WarningText(n.Names, w.limits, uses), uses)
	}
	w.endProcesses(n, o, uses, o.Terminate, false)
	w.endProcesses(n, o, uses, o.Kill, true)
}

// endProcesses says what is about to happen, for a command that is gone has no standard error, and does it.
func (w *leaseMeter) endProcesses(n measuredDevice, o quota.Order, uses, who []quota.Use, force bool) {
	strange := slices.DeleteFunc(slices.Clone(who), func(u quota.Use) bool { return w.isMeasured(n, u) || !w.host.Proc.IsAlive(u.PID, u.Start) })
	who = slices.DeleteFunc(slices.Clone(who), func(u quota.Use) bool { return !w.isMeasured(n, u) })
	if len(strange) > 0 && force {
		w.warnOwner(o.UntouchedText(n.Names, w.limits, strange), nil)
	}

	if len(who) == 0 {
		return
	}

	w.warnOwner(o.EndingText(n.Names, w.limits, uses, who, force), who)

	for _, u := range who {
		// One that has ended meanwhile is what was wanted.
		_ = quotawatch.EndProcess(u.PID, force, func() bool { return w.isMeasured(n, u) })
	}
}

// isMeasured reports whether this is the process that was measured, of the user of the lease, and proves it.
func (w *leaseMeter) isMeasured(n measuredDevice, u quota.Use) bool {
	s, err := w.host.Proc.Stat(u.PID)
	uid, ok := w.host.Proc.Owner(u.PID)
	return err == nil && ok && s.Start == u.Start && u.Start != 0 && uid == w.uid && w.host.ProveUse(n.machine, u.PID, n.device) == nil
}

// warnOwner says it on the standard error of the lease's command; where that is gone or closed, of a process that it is
// about.
func (w *leaseMeter) warnOwner(text string, about []quota.Use) {
	line := "gpuard: " + text + "\n"
	if w.process != nil && quotawatch.WriteToStderr(int(w.process.Fd()), w.lease.PID, line) == nil {
		return
	}

	for _, u := range about {
		process, err := launch.OpenPidfd(u.PID)
		if err != nil {
			continue
		}

		err = quotawatch.WriteToStderr(int(process.Fd()), u.PID, line)
		_ = process.Close()
		if err != nil {
			continue
		}

		return
	}
}

// sortByPID keeps the order of sentences.
func sortByPID(uses []quota.Use) []quota.Use {
	slices.SortFunc(uses, func(a, b quota.Use) int { return cmp.Compare(a.PID, b.PID) })
	return uses
}
