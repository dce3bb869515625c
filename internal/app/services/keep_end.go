package services

import (
	"context"
	"fmt"
	"time"

	"gpuard/internal/core/job"
	"gpuard/internal/core/service"
)

// recordEnd hears of an end after which the command is started again.
func (k *keeper) recordEnd(r job.Result, next string) {
	k.quiet()
	k.set(func(now *service.Record) {
		outcome(now, &r)
		now.Main, now.Ready, now.Restarts = service.Process{}, false, now.Restarts+1
		if now.State != service.Ending {
			now.State, now.Since, now.Why = service.Restarting, time.Now(), next
		}
	})
}

// outcome notes how the command ended.
func outcome(now *service.Record, r *job.Result) {
	if now.Exit, now.Signal = nil, r.Signal; r.Signal == "" {
		now.Exit = &r.Code
	}
}

// finish is the end for good.
func (k *keeper) finish(ctx context.Context, r *job.Result) {
	doomed := k.quiet()
	how := fmt.Sprintf("exit %d", r.Code)
	if r.Signal != "" {
		how = "ended by " + r.Signal
	}
	state, why := service.Failed, how
	switch {
	case ctx.Err() != nil || r.Asked:
		state, why = service.Done, "it was ended"
	case r.TimedOut:
		why = fmt.Sprintf("its time was over (timeout: %s)", k.task.Spec.Timeout)
	case r.Why != "":
		state, why = service.Refused, fmt.Sprintf("%s, and it is not started again: %s", how, r.Why)
	case doomed != "":
		why = doomed
	case r.Code == 0 && r.Signal == "":
		state, why = service.Done, ""
	}
	k.note(fmt.Sprintf("the service is over after %s: %s", r.Ran.Round(100*time.Millisecond), how))
	k.set(func(now *service.Record) { outcome(now, r) })
	k.over(state, why)
}

// watch starts the checks for readiness of a start.
func (k *keeper) watch() {
	if k.instance.Ready == nil {
		return
	}
	p, err := probing(*k.instance.Ready, k.log(), k.snapshot().Output)
	if err != nil {
		k.doom(err.Error())
		return
	}
	k.prober, k.calm = p, p.close
}

// probe continues them once the command runs.
func (k *keeper) probe() {
	p := k.prober
	if p == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	k.calm = func() {
		cancel()
		<-over
		p.close()
	}
	go func() {
		defer close(over)
		err := p.wait(ctx, k.instance.WorkDir, k.host.Env, func(why string) {
			k.set(func(r *service.Record) {
				if r.State == service.Running && !r.Ready {
					r.Why = "not ready: " + why
				}
			})
		})
		switch {
		case err == nil:
			k.set(func(r *service.Record) {
				if r.State == service.Running {
					r.Ready, r.Why = true, ""
				}
			})
		case ctx.Err() == nil:
			k.doom(err.Error())
		}
	}()
}

// doom has the command ended, which counts as a failure.
func (k *keeper) doom(why string) {
	k.mu.Lock()
	k.doomed = why
	k.mu.Unlock()
	select {
	case k.unfit <- why:
	default:
	}
}

// quiet ends the probe of a start, and tells why that was doomed.
func (k *keeper) quiet() (doomed string) {
	if k.calm != nil {
		k.calm()
	}
	k.prober, k.calm = nil, nil
	select {
	case <-k.unfit: // it came too late
	default:
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	doomed, k.doomed = k.doomed, ""
	return doomed
}
