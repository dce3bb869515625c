package measure

import (
	"fmt"
	"time"

	"gpuard/internal/core/job"
	"gpuard/internal/host/quotawatch"
	"gpuard/internal/host/store"
)

// restarts is how often in a row a holder starts again what measures; one that lived for settled starts the count anew.
const (
	restarts = 5
	settled  = time.Minute
)

// Guard keeps a process running that measures a shared lease, until done is closed. process is a pidfd of the lease's
// command. The measuring process is a child of the holder, which therefore sees its death immediately: it tells the
// command's standard error and starts another one. If that fails repeatedly, the lease records that it is not measured.
// The death of the holder changes nothing: the measuring process lives on.
func Guard(process int, folder *store.Folder, l job.Lease, done <-chan struct{}) {
	if l.Share == 0 || l.Quota == job.NoQuota {
		return
	}
	say := func(text string) { _ = quotawatch.Tell(process, l.PID, "gpuard: "+text+"\n") }
	for deaths := 1; ; deaths++ {
		began := time.Now()
		cmd, err := quotawatch.Start(process, folder.Path, l.ID)
		if err == nil {
			err = cmd.Wait()
		}
		if err == nil || closed(done) { // the lease is over
			return
		}
		if time.Since(began) > settled {
			deaths = 1
		}
		if deaths > restarts {
			_ = folder.Level(l.ID, job.NoQuota)
			say(fmt.Sprintf("no process enforces the share of lease %s any more: the one that measures it ended %d times (%s)", l.ID, deaths, err))
			return
		}
		say(fmt.Sprintf("the process that measures lease %s has ended (%s); started another one", l.ID, err))
		select {
		case <-done:
			return
		case <-time.After(100 * time.Millisecond << deaths):
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Young is how long after its claim a lease may be without what measures it.
const Young = 3 * time.Second
