package app

import (
	"fmt"
	"slices"
	"strings"
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

// guard keeps a process that measures beside a shared lease, until done is closed. process is a pidfd of the lease's command. It is the holder's child, so that its
// death is noticed at once: it is said where the command can read it, and another one is started. When that does not help,
// the lease says that nobody sees to its share. The holder's own death takes nothing from the lease: what measures lives on.
func guard(process int, folder *store.Folder, l job.Lease, done <-chan struct{}) {
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
			say(fmt.Sprintf("nobody sees to the share of lease %s any more: the process that measures it ended %d times (%s)", l.ID, deaths, err))
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

// young is how long after its claim a lease may be without what measures it.
const young = 3 * time.Second

// unmeasured finds the shared leases that nobody measures although they say so, because both what measured and the holder that
// would start another were ended, and takes their level away. A lease whose processes cannot be seen here is left as it is.
func (a *App) unmeasured(held []job.Lease) (notes []string) {
	if !a.hardware() {
		return nil
	}
	known := map[uint32][]string{} // command lines of what measures, by user
	for i, l := range held {
		if l.Share == 0 || l.Quota == job.NoQuota || l.Unreadable || l.Namespace != a.Proc.Namespace() || time.Since(l.Since) < young || !a.commandAlive(l) {
			continue
		}
		if _, asked := known[l.UID]; !asked {
			known[l.UID] = a.measurers(l.UID)
		}
		if !slices.ContainsFunc(known[l.UID], func(line string) bool { return strings.HasSuffix(line, " "+l.ID) }) {
			held[i].Quota = job.NoQuota
			notes = append(notes, fmt.Sprintf("nobody sees to it that lease %s of %s keeps to its share of %s: what measured it was ended, and its holder too", l.ID, l.User, l.Share))
		}
	}
	return notes
}

// measurers lists the command lines of a user's processes that measure; each ends with the lease.
func (a *App) measurers(uid uint32) (lines []string) {
	for _, pid := range a.Proc.Of(uid) {
		if line := a.Proc.Describe(pid).Command; strings.Contains(line, " "+quotawatch.Flag+" ") {
			lines = append(lines, line)
		}
	}
	return lines
}
