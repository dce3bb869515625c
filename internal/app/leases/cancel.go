package leases

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/job"
	"gpuard/internal/core/leftover"
	"gpuard/internal/core/prose"
	"gpuard/internal/host/launch"
)

// Find finds the lease of that name.
func Find(ctx context.Context, host *machine.Host, id string) (l job.Lease, found bool, err error) {
	folder, l, err := openLease(ctx, host, id)
	if folder == nil {
		return l, false, err
	}
	_ = folder.Close()
	return l, true, nil
}

// Cancel ends the command of a lease of the caller (root: of any user): it is asked, and killed when it is still there after the grace.
// A reservation, which has none, is given back. It returns when the command is gone.
func Cancel(ctx context.Context, host *machine.Host, id string, grace time.Duration) (job.Lease, error) {
	l, found, err := Find(ctx, host, id)
	switch {
	case err != nil:
		return l, err
	case !found:
		return l, exit.Usagef("cannot cancel %s: there is no such lease; see gpuard status", prose.Clean(id))
	case l.IsReservation():
		return Release(ctx, host, id)
	}
	if err := cancellable(host, l); err != nil {
		return l, fmt.Errorf("cannot cancel %s: %w", l.ID, err)
	}
	pidfd, err := launch.Pidfd(l.PID)
	if err != nil {
		return l, fmt.Errorf("cannot cancel %s: %w", l.ID, err)
	}
	t := &evictee{row: leftover.Row{PID: l.PID, Start: l.Start, Command: l.Command}, pidfd: pidfd}
	defer t.close()
	if !host.Proc.Alive(l.PID, l.Start) { // the PID may have been used again before it was opened
		return l, nil
	}
	if e := end(ctx, host, []*evictee{t}, grace, true)[0]; !e.Gone {
		return l, fmt.Errorf("cannot cancel %s: process %d: %s", l.ID, l.PID, e.Why)
	}
	return l, nil
}

// cancellable refuses what is not the caller's to end, or not a command that gpuard has started.
func cancellable(host *machine.Host, l job.Lease) error {
	alive := registry.CommandAlive(host, l)
	switch {
	case l.UID != uint32(os.Geteuid()) && !host.Proc.Root(): //nolint:gosec // a uid
		return fmt.Errorf("it belongs to %s; ask them, or root", host.Names(l.UID))
	case l.Unreadable:
		return fmt.Errorf("its content cannot be read, so its command is not known; gpuard release %s says who holds it", l.ID)
	case l.Apart:
		return fmt.Errorf("process %d, which it is for, was not started by gpuard; to give the lease back: gpuard release %s", l.PID, l.ID)
	case l.Namespace != host.Proc.Namespace():
		return fmt.Errorf("its command %s runs in another PID namespace; end it there", prose.Clean(l.Command))
	case !alive:
		return fmt.Errorf("its command %s has ended; to give back what still holds it: gpuard release %s", prose.Clean(l.Command), l.ID)
	case slices.Contains(host.Proc.Tree(l.PID), os.Getpid()):
		return fmt.Errorf("its command %s (process %d) has started this; leave it, such as by exit", prose.Clean(l.Command), l.PID)
	}
	return nil
}
