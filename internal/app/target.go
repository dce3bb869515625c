package app

import (
	"fmt"
	"slices"
	"strconv"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
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
