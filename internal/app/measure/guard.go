package measure

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/host/quotawatch"
	"gpuard/internal/host/store"
)

// restarts is how often in a row a guard starts again what measures; one that lived for settled starts the count anew.
const (
	maxRestarts = 5
	settleTime  = time.Minute
)

// What a process that measures is to measure.
const (
	allShares = "all" // those of its user
	// The other leases of its user, whose use is only noted.
	allOthers = "others"
	oneLease  = "one"
)

// IsMeasuring reports whether the process with this command line measures a lease of its user in a state folder.
func IsMeasuring(commandLine, folder string, l *job.Lease) bool {
	return strings.Contains(commandLine, " "+folder+" ") && (l.Quota != job.MPS && strings.HasSuffix(commandLine, " "+allShares) || strings.HasSuffix(commandLine, " "+l.ID+" "+oneLease))
}

// How long the process that measures all may take to see a new lease: a driver may be slow. A share must not wait long;
// the use of other leases is only noted, and each process more is one more that asks that driver.
const (
	shareTakeTimeout = 2 * UnmeasuredGrace
	otherTakeTimeout = 10 * UnmeasuredGrace
)

// GuardLease sees to it that a lease is measured, until done is closed: a shared one from now on, another one when it
// is older than a moment. process is a pidfd of the lease's command. While another process measures all leases of this
// kind GuardLease sleeps; when that ends, one of the guards starts the next one. The measuring process is a child of
// the holder, which therefore sees its death immediately and starts another one; of a share it tells that on the
// command's standard error, and if it fails repeatedly, the lease records that it is not measured. The death of the
// holder changes nothing: the measuring process lives on.
func GuardLease(host *machine.Host, process int, folder *store.Folder, l job.Lease, done <-chan struct{}) {
	if !isMeasurable(&l) {
		return
	}
	if l.Share == 0 {
		if store.InventedName(folder.Path) != "" {
			return
		}
		isStillHeld := sleepUnless(done, host.SampleInterval())
		if !isStillHeld {
			return
		}
	}
	say := func(text string) {
		if l.Share > 0 {
			_ = quotawatch.WriteToStderr(process, l.PID, "gpuard: "+text+"\n")
		}
	}
	for deaths := 1; ; deaths++ {
		began := time.Now()
		err := startMeasurer(folder, l, done)
		if isClosed(done) {
			return
		}

		if err == nil {
			if isOver(folder, l.ID) || !sleepUnless(done, UnmeasuredGrace) {
				return
			}

			// It has lost sight of the lease, as of a container between two of its processes.
			deaths = 0
			continue
		}

		if time.Since(began) > settleTime {
			deaths = 1
		}

		if deaths > maxRestarts {
			_ = folder.SetQuota(l.ID, job.NoQuota)
			say(fmt.Sprintf("no process enforces the share of lease %s any more: the one that measures it ended %d times (%s)", l.ID, deaths, err))
			return
		}

		say(fmt.Sprintf("the process that measures lease %s has ended (%s); started another one", l.ID, err))
		if !sleepUnless(done, 100*time.Millisecond<<deaths) {
			return
		}
	}
}

// isOver reports whether a lease of this user is certainly over: all leases can be read, and it is not among them.
func isOver(folder *store.Folder, id string) bool {
	all, problems := folder.Leases()
	return !isHidden(folder, problems) && !slices.ContainsFunc(all, func(l job.Lease) bool { return l.ID == id && l.UID == uint32(os.Geteuid()) }) //nolint:gosec // a uid
}

// isHidden reports whether leases may be there that could not be read.
func isHidden(folder *store.Folder, problems []store.Problem) bool {
	return slices.ContainsFunc(problems, func(p store.Problem) bool { return p.Path == folder.Path })
}

// isMeasurable reports whether a lease is to be measured. A part of another one has that one's devices.
func isMeasurable(l *job.Lease) bool {
	return l.Share > 0 && l.Quota != job.NoQuota || l.Share == 0 && l.Parent == "" && len(l.Devices) > 0
}

// sleepUnless waits so long, or until done is closed. It reports whether done is still open.
func sleepUnless(done <-chan struct{}, long time.Duration) bool {
	select {
	case <-done:
		return false
	case <-time.After(long):
		return true
	}
}

// startMeasurer waits until no process measures the lease, starts one, and waits for its end. Without an error the
// lease is over.
func startMeasurer(folder *store.Folder, l job.Lease, done <-chan struct{}) error {
	file, err := folder.MeasureFile(true)
	if err != nil {
		return err
	}

	locks := quotawatch.NewLocks(file)
	what, err := awaitTurn(locks, l, done)
	if err != nil || what == "" {
		locks.Close()
		return err
	}

	cmd, err := quotawatch.StartMeasuring(locks, folder.Path, l.ID, what)

	// That process has them.
	locks.Close()
	if err != nil {
		return err
	}

	return cmd.Wait()
}

// awaitTurn waits until no process measures the lease, takes its lock, and says what is to be measured: "" nothing,
// because the lease is over.
func awaitTurn(locks *quotawatch.Locks, l job.Lease, done <-chan struct{}) (what string, err error) {
	if l.Quota == job.MPS {
		// The process ends the daemon with the lease.
		return oneLease, locks.WaitForLock(l.ID)
	}
	all, taken := allOthers, otherTakeTimeout
	if l.Share > 0 {
		all, taken = allShares, shareTakeTimeout
	}

	for late := time.Now().Add(taken); ; {
		switch {
		case !locks.TryLock(l.ID):
			// Another process measures it.
			if err := locks.WaitForLock(l.ID); err != nil {
				return "", err
			}
			late = time.Now().Add(taken)
		case locks.TryLock(fmt.Sprintf("%s in %d", all, l.Namespace)):
			return all, nil
		case time.Now().After(late):
			// The process that measures all others does not see this one.
			return oneLease, nil
		}

		// For that process.
		locks.ReleaseLock(l.ID)
		if !sleepUnless(done, UnmeasuredGrace/30) {
			return "", nil
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// UnmeasuredGrace is how long after its claim a lease may be without what measures it.
const UnmeasuredGrace = 3 * time.Second
