package app

import (
	"fmt"
	"slices"
	"strconv"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/visible"
)

// target finds the process that is meant by a process id or a lease, and the lease where that was named.
func (a *App) target(verb, target string, m gpu.Machine) (int, *job.Lease, error) {
	if pid, err := strconv.Atoi(target); err == nil && pid > 0 {
		return pid, nil, nil
	}
	held, _, err := a.leases(m)
	if err != nil {
		return 0, nil, err
	}
	i := slices.IndexFunc(held, func(l job.Lease) bool { return l.ID == target })
	if i < 0 {
		return 0, nil, usagef("cannot %s %s: it is neither a process id nor a live lease; gpuard status shows both", verb, gpu.Clean(target))
	}
	l := &held[i]
	switch {
	case l.Unreadable:
		return 0, nil, fmt.Errorf("cannot %s %s: the lease of %s cannot be read; name its process instead", verb, target, l.User)
	case l.Namespace != a.Proc.Namespace():
		return 0, nil, fmt.Errorf("cannot %s %s: its command %s runs in another PID namespace; ask inside that container", verb, target, gpu.Clean(l.Command))
	case !a.commandAlive(*l):
		return 0, nil, usagef("cannot %s %s: its command %s (process %d) has ended; to free its GPUs: gpuard release %s", verb, target, gpu.Clean(l.Command), l.PID, target)
	}
	return l.PID, l, nil
}

// leaseOf finds the live lease that a process with this environment is in: the one that it names, else the one of the
// process itself or of the nearest above it, because a lease can be held for a process that began before it and whose
// environment names none, or one that is over. Only leases of its own user and of root count: others may write any number
// into theirs. nil without one.
func (a *App) leaseOf(m gpu.Machine, pid int, env visible.Env) (*job.Lease, error) {
	uid, known := a.Proc.Owner(pid)
	if !known {
		return nil, nil //nolint:nilnil // no lease is no error
	}
	held, _, err := a.leases(m)
	if err != nil {
		return nil, err
	}
	held = slices.DeleteFunc(held, func(l job.Lease) bool { return l.Unreadable || l.UID != uid && l.UID != 0 })
	id, _ := env.Lookup("GPUARD_LEASE")
	i := slices.IndexFunc(held, func(l job.Lease) bool { return l.ID == id })
	namespace := a.Proc.Namespace()
	for above := 0; i < 0 && pid > 0 && above < generations; above++ {
		s, err := a.Proc.Stat(pid)
		if err != nil {
			break
		}
		i = slices.IndexFunc(held, func(l job.Lease) bool { return l.PID == pid && l.Start == s.Start && l.Namespace == namespace })
		pid = s.PPID
	}
	if i < 0 {
		return nil, nil //nolint:nilnil // no lease is no error
	}
	return &held[i], nil
}

// generations is how far up a lease is looked for: PPIDs that are read one after the other may go in a circle.
const generations = 1000
