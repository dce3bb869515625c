package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/status"
	"gpuard/internal/host/store"
)

// Status reads everything and says who uses what. That no device can be read is part of the answer, never an empty list.
func (a *App) Status(ctx context.Context) (status.Report, error) {
	m, err := a.machine(ctx, gpu.Everything)
	var none *gpu.Unavailable
	if errors.As(err, &none) {
		s := status.Of(gpu.Machine{Taken: time.Now()}, nil, time.Now(), none)
		s.Unread(a.unread())
		return s, nil
	}
	if err != nil {
		return status.Report{}, err
	}
	held, notes, err := a.leases(m)
	var usage *Usage
	if err != nil && (errors.As(err, &usage) || !a.hardware()) {
		return status.Report{}, err
	}
	if err != nil { // the GPUs can be seen all the same
		m.Problems = append(slices.Clip(m.Problems), "the leases cannot be read, so who has leased what is not shown: "+err.Error())
	}
	notes = append(notes, a.unmeasured(held)...)
	rules, wrong := a.rules()
	if wrong != nil {
		notes = append(notes, a.Unruly())
	}
	s := status.With(rules.tolerate, m, held, time.Now())
	s.Advise(m, held, uint32(os.Geteuid()))
	s.Using(a.leasesOf(m, held))
	for i := range s.Devices {
		if s.Devices[i].Reason == "" && err != nil {
			s.Devices[i].Reason = "the leases cannot be read"
		}
	}
	s.Notes = append(append(s.Notes, notes...), a.lines(&s, m, held)...)
	s.Unread(a.unread())
	return s, nil
}

// unread are the devices here that no reader knows.
func (a *App) unread() []gpu.Device {
	if a.Unread == nil || !a.hardware() {
		return nil
	}
	return a.Unread()
}

// Record is the machine as a machine file.
func (a *App) Record(ctx context.Context) ([]byte, error) {
	m, err := a.machine(ctx, gpu.Everything)
	if err != nil {
		return nil, err
	}
	return m.Encode()
}

// Release ends a lease of the caller (root: of anybody) whose command is gone, whoever still holds its lock, or that is held
// for a process that gpuard did not become, which may go on.
func (a *App) Release(ctx context.Context, id string) (job.Lease, error) {
	var m gpu.Machine
	if !a.hardware() {
		var err error
		if m, err = a.machine(ctx, gpu.Identity); err != nil {
			return job.Lease{}, err
		}
	}
	folder, err := a.folder(m, false)
	if err != nil {
		return job.Lease{}, err
	}
	if folder == nil {
		return job.Lease{}, &noLease{id}
	}
	defer folder.Close() //nolint:errcheck // the removal is what counts
	held, _ := folder.Leases()
	i := slices.IndexFunc(held, func(l job.Lease) bool { return l.ID == id })
	if i < 0 {
		return job.Lease{}, &noLease{id}
	}
	l := a.unattended(folder, held[i], true)
	if err := a.releasable(folder, l); err != nil {
		return l, fmt.Errorf("cannot release %s: %w", l.ID, err)
	}
	return l, a.named(folder, folder.Release(l, l.Boot))
}

// noLease says that a lease that is to be released is not there, or not any more.
type noLease struct{ id string }

// Error says where leases are listed.
func (n *noLease) Error() string {
	return fmt.Sprintf("cannot release %s: there is no such lease; see gpuard status", gpu.Clean(n.id))
}

// releasable refuses to end a lease that a running command relies on.
func (a *App) releasable(folder *store.Folder, l job.Lease) error {
	uid := uint32(os.Geteuid())
	switch {
	case l.UID != uid && !a.Proc.Root():
		return fmt.Errorf("it belongs to %s; ask them, or root", a.Names(l.UID))
	case l.Ended, l.Apart && !l.Unreadable:
		return nil
	case l.Unreadable: // what runs is not known, only who has its lock open
		dev, ino, err := folder.LockFile(l)
		if err != nil {
			return err
		}
		if holders := a.Proc.OpenBy(dev, ino); len(holders) > 0 {
			return fmt.Errorf("its content cannot be read, and %s (process %d) holds it; end that first: kill %d", holders[0].Command, holders[0].PID, holders[0].PID)
		}
		return nil
	case l.Namespace != a.Proc.Namespace():
		return fmt.Errorf("its command %s may be running in another PID namespace; end it there", gpu.Clean(l.Command))
	case a.commandAlive(l) && slices.Contains(a.Proc.Tree(l.PID), os.Getpid()):
		return fmt.Errorf("its command %s (process %d) is running and started this; leave it, such as by exit", gpu.Clean(l.Command), l.PID)
	case a.commandAlive(l):
		return fmt.Errorf("its command %s (process %d) is running; end it first: kill %d", gpu.Clean(l.Command), l.PID, l.PID)
	}
	return nil
}
