package leases

import (
	"context"
	"errors"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
)

// Count counts the GPUs that spec could be given if nothing else used them; 1 where there is none, so that the refusal
// says why.
func Count(ctx context.Context, host *machine.Host, spec job.Spec) (int, error) {
	m, err := host.ReadAll(ctx, claim.Needed(spec))
	var none *gpu.Unavailable
	if errors.As(err, &none) {
		return 1, nil
	}
	if err != nil {
		return 0, err
	}
	held, _, err := registry.Leases(host, m)
	if err != nil {
		return 0, err
	}
	in, err := claim.Placing(host, m, held)
	if spec.Any {
		in.Hidden, in.Ancestors, in.Parent = nil, nil, nil
	}
	spec.GPUs = 1
	return max(1, len(pick.Servers(spec, m, in))), err
}
