// Package measure keeps jobs to their share of a device's memory, and notes what each lease uses, for the history. One
// process measures all shares of a user: it reads the driver once for all of them, warns, and ends what uses more.
// Another one measures all other leases, now and then, so that nothing about those can delay that. Each lease has a
// guard in its holder, which sees to it that there is such a process (guard.go).
package measure

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/proof"
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

// mostBlind is how often in a row a share may be unreadable before it is left to a process of its own. That is started
// as its job was, so it may see what this one does not: devices that a scheduler has hidden here.
const mostBlind = 3

// measurer is the life of such a process.
type measurer struct {
	host   *machine.Host
	folder *store.Folder
	locks  *quotawatch.Locks
	// The lease for which it was started; it ends with that.
	first string
	// It measures: all shares of its user, all other leases, or one lease.
	what string
	// The time between two measurements.
	every  time.Duration
	leases map[string]*leaseMeter // that are measured
	// Leases that are left to a process of their own.
	left map[string]bool
	// Has a value when the process of a lease has ended.
	ended chan struct{}
	// What the process that measured before has noted.
	oldMembers quotawatch.Members
	oldUsed    quotawatch.Used // likewise
	// Leases of all users, as read last.
	held []job.Lease
	// The memory of the leases that are measured.
	used  map[string]quota.Measured
	began time.Time
	// When the use of the leases is noted again.
	sampleDue time.Time
}

// noteKey is the name of a lease among the members in the notes, for one start of its command.
func noteKey(l *job.Lease) string {
	return fmt.Sprint(l.Namespace, " ", l.ID, " ", l.PID, " ", l.Start)
}

// RunMeasurer measures repeatedly how much memory the processes of leases use on their devices, and does what
// core/quota decides, until the lease is over for which it was started. args are a descriptor of the locks, the state
// folder, that lease, and what is measured: allShares, allOthers or oneLease.
func RunMeasurer(ctx context.Context, host *machine.Host, args []string) error {
	locks, err := quotawatch.OpenLocks(args[0])
	if err != nil {
		return err
	}

	defer locks.Close()
	daemonize.IgnoreEndSignals("gpu-measure")

	// What cannot be noted now is noted the next time.
	folder, err := store.Open(args[1], nil, time.Second)
	if err != nil {
		return err
	}

	host.Say = func(string) {}
	m := &measurer{host: host, folder: folder, locks: locks, first: args[2], what: args[3], every: cmp.Or(host.Times.Measure, measuredEvery), began: time.Now(),
		leases: map[string]*leaseMeter{}, left: map[string]bool{}, ended: make(chan struct{}, 1), used: map[string]quota.Measured{}}

	m.oldMembers, m.oldUsed = locks.ReadMembers(), locks.Used()
	mps := false
	for due := time.Now(); m.updateLeases() && ctx.Err() == nil; {
		if w := m.leases[m.first]; w != nil {
			mps = mps || w.level == job.MPS
		}
		if !time.Now().Before(due) {
			due = time.Now().Add(m.measureAll(ctx))
		}

		select {
		// A new lease is seen soon, even if all are measured seldom.
		case <-time.After(min(time.Until(due), m.lookInterval())):
		case <-m.ended:
		case <-ctx.Done():
		}
	}

	m.leaveNotes(time.Second)
	if (mps || m.what == oneLease) && m.awaitRemoval(ctx) {
		m.quitMPSDaemon(ctx)
	}

	return nil
}

// removalTimeout is how long a holder may take to remove the lease of a command that has ended.
const removalTimeout = 3 * time.Second

// awaitRemoval waits until the lease is removed for which this process was started, and reports whether it is. A lease
// that goes on needs its daemon; its holder starts another process that measures it.
func (m *measurer) awaitRemoval(ctx context.Context) bool {
	for end := time.Now().Add(removalTimeout); ; time.Sleep(10 * time.Millisecond) {
		over := isOver(m.folder, m.first)
		if over || ctx.Err() != nil || time.Now().After(end) {
			return over
		}
	}
}

