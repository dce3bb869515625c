package claim

import (
	"context"
	"errors"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/host/store"
)

// DecideNow decides without a lease, and without --fallback.
func DecideNow(ctx context.Context, host *machine.Host, spec job.Spec) (job.Plan, gpu.Machine, error) {
	if spec.CPU {
		return job.Plan{Devices: []job.Given{}, Reasons: []job.Reason{}, Notes: []string{}}, gpu.Machine{}, nil
	}

	spec, err := SettleQuota(ctx, host, spec, false)
	if err != nil {
		return job.Plan{}, gpu.Machine{}, err
	}

	spec, err = host.SettleIsolation(spec)
	if err != nil {
		return job.Plan{}, gpu.Machine{}, err
	}

	m, partial, err := readFirst(ctx, host, gpu.Query{What: WhatToRead(spec)})
	if err != nil {
		return job.Plan{}, m, err
	}

	plan, refusal, err := DecideOn(host, spec, m)
	if refusal != nil && partial && machine.SilentMatters(m, refusal) {
		m, err = host.ReadAll(ctx, WhatToRead(spec))
		if err != nil {
			return plan, m, err
		}

		plan, refusal, err = DecideOn(host, spec, m)
	}

	if err == nil && refusal != nil {
		err = refusal
	}

	if err != nil {
		return plan, m, err
	}

	_, err = host.WallOf(plan, m)

	return plan, m, err
}

// DecideOn decides on the machine m without a lease. A refusal is not an error here.
func DecideOn(host *machine.Host, spec job.Spec, m gpu.Machine) (job.Plan, *job.Refusal, error) {
	held, _, err := registry.LiveLeases(host, m)
	if err != nil {
		return job.Plan{}, nil, err
	}

	rules, err := host.Rules()
	if err != nil {
		return job.Plan{}, nil, err
	}

	q := request{host: host, spec: spec, machine: m, names: registry.OwnerNames(host, held), env: host.UnmaskedEnv(), rules: rules}
	q.readTrees(held)
	now := time.Now()
	q.queue, err = queueNow(host, &q, held, now)
	if err != nil {
		return job.Plan{}, nil, err
	}

	plan, refusal := q.decidePlan(held, registry.LastDevices(host, m), now)

	return plan, refusal, nil
}

// queueNow is the queue for a caller that takes no ticket: all tickets are ahead of it.
func queueNow(host *machine.Host, q *request, held []job.Lease, now time.Time) (*queueView, error) {
	folder, err := host.Folder(q.machine, false)
	if err != nil || folder == nil {
		return nil, err
	}

	defer folder.Close() //nolint:errcheck // read only
	tickets, _ := folder.Tickets()
	if len(tickets) == 0 {
		return nil, nil //nolint:nilnil // the queue is empty
	}

	boot, err := host.Proc.BootID()
	if err != nil {
		return nil, err
	}

	since, err := host.Proc.Uptime()
	if err != nil {
		return nil, err
	}

	turn := folder.Turn(boot)
	q.view = store.View{Held: held, Tickets: tickets, Turn: &turn, Now: int64(since)}
	l := q.viewQueue(q.view, nil, now)
	l.nameOwners(host.Names)

	return l, nil
}

// Decide answers what Prepare would decide now, and records nothing.
func Decide(ctx context.Context, host *machine.Host, spec job.Spec) (job.Plan, error) {
	spec, err := host.SettleCommand(spec)
	if err != nil {
		return job.Plan{}, err
	}

	plan, m, err := DecideNow(ctx, host, spec)
	refusal := unavailableRefusal(spec, err)
	if refusal != nil || errors.As(err, &refusal) {
		plan, m, err = decideFallback(ctx, host, spec, refusal)
	}

	if err == nil && host.IsHardware() && len(plan.Devices) > 0 {
		path, _, _ := host.StateFolder(m)
		err = host.CheckShared(path)
	}

	return plan, err
}

// decideFallback answers what instead would do, and does nothing.
func decideFallback(ctx context.Context, host *machine.Host, spec job.Spec, refusal *job.Refusal) (job.Plan, gpu.Machine, error) {
	last := refusal
	for _, word := range spec.Waiting.Fallback {
		other, names := withoutNames(spec)
		switch {
		case word == "other" && names:
			plan, m, err := DecideNow(ctx, host, other)
			var again *job.Refusal
			if !errors.As(err, &again) {
				if err != nil {
					return plan, m, err
				}
				plan.Notes = append(plan.Notes, otherDeviceNote(refusal))

				return plan, m, err
			}
			last = betterRefusal(spec.Waiting, refusal, again)
		case word == "cpu":
			return job.Plan{Devices: []job.Given{}, Reasons: refusal.Reasons, Notes: []string{
				refusal.Summary + ": it would fall back to the CPU, as --fallback cpu says"}}, gpu.Machine{}, nil
		}
	}
	return job.Plan{}, gpu.Machine{}, last
}

// CallerContext returns what restricts the caller on m now: masks, the lease that it is inside of, and the rules.
func CallerContext(host *machine.Host, m gpu.Machine, held []job.Lease) (pick.Context, error) {
	rules, err := host.Rules()
	if err != nil {
		return pick.Context{}, err
	}

	q := request{host: host, machine: m, env: host.UnmaskedEnv(), rules: rules}
	in, _ := q.pickContext(held, time.Now())

	return in, nil
}
