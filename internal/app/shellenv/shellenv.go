// Package shellenv makes the variables of a shell: for a choice of devices, for a login, and back to what they were.
package shellenv

import (
	"context"
	"errors"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/quota"
	"gpuard/internal/core/visible"
)

// ChoiceVariables are what a job with this choice would get, in addition to or in place of what it inherits. Nothing is
// leased.
func ChoiceVariables(ctx context.Context, host *machine.Host, spec job.Spec) ([]visible.Var, error) {
	plan, m, err := claim.DecideNow(ctx, host, spec)
	if err != nil {
		return nil, err
	}
	vars := visible.ForJob(host.Env, "", plan, spec.IDs, m)

	return host.VarsForShell(append(vars, quota.ShareVars(host.Env, plan.Share, claim.LargestMemory(m, plan), nil)...)), nil
}

// NeverReasons are why this machine, as it is now, never gives what spec says, whatever mask or lease the caller is
// inside of.
func NeverReasons(ctx context.Context, host *machine.Host, spec job.Spec) []string {
	spec.Any = true
	_, _, err := claim.DecideNow(ctx, host, spec)
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
