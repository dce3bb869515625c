package app

import (
	"strconv"
	"time"

	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/quotawatch"
)

// A rule of the policy may limit how long a lease lasts. A command that gpuard stays beside is ended by gpuard then, as by
// --timeout; one whose lease outlives it (--keep-while) is ended by its holder, and the time goes on over all of its starts.

// due is the moment at which the time of a lease is over, by CLOCK_BOOTTIME.
func due(l job.Lease, most time.Duration) int64 { return l.SinceBoot + int64(most) }

// expire ends the command of a lease, and what that started, when the time of the lease is over, and reports whether it was.
// They have grace before they are killed. done is closed when the command has ended.
func expire(process int, lease job.Lease, until string, grace time.Duration, done <-chan struct{}) bool {
	processes := proc.New("/proc")
	moment, err := strconv.ParseInt(until, 10, 64)
	if err != nil || moment == 0 {
		return false
	}
	for {
		now, err := processes.Uptime()
		left := time.Duration(moment) - now
		if err == nil && left <= 0 {
			break
		}
		select {
		case <-done:
			return false
		case <-time.After(min(max(left, time.Second/100), time.Minute)): // no timer counts while the machine sleeps
		}
	}
	_ = quotawatch.Tell(process, lease.PID, "gpuard: the time of lease "+lease.ID+" is over: ending the command\n")
	tree := map[int]uint64{} // everything that was ever seen in it: process ids, and when each began
	end := func(force bool) (left int) {
		var roots []int
		if len(tree) == 0 && processes.Alive(lease.PID, lease.Start) {
			roots = []int{lease.PID}
		}
		for pid, start := range tree {
			if processes.Alive(pid, start) {
				roots = append(roots, pid)
			}
		}
		for _, pid := range processes.Tree(roots...) {
			s, err := processes.Stat(pid)
			_, asked := tree[pid]
			if !asked && err == nil {
				tree[pid] = s.Start
			}
			if !asked || force {
				_ = quotawatch.End(pid, force, func() bool { return processes.Alive(pid, tree[pid]) })
			}
		}
		return len(roots)
	}
	for late := time.Now().Add(grace); end(false) > 0; time.Sleep(grace / 100) {
		if time.Now().After(late) {
			end(true)
			break
		}
	}
	return true
}
