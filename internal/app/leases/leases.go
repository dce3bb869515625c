// Package leases has the commands about leases that are there: status, hold, release, drain and evict.
package leases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/host/store"
)

// Status reads what is shown and reports the use of each device, or only of those named. That no device can be read is
// part of the report.
func Status(ctx context.Context, host *machine.Host, only ...string) (status.Report, error) {
	m, err := host.Read(ctx, gpu.Shown)
	var none *gpu.Unavailable
	if errors.As(err, &none) {
		s := status.NewReport(gpu.Machine{Taken: time.Now()}, nil, time.Now(), none)
		s.NoteUnreadDevices(unreadDevices(host))
		return s, nil
	}

	if err != nil {
		return status.Report{}, err
	}

	held, notes, err := registry.LiveLeases(host, m)
	var usage *exit.Usage
	if err != nil && (errors.As(err, &usage) || !host.IsHardware()) {
		return status.Report{}, err
	}

	if err != nil {
		// The GPUs can be seen all the same.
		m.Problems = append(slices.Clip(m.Problems), "the leases cannot be read, so who has leased what is not shown: "+err.Error())
	}

	notes = append(notes, clearUnmeasured(host, m, held)...)
	rules, wrong := host.Rules()
	if wrong != nil {
		notes = append(notes, host.ConfigProblem())
	}

	s := status.NewReportWith(rules.Tolerate, m, held, time.Now())
	if err := selectDevices(&s, m, only); err != nil {
		return s, err
	}

	s.AddRemedies(m, held, uint32(os.Geteuid()))
	byPID := registry.LeasesByPID(host, m, held)
	s.AddUsage(byPID)
	if host.IsHardware() {
		s.AddComputeTime(func(lease string) *time.Duration { return processorTime(host, byPID, lease) })
	}

	s.AddCommandLines(ownCommands(host, held))

	for i := range s.Devices {
		if s.Devices[i].Reason == "" && err != nil {
			s.Devices[i].Reason = "the leases cannot be read"
			s.Devices[i].Discreet = s.Devices[i].Reason
		}
	}

	s.Notes = append(append(s.Notes, notes...), addQueue(host, &s, m, held)...)
	s.NoteUnreadDevices(unreadDevices(host))

	return s, nil
}

// selectDevices leaves only the named devices in the report.
func selectDevices(s *status.Report, m gpu.Machine, names []string) error {
	wanted := map[gpu.UUID]bool{}
	for _, name := range names {
		d, refusal := pick.FindDevice(m, name)
		if refusal != nil {
			return exit.Usagef("%s; %s", refusal.Summary, refusal.Remedy)
		}
		wanted[cmp.Or(d.Parent, d.UUID)] = true
	}
	if len(names) > 0 {
		s.Devices = slices.DeleteFunc(s.Devices, func(d status.Device) bool { return !wanted[d.UUID] })
	}

	return nil
}

// ownCommands returns, by lease, the whole commands of the caller's jobs, and the leases whose PID is of another PID
// namespace.
func ownCommands(host *machine.Host, held []job.Lease) (lines map[string]string, apart map[string]bool) {
	lines, apart = map[string]string{}, map[string]bool{}
	here := host.Proc.PIDNamespace()
	for _, l := range held {
		switch {
		case l.Namespace != here && l.Namespace != 0:
			apart[l.ID] = true
		case l.UID == uint32(os.Geteuid()) && registry.IsCommandAlive(host, l): //nolint:gosec // a uid
			lines[l.ID] = host.Proc.DescribeProcess(l.PID).Command
		}
	}

	return lines, apart
}

// processorTime is the processor time of the living processes of a lease; nil if it has none.
func processorTime(host *machine.Host, byPID map[int]string, lease string) *time.Duration {
	var sum time.Duration
	found := false
	for pid, id := range byPID {
		if id != lease {
			continue
		}

		s, err := host.Proc.Stat(pid)
		if err != nil {
			continue
		}

		sum, found = sum+s.CPU, true
	}

	if !found {
		return nil
	}

	return &sum
}

// unreadDevices are the devices here that no reader knows.
func unreadDevices(host *machine.Host) []gpu.Device {
	if host.Unread == nil || !host.IsHardware() {
		return nil
	}
	return host.Unread()
}

