package app

import (
	"context"
	"errors"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/quota"
	"gpuard/internal/core/visible"
)

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
