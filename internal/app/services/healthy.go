package services

import (
	"context"
	"time"

	"gpuard/internal/app/run"
	"gpuard/internal/core/job"
	"gpuard/internal/core/service"
)

// startChecks checks whether the command is ready, unless it was already, and from then on whether it is healthy.
func (k *keeper) startChecks(ready bool) {
	if ready && k.instance.Healthy == nil {
		return
	}

	var p *prober
	if !ready {
		var err error
		p, err = newProber(*k.instance.Ready, k.logPath(), k.recordSnapshot().Output)
		if err != nil {
			k.endUnfit(run.EndReason{Why: err.Error()})
			return
		}
	}

	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	k.calm = func() {
		cancel()
		<-over
	}

	go func() {
		defer close(over)
		if ready || k.awaitReady(ctx, p) {
			k.checkHealth(ctx)
		}
	}()
}

// awaitReady reports whether the command is ready.
func (k *keeper) awaitReady(ctx context.Context, p *prober) bool {
	defer p.close()
	err := p.waitUntilReady(ctx, k.instance.WorkDir, k.host.Env, func(why string) {
		k.changeRecord(func(r *service.Record) {
			if r.State == service.Running && !r.Ready {
				r.Why = "not ready: " + why
			}
		})
	})
	switch {
	case err == nil:
		k.changeRecord(func(r *service.Record) {
			if r.State == service.Running {
				r.Ready, r.Why = true, ""
			}
		})
	case ctx.Err() == nil:
		k.endUnfit(run.EndReason{Why: err.Error()})
	}

	return err == nil
}

// checkHealth checks until ctx ends, or the command is unhealthy and shall be started again.
func (k *keeper) checkHealth(ctx context.Context) {
	h := k.instance.Healthy
	if h == nil {
		return
	}

	began := k.recordSnapshot()
	pulse := service.Pulse{Healthy: began.Healthy}
	for {
		err := runProbe(ctx, h.Probe, h.Timeout, k.instance.WorkDir, k.host.Env)
		if ctx.Err() != nil {
			return
		}

		pulse = pulse.AfterCheck(h, err == nil, time.Since(began.Since))
		k.recordHealth(pulse.Healthy, err)
		if pulse.Healthy != nil && !*pulse.Healthy && k.task.Care.Restart != job.NoRestart {
			k.endUnfit(run.EndReason{Why: "unhealthy: " + err.Error(), HealthyFor: pulse.Well})
			return
		}

		select {
		case <-ctx.Done():
			return
		case <-time.After(h.Interval):
		}
	}
}

// recordHealth records what changed by a check, whose error is nil if it succeeded.
func (k *keeper) recordHealth(healthy *bool, err error) {
	before := k.recordSnapshot()
	why := ""
	if healthy != nil && !*healthy {
		why = err.Error()
	}

	switch {
	case before.State != service.Running || healthy == nil:
		return
	case before.Healthy != nil && *before.Healthy == *healthy && before.Why == why:
		return
	case !*healthy && before.IsUsable():
		k.writeNote("the service is unhealthy: " + why)
	case *healthy && !before.IsUsable():
		k.writeNote("the service is healthy again")
	}

	k.changeRecord(func(r *service.Record) {
		if r.State == service.Running {
			r.Healthy, r.Why = healthy, why
		}
	})
}