// RecordMachine is the machine as a machine file.
func RecordMachine(ctx context.Context, host *machine.Host) ([]byte, error) {
	m, err := host.Read(ctx, gpu.Everything)
	if err != nil {
		return nil, err
	}
	return m.Encode()
}

// Release ends a lease of the caller (root: of any user) whose command is gone, even if another process holds its lock;
// or one that is held for a process that gpuard did not start, which then continues without it.
func Release(ctx context.Context, host *machine.Host, id string) (job.Lease, error) {
	folder, l, err := openLease(ctx, host, id)
	if err != nil {
		return l, err
	}
	if folder == nil {
		return l, &NoLeaseError{id}
	}

	defer folder.Close() //nolint:errcheck // the removal is what counts
	if err := checkRelease(host, folder, l); err != nil {
		return l, fmt.Errorf("cannot release %s: %w", l.ID, err)
	}

	if l.Unreadable {
		// Who holds it may not be seen from here.
		ended, err := folder.EndIfUnheld(l, l.Boot)
		if err == nil && !ended {
			err = fmt.Errorf("cannot release %s: its content cannot be read, and a process that does not show here holds it (of a container, or another PID namespace); end that first", l.ID)
		}
		return l, registry.NameLockHolder(host, folder, err)
	}

	err = registry.NameLockHolder(host, folder, folder.Release(l, l.Boot))
	if err != nil {
		return l, err
	}

	wakeSleeper(host, l)

	return l, err
}

// openLease opens the folder of a lease, which the caller closes, and reads the lease; nil where there is no such
// lease.
func openLease(ctx context.Context, host *machine.Host, id string) (folder *store.Folder, l job.Lease, err error) {
	var m gpu.Machine
	if !host.IsHardware() {
		m, err = host.Read(ctx, gpu.Identity)
		if err != nil {
			return nil, l, err
		}
	}

	folder, err = host.Folder(m, false)
	if err != nil || folder == nil {
		return nil, l, err
	}

	held, _ := folder.Leases()
	i := slices.IndexFunc(held, func(l job.Lease) bool { return l.ID == id })
	if i < 0 {
		_ = folder.Close()
		return nil, l, nil
	}

	return folder, registry.FindUnattended(host, folder, held[i], true), nil
}

// NoLeaseError says that a lease that is to be released is not there, or not any more.
type NoLeaseError struct{ id string }

// Error says where leases are listed.
func (n *NoLeaseError) Error() string {
	return fmt.Sprintf("cannot release %s: there is no such lease; see gpuard status", prose.Clean(n.id))
}

// checkRelease refuses to end a lease that a running command relies on.
func checkRelease(host *machine.Host, folder *store.Folder, l job.Lease) error {
	uid := uint32(os.Geteuid())
	switch {
	case l.UID != uid && !host.Proc.IsRoot():
		return fmt.Errorf("it belongs to %s; ask them, or root", host.Names(l.UID))
	case l.Ended, l.Apart && !l.Unreadable:
		return nil
	case l.Unreadable:
		// Its command is unknown, but not which processes hold its lock.
		dev, ino, err := folder.LeaseLockInode(l)
		if err != nil {
			return err
		}
		if holders := host.Proc.LockHolders(dev, ino); len(holders) > 0 {
			return fmt.Errorf("its content cannot be read, and %s (process %d) holds it; end that first: kill %d", holders[0].Command, holders[0].PID, holders[0].PID)
		}

		return nil
	case l.Namespace != host.Proc.PIDNamespace():
		return fmt.Errorf("its command %s may be running in another PID namespace; end it there", prose.Clean(l.Command))
	case registry.IsCommandAlive(host, l) && slices.Contains(host.Proc.ProcessTree(l.PID), os.Getpid()):
		return fmt.Errorf("its command %s (process %d) is running and started this; leave it, such as by exit", prose.Clean(l.Command), l.PID)
	case registry.IsCommandAlive(host, l):
		return fmt.Errorf("its command %s (process %d) is running; to end it: gpuard cancel %s", prose.Clean(l.Command), l.PID, l.ID)
	}
	return nil
}
