package holder

import (
	"fmt"
	"os"
	"strconv"
	"strings"
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

// expire ends the command of a lease, and what that started, when the time of the lease is over, and reports whether it
// was. They have grace before they are killed; then containers end what is left of the lease in an engine. until is the moment, and the
// process that sees to the time while it lives, if there is one: "MOMENT", or "MOMENT,PID,START". done is closed when the
// command has ended. A process that gpuard did not start, such as a shell, goes on without its lease.
func expire(process int, folder *store.Folder, lease job.Lease, until string, grace time.Duration, done <-chan struct{}, containers func()) bool {
	processes := proc.New("/proc")
	if !awaitMoment(processes, until, done) {
		return false
	}
	if lease.Apart {
		return releaseInTime(process, folder, lease, grace, done)
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
			if machine.OwnHelper(pid) { // it may serve other jobs, too
				continue
			}
			if !asked && err == nil {
				tree[pid] = s.Start
			}
			if !asked || force {
				_ = quotawatch.End(pid, force, func() bool { return processes.Alive(pid, tree[pid]) })
			}
		}
		return len(roots)
	}
	late := time.Now().Add(grace)
	// It kills again and again: a process may start another one just before it dies.
	for force := false; end(force) > 0 && time.Since(late) < job.Dying; time.Sleep(grace / 100) {
		force = time.Now().After(late)
	}
	containers()
	return true
}

// releaseInTime gives a lease back whose time is over, again and again where that fails, and says so on the terminal of its process,
// which goes on. It returns false when that has ended before.
func releaseInTime(process int, folder *store.Folder, lease job.Lease, pause time.Duration, done <-chan struct{}) bool {
	for folder.Release(lease, lease.Boot) != nil {
		select {
		case <-done:
			return false
		case <-time.After(pause):
		}
	}
	_ = quotawatch.Tell(process, lease.PID, "gpuard: the time of lease "+lease.ID+" is over: what still runs on its GPUs without a lease of its own may meet another job there. "+
		"For new ones in its shell: eval \"$(gpuard reserve --shell --any)\"\n")
	return true
}

// awaitMoment waits until a time is over that nobody sees to any more. It returns false when the command has ended before.
func awaitMoment(processes proc.FS, until string, done <-chan struct{}) bool {
	words := strings.Split(until, ",")
	moment, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil || moment <= 0 {
		return false
	}
	seenTo := func() bool { return false }
	if len(words) == 3 {
		pid, _ := strconv.Atoi(words[1])
		start, _ := strconv.ParseUint(words[2], 10, 64)
		seenTo = func() bool { return processes.Alive(pid, start) }
	}
	for {
		now, err := processes.Uptime()
		left := time.Duration(moment) - now
		if err == nil && left <= 0 {
			if !seenTo() {
				return true
			}
			left = time.Second
		}
		select {
		case <-done:
			return false
		case <-time.After(min(max(left, time.Second/100), time.Minute)): // no timer counts while the machine sleeps
		}
	}
}

// keepForNextStart keeps the lease of a command that has ended while its next start may come, and reports whether another
// process has the lease by now. args are those of Launch.afterlife.
func keepForNextStart(w *launch.Watch, folder *store.Folder, lease job.Lease, args []string, most time.Duration) bool {
	if len(args) == 0 {
		return false
	}
	parent, err := sameProcess(args[1], args[2])
	if err != nil {
		return false
	}
	defer parent.Close()                                                        //nolint:errcheck // close-on-exec anyway
	_ = folder.Await(lease, time.Now().Add(most).Truncate(time.Second), w.Gone) // for people; it is kept all the same
	w.Linger(args[0], parent, most, most/15)
	return w.Gone()
}

// sameProcess opens a process that is named by number and start.
func sameProcess(number, start string) (*os.File, error) {
	pid, err := strconv.Atoi(number)
	if err != nil {
		return nil, err
	}
	pidfd, err := launch.Pidfd(pid)
	if err != nil {
		return nil, err
	}
	if s, err := proc.New("/proc").Stat(pid); err != nil || strconv.FormatUint(s.Start, 10) != start {
		_ = pidfd.Close()
		return nil, fmt.Errorf("process %d is another one", pid)
	}
	return pidfd, nil
}
