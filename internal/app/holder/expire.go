package holder

import (
	"context"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/quotawatch"
	"gpuard/internal/host/store"
)

// A rule of the policy may limit the time of a lease. A supervising gpuard ends its command then, as for --timeout. A
// lease that outlives its command (--keep-while) is ended by its holder, and the time counts over all starts of the
// command.

// endExpired ends the command of a lease, and what that started, when the time of the lease is over, and reports
// whether it was. They have grace before they are killed; then what is left of the lease in an engine is ended. done is
// closed when the command has ended. A process that gpuard did not start, such as a shell, goes on without its lease.
func endExpired(process int, folder *store.Folder, lease job.Lease, orders *Orders, grace time.Duration, done <-chan struct{}) bool {
	processes := proc.New("/proc")
	if !awaitMoment(processes, orders, done) {
		return false
	}
	if lease.Apart {
		return releaseInTime(process, folder, lease, grace, done)
	}

	_ = quotawatch.WriteToStderr(process, lease.PID, "gpuard: the time of lease "+lease.ID+" is over: ending the command\n")

	// Everything that was ever seen in it: process ids, and when each began.
	tree := map[int]uint64{}
	end := func(force bool) (left int) {
		var roots []int
		if len(tree) == 0 && processes.IsAlive(lease.PID, lease.Start) {
			roots = []int{lease.PID}
		}

		for pid, start := range tree {
			if processes.IsAlive(pid, start) {
				roots = append(roots, pid)
			}
		}

		for _, pid := range processes.ProcessTree(roots...) {
			s, err := processes.Stat(pid)
			_, asked := tree[pid]
			if machine.IsOwnHelper(pid) {
				// It may serve other jobs, too.
				continue
			}

			if !asked && err == nil {
				tree[pid] = s.Start
			}

			if !asked || force {
				_ = quotawatch.EndProcess(pid, force, func() bool { return processes.IsAlive(pid, tree[pid]) })
			}
		}

		return len(roots)
	}

	late := time.Now().Add(grace)

	// It kills again and again: a process may start another one just before it dies.
	for force := false; end(force) > 0 && time.Since(late) < job.KillGrace; time.Sleep(grace / 100) {
		force = time.Now().After(late)
	}

	if orders.Containers != nil {
		_, _ = orders.Containers.SignalContainers(context.Background(), "")
	}

	return true
}

// releaseInTime gives a lease back whose time is over, again and again where that fails, and says so on the terminal of
// its process, which goes on. It returns false when that has ended before.
func releaseInTime(process int, folder *store.Folder, lease job.Lease, pause time.Duration, done <-chan struct{}) bool {
	for folder.Release(lease, lease.Boot) != nil {
		select {
		case <-done:
			return false
		case <-time.After(pause):
		}
	}
	_ = quotawatch.WriteToStderr(process, lease.PID, "gpuard: the time of lease "+lease.ID+" is over: what still runs on its GPUs without a lease of its own may meet another job there. "+
		"For new ones in its shell: eval \"$(gpuard reserve --shell --any)\"\n")
	return true
}

// awaitMoment waits until the time of a lease is over and no gpuard lives that sees to it. It returns false when the
// command has ended before.
func awaitMoment(processes proc.FS, orders *Orders, done <-chan struct{}) bool {
	if orders.Until <= 0 {
		return false
	}
	for {
		now, err := processes.Uptime()
		left := time.Duration(orders.Until) - now
		if err == nil && left <= 0 {
			if orders.InTime == nil || !orders.InTime.isAlive() {
				return true
			}
			left = time.Second
		}

		select {
		case <-done:
			return false
		case <-time.After(min(max(left, time.Second/100), time.Minute)):
			// No timer counts while the machine sleeps.
		}
	}
}

// keepForNextStart keeps the lease of a command that has ended while its next start may come, and reports whether
// another process has the lease by now.
func keepForNextStart(w *launch.HolderWatch, folder *store.Folder, lease job.Lease, next *NextStart, most time.Duration) bool {
	if next == nil {
		return false
	}

	parent, err := next.Parent.openPidfd()
	if err != nil {
		return false
	}

	defer parent.Close() //nolint:errcheck // close-on-exec anyway

	// For people; it is kept all the same.
	_ = folder.KeepForNextStart(lease, time.Now().Add(most).Truncate(time.Second), w.IsLeaseGone)
	w.WaitForNextStart(string(next.While), parent, most, most/15)

	return w.IsLeaseGone()
}
