package app

import (
	"context"
	"os"

	"gpuard/internal/core/job"
	"gpuard/internal/core/quota"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/mps"
)

// harden settles, before anything is claimed, how hard the share of spec will be kept; less than is required is a refusal.
func (a *App) harden(ctx context.Context, spec job.Spec) (job.Spec, error) {
	if spec.Share == 0 {
		return spec, nil
	}
	var can quota.Means
	switch {
	case !a.hardware():
		can.Watch = "the machine is invented"
	case !launch.CanHold():
		can.Watch = "this process adopts orphans (PID 1 of a container, or a subreaper), and what measures would become the command's child"
	}
	if spec.Quota == job.MPS || spec.Require == job.MPS {
		if _, err := a.control(ctx); err != nil {
			can.MPS = err.Error()
		}
	}
	level, note, refusal := quota.Level(spec.Quota, spec.Require, can)
	if refusal != nil {
		return spec, refusal
	}
	if note != "" && (a.hardware() || spec.Quota != job.NoQuota) { // on an invented machine only to somebody who asked for a level
		a.Say(note)
	}
	spec.Quota = level
	return spec, nil
}

// control is the daemon that jobs of this user would go through.
func (a *App) control(ctx context.Context) (*mps.Control, error) {
	pipe, _ := a.Env.Lookup(mps.PipeVariable)
	return mps.Find(ctx, pipe, os.TempDir(), os.Geteuid())
}
