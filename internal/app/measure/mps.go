package measure

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gpuard/internal/core/job"
	"gpuard/internal/core/quota"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/mps"
)

// mpsState is whether the processes of a lease go through MPS, as they must for its limit to hold.
type mpsState struct {
	seen map[int]mpsSight // by process id
	// One does not, for good.
	missed bool
}

// mpsSight is a process on a device: since when, and whether it was found among the clients.
type mpsSight struct {
	start uint64
	// Nanoseconds since the measuring began.
	since  int64
	client bool
}

// quotaLevel is what the lease may say of itself.
func (m *mpsState) quotaLevel() job.Quota {
	if m.missed {
		return job.Watch
	}
	return job.MPS
}

// verifyMPS checks that processes are clients of MPS. A process that is none after a while runs without its limit. It
// asks each daemon once: one that hangs would cost as many seconds for each process and delay the next measurement.
func (w *leaseMeter) verifyMPS(ctx context.Context, uses []quota.Use) {
	if w.through.seen == nil {
		w.through.seen = map[int]mpsSight{}
	}
	now := int64(w.timeSinceStart())
	asked := map[string]daemonAnswer{}
	for _, u := range uses {
		s := w.through.seen[u.PID]
		if s.start != u.Start {
			s = mpsSight{start: u.Start, since: now}
		}

		if s.client || w.through.missed {
			continue
		}

		why := w.mpsObstacle(ctx, u.PID, asked)
		s.client = why == ""
		w.through.seen[u.PID] = s
		if !s.client && now-s.since >= int64(w.mpsPatience()) {
			w.through.missed = true
			w.warnOwner(fmt.Sprintf("%s (process %d) does not go through MPS (%s), so the share of lease %s has no hard limit for it; it is measured from outside instead",
				u.Command, u.PID, why, w.lease.ID), []quota.Use{u})
		}
	}
}

// daemonAnswer is what one daemon says.
type daemonAnswer struct {
	clients []int
	err     error
}

// mpsObstacle says why a process is not limited; "" when it is a client of a daemon of its user, with the limit.
func (w *leaseMeter) mpsObstacle(ctx context.Context, pid int, asked map[string]daemonAnswer) string {
	pairs, err := w.host.Proc.Environ(pid)
	env := visible.Env(pairs)
	if err != nil {
		return err.Error()
	}

	pipe, _ := env.Lookup(mps.PipeVariable)
	if _, limited := env.Lookup(quota.PinnedVariable); pipe == "" || !limited {
		return "its environment has been changed"
	}

	said, known := asked[pipe]
	if !known {
		var c *mps.Control
		c, said.err = mps.ControlAt(pipe, int(w.uid))
		if said.err == nil {
			said.clients, said.err = c.ListClients(ctx)
		}
		asked[pipe] = said
	}

	switch {
	case said.err != nil:
		return said.err.Error()
	case !slices.Contains(said.clients, pid):
		return "it is not among the clients"
	}

	return ""
}

// mostFailures is how often gpuard asks a daemon to end before it takes silence for an answer. One that is slow is
// asked again, because nobody else would end it.
const mostFailures = 3

// departureTimeout is how long the clients of a lease that is over may still be on their daemon's list.
const departureTimeout = 3 * time.Second

// quitMPSDaemon stops the daemon that gpuard has started when no lease of this user and no client needs it. It also
// checks where no client was ever seen: the job may have been short, or may never have used its GPU.
func (m *measurer) quitMPSDaemon(ctx context.Context) {
	c, err := mps.ControlAt(filepath.Join(os.TempDir(), mps.FolderName(os.Geteuid())), os.Geteuid())
	if err != nil {
		return
	}

	unlock, err := c.Lock()
	if err != nil {
		return
	}

	defer unlock()

	for failures, end := 0, time.Now().Add(departureTimeout); ; time.Sleep(100 * time.Millisecond) {
		held, problems := m.folder.Leases()
		if isHidden(m.folder, problems) || slices.ContainsFunc(held, func(l job.Lease) bool {
			return l.UID == uint32(os.Geteuid()) && l.Quota == job.MPS
		}) {
			return
		}

		clients, err := c.ListClients(ctx)
		unused := err == nil && len(clients) == 0
		if unused {
			err = c.QuitDaemon(ctx)
		}

		if err != nil {
			failures++
		}

		if failures == mostFailures || err == nil && (unused || time.Now().After(end)) {
			return
		}
	}
}
