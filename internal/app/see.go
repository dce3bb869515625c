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
	"gpuard/internal/core/quota"
	"gpuard/internal/core/status"
	"gpuard/internal/core/visible"
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

// leases lists what is alive for m with the owners' names, and what is wrong with the state folder.
// A machine without a state folder has no leases.
func (a *App) leases(m gpu.Machine) ([]job.Lease, []string, error) {
	folder, err := a.folder(m, false)
	if err != nil || folder == nil {
		return []job.Lease{}, nil, err
	}
	defer folder.Close() //nolint:errcheck // read only
	held, problems := folder.Leases()
	pause := time.Millisecond
	for began := time.Now(); time.Since(began) < noticing && slices.ContainsFunc(held, a.commandGone); pause *= 2 {
		time.Sleep(pause) // its holder is about to free it, on a busy machine less soon: do not show what is over
		held, problems = folder.Leases()
		if pause > 50*time.Millisecond { // or it was killed, which costs a walk through all processes to know
			a.attend(folder, held, false)
		}
	}
	a.attend(folder, held, true)
	for i := range held {
		held[i].User = a.Names(held[i].UID)
	}
	var notes []string
	for _, p := range problems {
		notes = append(notes, fmt.Sprintf("%s of %s %s", gpu.Clean(p.Path), a.Names(p.UID), p.Text))
	}
	if note := a.unprotected(folder.Path, folder.Owner); note != "" {
		notes = append(notes, note)
	}
	return held, notes, nil
}

// last are the devices of the caller's previous claim on m, for the order among equals.
func (a *App) last(m gpu.Machine) []gpu.UUID {
	folder, err := a.folder(m, false)
	if err != nil || folder == nil {
		return nil
	}
	defer folder.Close() //nolint:errcheck // read only
	return folder.Last()
}

// unprotected says that a state folder of an ordinary user protects nobody from that user.
func (a *App) unprotected(path string, owner uint32) string {
	if !a.hardware() || owner == 0 || a.Proc.IDs().Hides(owner) { // it may be root
		return ""
	}
	remedy := "to have root own a better one, type: " + store.AsRoot()
	if own, _ := a.Env.Lookup("GPUARD_STATE"); own != "" {
		remedy = "leave GPUARD_STATE unset, or let root make the folder that it names"
	}
	return fmt.Sprintf("the user %s owns the lease folder %s and could remove leases; %s", a.Names(owner), path, remedy)
}

// Record is the machine as a machine file.
func (a *App) Record(ctx context.Context) ([]byte, error) {
	m, err := a.machine(ctx, gpu.Everything)
	if err != nil {
		return nil, err
	}
	return m.Encode()
}

// Variables are what a job with this choice would get, in addition to or in place of what it inherits. Nothing is leased.
func (a *App) Variables(ctx context.Context, spec job.Spec) ([]visible.Var, error) {
	plan, m, err := a.decide(ctx, spec)
	if err != nil {
		return nil, err
	}
	vars := append(visible.WriteOver(a.Env, targets(plan), spec.IDs, m), own("", plan)...)
	return a.forShell(append(vars, quota.Settings(a.Env, plan.Share, largest(m, plan), nil)...)), nil
}

// Doubts are why this machine, as it is now, never gives what spec says, whatever mask or lease the caller is inside of.
func (a *App) Doubts(ctx context.Context, spec job.Spec) []string {
	spec.Any = true
	_, _, err := a.decide(ctx, spec)
	var refusal *job.Refusal
	var none *gpu.Unavailable
	switch {
	case errors.As(err, &refusal) && refusal.Never:
		return []string{"as this machine is now, there will be no GPU: " + refusal.Summary + "; " + refusal.Remedy}
	case errors.As(err, &none):
		return []string{"no GPU can be seen here now: " + none.Text}
	}
	return nil
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

// Look reads what the devices are, and nothing that takes longer: for completion.
func (a *App) Look(ctx context.Context) (gpu.Machine, error) { return a.machine(ctx, gpu.Identity) }

// LookWell reads what the devices are, how they are, and whether they are drained: for completion.
func (a *App) LookWell(ctx context.Context) (gpu.Machine, error) {
	return a.machine(ctx, gpu.Identity|gpu.Health)
}

// OwnLeases lists the ids of the caller's leases, for completion.
func (a *App) OwnLeases(ctx context.Context) []string {
	m, err := a.machine(ctx, gpu.Identity)
	if err != nil {
		return nil
	}
	held, _, err := a.leases(m)
	if err != nil {
		return nil
	}
	var ids []string
	for _, l := range held {
		if l.UID == uint32(os.Geteuid()) {
			ids = append(ids, l.ID)
		}
	}
	return ids
}