// updateLeases finds the leases to measure, and reports whether the one is live for which this process was started.
func (m *measurer) updateLeases() bool {
	held, problems := m.folder.Leases()
	if isHidden(m.folder, problems) {
		// Not all were read: nothing is known to be over.
		if w := m.leases[m.first]; w != nil {
			return !isClosed(w.ended) || len(w.livingMembers()) > 0
		}
		return m.held == nil && time.Since(m.began) < settleTime
	}

	m.held = held
	live := map[string]job.Lease{}
	for _, l := range m.held {
		if l.UID == uint32(os.Geteuid()) && !l.Unreadable && (l.Share > 0 || isMeasurable(&l)) && l.Namespace == m.host.Proc.PIDNamespace() {
			live[l.ID] = l
		}
	}

	first, found := live[m.first]
	if !found {
		return false
	}

	for id, l := range live {
		if id != m.first && (m.what == oneLease || (l.Share > 0) != (m.what == allShares) || l.Quota == job.MPS || l.Folder != first.Folder) {
			delete(live, id)
		}
	}

	// Of leases whose process has ended.
	orphans := map[string][]int{}
	for id, w := range m.leases {
		switch l, found := live[id]; {
		case !found:
			m.dropLease(w)
		case l.PID != w.lease.PID || l.Start != w.lease.Start:
			// Its command was started again.
			m.stopMeasuring(w)
		case isClosed(w.ended):
			orphans[id] = w.livingMembers()
		}
	}

	for id, tree := range m.host.Proc.ProcessTrees(orphans) {
		if len(orphans[id]) == 0 || len(tree) == 0 {
			m.dropLease(m.leases[id])
		}
	}

	for id, l := range live {
		if m.leases[id] == nil && !m.left[id] && (id == m.first || isMeasurable(&l) && m.locks.TryLock(id)) {
			m.addLease(l)
		}
	}

	return m.leases[m.first] != nil
}

// addLease begins to measure a lease. Where its process has ended already, what is known to belong to it is measured.
func (m *measurer) addLease(l job.Lease) {
	w := &leaseMeter{measurer: m, lease: l, level: l.Quota, said: l.Quota, began: time.Now(), cases: map[gpu.UUID]quota.Case{}, members: map[int]uint64{l.PID: l.Start},
		where: jobLocation{told: map[string]bool{}, toldToEnd: map[processPlace]bool{}}, limits: quota.Limits{Share: l.Share, Grace: cmp.Or(m.host.Times.Grace, measuredGrace)}, uid: uint32(os.Geteuid())}

	if l.Quota == job.NoQuota {
		// It could not be measured, and may be by now.
		w.level = job.Watch
	}

	for pid, start := range m.oldMembers[noteKey(&l)] {
		w.members[pid] = start
	}

	if l.Seen != "" {
		w.where.verdict = proof.Verdict(l.Seen)
		w.where.told[l.Seen] = true
	}

	if uid, ok := m.host.Proc.Owner(l.PID); ok {
		w.uid = uid
	}

	process, err := launch.OpenPidfd(l.PID)

	// Closed where its end is waited for.
	watched, werr := launch.OpenPidfd(l.PID)
	alive := err == nil && werr == nil && m.host.Proc.IsAlive(l.PID, l.Start)
	if !alive {
		// Or another one has its PID by now.
		_, _ = process.Close(), watched.Close()
	}

	switch {
	case alive:
		w.process, w.ended = process, launch.ExitChannel(watched)
		go m.awaitEnd(w.ended, watched)
	case len(w.livingMembers()) == 0:
		// A process that is not known has the lease.
		m.dropLease(w)
		return
	default:
		ended := make(chan struct{})
		close(ended)
		w.ended = ended
	}

	m.leases[l.ID] = w
}

// awaitEnd wakes the measuring at the end of a lease's process, which is watched until then even if its lease is over
// before.
func (m *measurer) awaitEnd(ended <-chan struct{}, watched *os.File) {
	<-ended
	_ = watched.Close()

	select {
	case m.ended <- struct{}{}:
	default:
	}
}

// stopMeasuring measures a lease no longer, for now.
func (m *measurer) stopMeasuring(w *leaseMeter) {
	// nil where there is none.
	_ = w.process.Close()
	delete(m.leases, w.lease.ID)
}

