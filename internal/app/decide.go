package app

import (
	"context"
	"errors"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/host/store"
)

func (a *App) decide(ctx context.Context, spec job.Spec) (job.Plan, gpu.Machine, error) {
	if spec.CPU {
		return job.Plan{Devices: []job.Given{}, Reasons: []job.Reason{}, Notes: []string{}}, gpu.Machine{}, nil
	}
	spec, err := a.harden(ctx, spec)
	if err != nil {
		return job.Plan{}, gpu.Machine{}, err
	}
	m, partial, err := a.glance(ctx, reading(spec))
	if err != nil && partial {
		m, err = a.whole(ctx, reading(spec))
	}
	if err != nil {
		return job.Plan{}, m, err
	}
	plan, refusal, err := a.decideOn(spec, m)
	if refusal != nil && partial && heldUp(m, refusal) {
		if m, err = a.whole(ctx, reading(spec)); err == nil {
			plan, refusal, err = a.decideOn(spec, m)
		}
	}
	if err == nil && refusal != nil {
		err = refusal
	}
	return plan, m, err
}

func (a *App) decideOn(spec job.Spec, m gpu.Machine) (job.Plan, *job.Refusal, error) {
	held, _, err := a.leases(m)
	if err != nil {
		return job.Plan{}, nil, err
	}
	rules, err := a.rules()
	if err != nil {
		return job.Plan{}, nil, err
	}
	q := question{app: a, spec: spec, machine: m, names: a.ownerNames(held), env: a.unmasked(), trees: a.trees(held), rules: rules}
	now := time.Now()
	if q.line, err = a.lineNow(&q, held, now); err != nil {
		return job.Plan{}, nil, err
	}
	plan, refusal := q.decide(held, a.last(m), now)
	return plan, refusal, nil
}

// lineNow is who stands before somebody who came now and takes no ticket.
func (a *App) lineNow(q *question, held []job.Lease, now time.Time) (*line, error) {
	folder, err := a.folder(q.machine, false)
	if err != nil || folder == nil {
		return nil, err
	}
	defer folder.Close() //nolint:errcheck // read only
	tickets, _ := folder.Tickets()
	if len(tickets) == 0 {
		return nil, nil //nolint:nilnil // nobody waits
	}
	boot, err := a.Proc.BootID()
	if err != nil {
		return nil, err
	}
	since, err := a.Proc.Uptime()
	if err != nil {
		return nil, err
	}
	turn := folder.Turn(boot)
	l := q.inLine(store.View{Held: held, Tickets: tickets, Turn: &turn, Now: int64(since)}, nil, now)
	l.name(a.Names)
	return l, nil
}

// Decide answers what Prepare would decide now, and records nothing.
func (a *App) Decide(ctx context.Context, spec job.Spec) (job.Plan, error) {
	plan, m, err := a.decide(ctx, spec)
	var refusal *job.Refusal
	if errors.As(err, &refusal) {
		plan, m, err = a.decideInstead(ctx, spec, refusal)
	}
	if err == nil && a.hardware() && len(plan.Devices) > 0 {
		path, _, _ := a.place(m)
		err = a.shared(path)
	}
	return plan, err
}

// decideInstead answers what instead would do, and does nothing.
func (a *App) decideInstead(ctx context.Context, spec job.Spec, refusal *job.Refusal) (job.Plan, gpu.Machine, error) {
	last := refusal
	for _, word := range spec.Waiting.Fallback {
		other, names := anyOther(spec)
		switch {
		case word == "other" && names:
			plan, m, err := a.decide(ctx, other)
			var again *job.Refusal
			if !errors.As(err, &again) {
				if err == nil {
					plan.Notes = append(plan.Notes, takingAnother(refusal))
				}
				return plan, m, err
			}
			last = better(spec.Waiting, refusal, again)
		case word == "cpu":
			return job.Plan{Devices: []job.Given{}, Reasons: refusal.Reasons, Notes: []string{
				refusal.Summary + ": it would fall back to the CPU, as --fallback cpu says"}}, gpu.Machine{}, nil
		}
	}
	return job.Plan{}, gpu.Machine{}, last
}

// placing returns what restricts the caller on m now: masks, the lease that it is inside of, and the rules.
func (a *App) placing(m gpu.Machine, held []job.Lease) (pick.Context, error) {
	rules, err := a.rules()
	if err != nil {
		return pick.Context{}, err
	}
	q := question{app: a, machine: m, env: a.unmasked(), rules: rules}
	in, _ := q.context(held, time.Now())
	return in, nil
}
