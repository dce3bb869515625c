package claim

import (
	"context"
	"os"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/core/quota"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/mps"
)

// SettleQuota settles, before anything is claimed, how hard the share of spec will be kept; less than is required is a
// refusal. A process that stays beside the command may adopt orphans, and knows what measures from what the command
// started.
func SettleQuota(ctx context.Context, host *machine.Host, spec job.Spec, stays bool) (job.Spec, error) {
	if spec.Share == 0 {
		return spec, nil
	}

	var can quota.Means
	switch {
	case !host.IsHardware():
		can.Watch = "the machine is invented"
	case !stays && !launch.CanHold():
		can.Watch = "this process adopts orphans (PID 1 of a container, or a subreaper), and what measures would become the command's child"
	}

	if spec.Quota == job.MPS || spec.Require == job.MPS {
		if _, err := MPSControl(ctx, host); err != nil {
			can.MPS = err.Error()
		}
	}

	level, note, refusal := quota.DecideLevel(spec.Quota, spec.Require, can)
	if refusal != nil {
		return spec, refusal
	}

	if note != "" && (host.IsHardware() || spec.Quota != job.NoQuota) {
		// On an invented machine only if a level was asked for.
		host.Say(note)
	}

	spec.Quota = level

	return spec, nil
}

// MPSControl is the daemon that jobs of this user would go through.
func MPSControl(ctx context.Context, host *machine.Host) (*mps.Control, error) {
	pipe, _ := host.Env.Lookup(mps.PipeVariable)
	return mps.FindControl(ctx, pipe, os.TempDir(), os.Geteuid())
}