// dropLease leaves a lease to whoever measures it next.
func (m *measurer) dropLease(w *leaseMeter) {
	m.stopMeasuring(w)
	m.locks.ReleaseLock(w.lease.ID)
}

// lookInterval is the time between two lists of the leases. Only a new share has to be seen at once.
func (m *measurer) lookInterval() time.Duration {
	if m.what == allOthers {
		return max(m.every, UnmeasuredGrace)
	}
	return m.every
}

// measureAll measures all leases once, and notes what they use when that is due. It returns the pause until it is to be
// done again.
func (m *measurer) measureAll(ctx context.Context) time.Duration {
	began, spent := time.Now(), m.spentTime()
	what := gpu.Processes
	sampling := !began.Before(m.sampleDue)
	if sampling {
		what |= gpu.Load
	}

	r := m.readMachine(ctx, what)
	pace := quota.Pace{Every: m.every}
	for _, id := range slices.Sorted(maps.Keys(m.leases)) {
		w := m.leases[id]
		if m.what != oneLease && id != m.first && r.err == nil && m.leaseBlindReason(r, w) != "" && m.leaseBlindReason(r, m.leases[m.first]) == "" {
			w.blindness++
			if w.blindness >= mostBlind {
				m.left[id] = true
				m.dropLease(w)
			}
			continue
		}

		w.blindness = 0
		if sampling && r.err == nil {
			w.noteUse(r)
			w.judgeWhereabouts(r)
		}

		if w.lease.Share == 0 {
			pace.Every = m.host.SampleInterval()
			continue
		}

		pace.Over = w.measureOnce(ctx, r) || pace.Over
	}

	if sampling {
		m.sampleDue = began.Add(m.host.SampleInterval())
		if !m.leaveNotes(10 * time.Millisecond) {
			m.sampleDue = began.Add(min(m.host.SampleInterval(), time.Second))
		}
	}

	pace.Cost, pace.Took = m.spentTime()-spent, time.Since(began)

	return pace.NextPause()
}

// leaseBlindReason says why a lease cannot be measured; "" where it can.
func (m *measurer) leaseBlindReason(r *machineReading, w *leaseMeter) (why string) {
	for _, device := range w.lease.Devices {
		if w.lease.Share > 0 {
			why = cmp.Or(why, m.deviceBlindReason(r, device))
		} else if _, _, found := r.machine.FindDevice(device); !found {
			why = notListed
		}
	}
	return why
}

// spentTime is the processor time of all that measures: also of the process that reads the devices, which costs the
// most.
func (m *measurer) spentTime() time.Duration {
	if m.host.Spent == nil {
		return quotawatch.CPUTime()
	}
	return quotawatch.CPUTime() + m.host.Spent()
}

// notesKept is how long the use of a lease stays in the notes after its end. Its line of the history is written in that
// time.
const notesKept = 10 * time.Minute

// leaveNotes writes down what belongs to shares, for the process that measures them next, and what leases have used. It
// reports whether it could.
func (m *measurer) leaveNotes(patience time.Duration) (done bool) {
	areMembersNoted := true
	if m.what == allShares {
		areMembersNoted = m.locks.ChangeMembers(patience, m.replaceMembers)
	}

	isUseNoted := m.locks.ChangeUsed(patience, func(noted quotawatch.Used) {
		maps.DeleteFunc(noted, func(_ string, u quota.Measured) bool { return time.Since(u.Until) > notesKept })
		maps.Copy(noted, m.used)
	})

	if isUseNoted {
		maps.DeleteFunc(m.used, func(id string, _ quota.Measured) bool { return m.leases[id] == nil })
	}

	return areMembersNoted && isUseNoted
}

// replaceMembers notes what belongs to the shares of this PID namespace.
func (m *measurer) replaceMembers(noted quotawatch.Members) {
	own := fmt.Sprint(m.host.Proc.PIDNamespace(), " ")
	maps.DeleteFunc(noted, func(key string, _ map[int]uint64) bool { return strings.HasPrefix(key, own) })

	for _, w := range m.leases {
		noted[noteKey(&w.lease)] = w.members
	}
}
