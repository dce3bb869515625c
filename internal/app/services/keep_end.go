package services

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"gpuard/internal/app/run"
	"gpuard/internal/core/job"
	"gpuard/internal/core/service"
)

// recordEnd hears of an end after which the command is started again.
func (k *keeper) recordEnd(r job.Result, next string) {
	k.stopChecks()
	k.changeRecord(func(now *service.Record) {
		recordOutcome(now, &r)
		now.Main, now.Ready, now.Healthy, now.Restarts, now.Streak = service.Process{}, false, nil, now.Restarts+1, r.Streak
		if now.State != service.Ending {
			now.State, now.Since, now.Why = service.Restarting, time.Now(), next
		}
	})
}

// recordFreed hears that the devices are given back until the next start.
func (k *keeper) recordFreed() {
	k.changeRecord(func(r *service.Record) { r.Lease, r.Devices, r.Share = "", []job.Given{}, 0 })
}

// recordOutcome notes how the command ended.
func recordOutcome(now *service.Record, r *job.Result) {
	now.Exit, now.Signal = nil, r.Signal
	if r.Signal == "" {
		now.Exit = &r.Code
	}
}

// describeEnd says how a command ended; signal is "" if none has ended it.
func describeEnd(code int, signal string) string {
	if signal != "" {
		return "ended by " + signal
	}
	return fmt.Sprintf("exit %d", code)
}

// recordFinalEnd is the end for good.
func (k *keeper) recordFinalEnd(ctx context.Context, r *job.Result) {
	doomed := k.stopChecks()
	how := describeEnd(r.Code, r.Signal)
	state := service.Failed
	var why string
	switch {
	case ctx.Err() != nil || r.Asked:
		state, why = service.Done, "it was ended"
	case r.TimedOut:
		why = fmt.Sprintf("its time was over (timeout: %s)", k.task.Spec.Timeout)
	case r.Why != "":
		state, why = service.Refused, fmt.Sprintf("%s, and it is not started again: %s", how, r.Why)
	case r.Code == 0 && r.Signal == "" && doomed.Why == "" && k.instance.Restart != service.Always:
		state, why = service.Done, ""
	default:
		why = k.reasonWithLimit(cmp.Or(doomed.Why, how), r.Streak)
	}

	k.writeNote(fmt.Sprintf("the service is over after %s: %s", r.Ran.Round(100*time.Millisecond), how))
	k.changeRecord(func(now *service.Record) { recordOutcome(now, r) })
	k.recordOver(state, why)
}

// reasonWithLimit adds to the reason of an end that it was one too many.
func (k *keeper) reasonWithLimit(why string, streak int) string {
	if limit := k.task.Care.Limit; limit > 0 && streak > limit {
		return fmt.Sprintf("%s, and it is not started again: it ended %d times in a row (restart: %s:%d)", why, streak, k.instance.Restart, limit)
	}
	return why
}

// endUnfit has the command ended, which counts as a failure.
func (k *keeper) endUnfit(why run.EndReason) {
	k.mu.Lock()
	k.doomed = why
	k.mu.Unlock()

	select {
	case k.unfit <- why:
	default:
	}
}

// stopChecks ends the checks of a start, and tells why that was doomed.
func (k *keeper) stopChecks() (doomed run.EndReason) {
	if k.calm != nil {
		k.calm()
	}

	k.calm = nil

	select {
	case <-k.unfit:
		// It came too late.
	default:
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	doomed, k.doomed = k.doomed, run.EndReason{}

	return doomed
}
