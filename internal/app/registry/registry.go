// Package registry lists what is leased now: the live leases of a machine, whose they are, whether their commands still
// run, and which processes count against them. It changes no lease.
//
//	m, err := host.Read(ctx, gpu.Identity)
//	leases, problems, err := registry.LiveLeases(host, m)
package registry

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/visible"
)

// LiveLeases lists what is alive for m with the owners' names, and what is wrong with the state folder.
// A machine without a state folder has no leases.
func LiveLeases(host *machine.Host, m gpu.Machine) ([]job.Lease, []string, error) {
	folder, err := host.Folder(m, false)
	if err != nil || folder == nil {
		return []job.Lease{}, nil, err
	}

	defer folder.Close() //nolint:errcheck // read only
	held, problems := folder.Leases()
	pause := time.Millisecond
	for began := time.Now(); time.Since(began) < NoticeTimeout && slices.ContainsFunc(held, func(l job.Lease) bool { return IsCommandGone(host, l) }); pause *= 2 {
		// Its holder is about to free it, on a busy machine less soon: do not show what is over.
		time.Sleep(pause)
		held, problems = folder.Leases()
		if pause > 50*time.Millisecond {
			// Or it was killed, which costs a walk through all processes to know.
			MarkUnattended(host, folder, held, false)
		}
	}

	MarkUnattended(host, folder, held, true)

	for i := range held {
		held[i].User = host.Names(held[i].UID)
	}

	var notes []string
	for _, p := range problems {
		notes = append(notes, fmt.Sprintf("%s of %s %s", prose.Clean(p.Path), host.Names(p.UID), p.Text))
	}

	if note := host.OwnerNote(folder.Path, folder.Owner); note != "" {
		notes = append(notes, note)
	}

	return held, notes, nil
}

// LastDevices are the devices of the caller's previous claim on m, for the order among equals.
func LastDevices(host *machine.Host, m gpu.Machine) []gpu.UUID {
	folder, err := host.Folder(m, false)
	if err != nil || folder == nil {
		return nil
	}
	defer folder.Close() //nolint:errcheck // read only

	return folder.LastDevices()
}

// IsCommandAlive reports whether the command runs. In another PID namespace its PID means another process here, so it
// counts as running until its holder records the end, or releases the lease.
func IsCommandAlive(host *machine.Host, l job.Lease) bool {
	if l.Namespace != host.Proc.PIDNamespace() {
		return !l.Ended
	}
	return host.Proc.IsAlive(l.PID, l.Start)
}

// FindTarget finds the process that is meant by a process id or a lease, and the lease where that was named.
func FindTarget(host *machine.Host, verb, target string, m gpu.Machine) (int, *job.Lease, error) {
	if pid, err := strconv.Atoi(target); err == nil && pid > 0 {
		return pid, nil, nil
	}

	held, _, err := LiveLeases(host, m)
	if err != nil {
		return 0, nil, err
	}

	i := slices.IndexFunc(held, func(l job.Lease) bool { return l.ID == target })
	if i < 0 {
		return 0, nil, exit.Usagef("cannot %s %s: it is neither a process id nor a live lease; gpuard status shows both", verb, prose.Clean(target))
	}

	l := &held[i]
	switch {
	case l.Unreadable:
		return 0, nil, fmt.Errorf("cannot %s %s: the lease of %s cannot be read; name its process instead", verb, target, l.User)
	case l.Namespace != host.Proc.PIDNamespace():
		return 0, nil, fmt.Errorf("cannot %s %s: its command %s runs in another PID namespace; ask inside that container", verb, target, prose.Clean(l.Command))
	case !IsCommandAlive(host, *l):
		return 0, nil, exit.Usagef("cannot %s %s: its command %s (process %d) has ended; to free its GPUs: gpuard release %s", verb, target, prose.Clean(l.Command), l.PID, target)
	}

	return l.PID, l, nil
}

// LeaseOf returns the live lease that a process with this environment is in: the one that GPUARD_LEASE names, else that
// of the process or of its nearest ancestor. A lease can be held for a process that started before it, whose
// environment then names no lease or an old one. Only leases of the process's own user and of root count, because other
// users may write any PID into theirs. nil without one.
func LeaseOf(host *machine.Host, m gpu.Machine, pid int, env visible.Env) (*job.Lease, error) {
	uid, known := host.Proc.Owner(pid)
	if !known {
		return nil, nil //nolint:nilnil // no lease is no error
	}

	held, _, err := LiveLeases(host, m)
	if err != nil {
		return nil, err
	}

	held = slices.DeleteFunc(held, func(l job.Lease) bool { return l.Unreadable || l.UID != uid && l.UID != 0 })
	id, _ := env.Lookup("GPUARD_LEASE")
	i := slices.IndexFunc(held, func(l job.Lease) bool { return l.ID == id })
	namespace := host.Proc.PIDNamespace()
	for above := 0; i < 0 && pid > 0 && above < maxGenerations; above++ {
		s, err := host.Proc.Stat(pid)
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

// maxGenerations is how far up a lease is looked for: PPIDs that are read one after the other may go in a circle.
const maxGenerations = 1000

// LeaseTrees lists, by the ID of each shared lease, the processes of m that count against it: the descendants of its
// command, and of those that hold it after the command's end, and the server of MPS. It walks /proc, so call it before
// the folder is locked. A lease that appears later has no tree, and what it uses already counts as foreign until the
// next claim.
func LeaseTrees(host *machine.Host, m gpu.Machine, held []job.Lease) map[string][]int {
	roots := map[string][]int{}
	for _, l := range held {
		if l.Share <= 0 || l.Namespace != host.Proc.PIDNamespace() {
			continue
		}

		var pids []int
		if host.Proc.IsAlive(l.PID, l.Start) {
			pids = append(pids, l.PID)
		}

		for _, p := range l.HeldBy {
			if host.Proc.IsAlive(p.PID, p.Start) {
				pids = append(pids, p.PID)
			}
		}

		if len(pids) > 0 {
			roots[l.ID] = append(roots[l.ID], pids...)
		}
	}

	trees := host.Proc.ProcessTrees(roots)
	for _, p := range m.Processes {
		if id := leaseServed(host, m, held, p); id != "" {
			trees[id] = append(trees[id], p.PID)
		}
	}

	return trees
}
