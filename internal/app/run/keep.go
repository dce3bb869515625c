package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/store"
)

// Between two starts of a command its process is gone, and its holder too, so gpuard itself must hold the lease. It has
// a reference of its own during all starts. If gpuard dies, the kernel closes the reference and the devices are free.
// gpuard drops it when the command is not started there again.

// holdReference takes a reference to the lease of a start.
func (s *supervision) holdReference(l *Launch) error {
	// The daemon of MPS ends with the last lease that needs it, and would under the next start: such a lease begins
	// anew.
	if s.care.Retries == 0 && s.care.Restart == job.NoRestart || l.claimed == nil || l.Plan.Quota == job.MPS {
		return nil
	}
	var err error
	s.kept, err = l.claimed.Held.DupLock()

	return err
}

// dropReference closes the reference. The last process that has one removes the lease: the command's holder, for
// example, or a process that the command left behind.
func (s *supervision) dropReference(l *Launch) {
	if s.kept == nil {
		return
	}

	defer l.claimed.Folder.AnnounceEnd(l.claimed.Held.Lease)()
	_ = s.kept.Close()
	s.kept = nil
	last := s.lastLease(l)

	// A lease without a lock is over.
	_, _ = l.claimed.Folder.EndIfUnheld(last, last.Boot)
}

// lastLease is the lease of a command that has ended, with how that was.
func (s *supervision) lastLease(l *Launch) job.Lease {
	last := l.claimed.Held.Lease
	switch {
	case s.done.Starts == 0:
	case s.done.Signal != "":
		last.Signal = s.done.Signal
	default:
		last.Exit = &s.done.Code
	}
	return last
}

// reuseLease is another start with the lease of the one before; why says what speaks against it.
func (s *supervision) reuseLease(ctx context.Context, l *Launch) (next *Launch, why string) {
	switch {
	case l.claimed == nil:
		return nil, ""
	case s.kept == nil:
		return nil, "its share goes through MPS, whose daemon begins anew"
	}

	m, err := s.host.Read(ctx, gpu.Identity|gpu.Load|gpu.Health)
	if err != nil {
		return nil, err.Error()
	}
	if why := claim.UnfitReason(m, l.Plan.UUIDs()); why != "" {
		return nil, why
	}

	self, err := s.host.Proc.Stat(os.Getpid())
	if err != nil {
		return nil, err.Error()
	}

	lease, err := l.claimed.Folder.TransferLease(l.claimed.Held.Lease, os.Getpid(), self.Start, 0)
	switch {
	case errors.Is(err, store.ErrReleased):
		return nil, fmt.Sprintf("lease %s was released", l.Lease)
	case err != nil:
		return nil, err.Error()
	}

	again := *l
	again.claimed.Held.Lease, again.claimed.Held.Lock = lease, s.kept
	s.kept = nil

	return &again, ""
}

// giveBackDevices ends what is left of a lease, and says so.
func (s *supervision) giveBackDevices(l *Launch, why string) {
	s.dropReference(l)
	if s.service.devicesFreed != nil {
		s.service.devicesFreed()
	}

	if len(l.Plan.Devices) == 0 {
		return
	}

	names := make([]string, len(l.Plan.Devices))
	for i, d := range l.Plan.Devices {
		names[i] = d.String()
	}

	if why != "" {
		why += ": "
	}

	s.host.Say(fmt.Sprintf("%sgave %s back; in line again", why, strings.Join(names, ", ")))
}

// waitPause waits, and reports whether to go on.
func waitPause(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// remainingHolders returns the processes that still hold the lease of a command that has ended. The holder records them
// or removes the lease; if it does neither, it was killed.
func (s *supervision) remainingHolders(l *Launch) []job.Blocker {
	if l.claimed == nil || l.contained != nil {
		// The holder waits for the end of the container.
		return nil
	}
	const patience = time.Second

	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		lease, found := l.claimed.Folder.Own(l.Lease)
		if !found {
			// Where this process was the last to have it, its holder could not remove it.
			last := s.lastLease(l)
			_, _ = l.claimed.Folder.EndIfUnheld(last, last.Boot)
			return nil
		}
		if over := time.Now().After(end); lease.Ended || over {
			if !lease.Ended {
				lease = registry.FindUnattended(s.host, l.claimed.Folder, lease, true)
			}
			return slices.DeleteFunc(slices.Clone(lease.HeldBy), func(b job.Blocker) bool { return !s.host.Proc.IsAlive(b.PID, b.Start) })
		}
	}
}
