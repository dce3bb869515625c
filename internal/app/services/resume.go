package services

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"gpuard/internal/core/service"
	"gpuard/internal/core/supervise"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/interrupt"
)

// A keeper that begins finds out what is left of the one before it. A command of the same instance that lives is looked
// after from now on; whatever else lives is ended first, so that nothing ever runs twice.

// resumeInstance deals with what is there already, and reports whether that was all there is to do.
func (k *keeper) resumeInstance(ctx context.Context, before service.Record) (done bool) {
	left := k.own.findProcesses(before)
	same := before.Hash == k.orders.Hash && !isOver(before.State)
	main := k.mainProcess(before, left)
	if k.orders.Hash == "" || !same && len(left) > 0 {
		k.changeRecord(func(r *service.Record) { r.State, r.Since, r.Why = service.Ending, time.Now(), "" })
		hurry := k.hurry
		if k.orders.Hash != "" {
			// That is for what begins now.
			hurry = nil
		}

		k.own.endProcesses(before, interrupt.SignalByName(before.Stop), before.Grace, hurry)
		if k.orders.Hash == "" {
			k.recordOver(service.Done, "it was ended")
			return true
		}
	}

	switch {
	case !same:
		k.resetRecord(0, 0)
		return false
	case main != (service.Process{}):
		return k.adoptCommand(ctx, main)
	case len(left) > 0:
		// The command is gone, and not what it started.
		k.own.endProcesses(before, interrupt.SignalByName(before.Stop), before.Grace, k.hurry)
		return k.recordUnkept(ctx, unkeptEnd{})
	case before.State == service.Running || before.State == service.Ending:
		return k.recordUnkept(ctx, unkeptEnd{})
	}

	k.resetRecord(before.Restarts, before.Streak)

	return false
}

// mainProcess is the command among the processes of an instance; zero when it is gone. A keeper that was killed right
// after the start had not written it down: then it is the first that no other of them started.
func (k *keeper) mainProcess(before service.Record, left []service.Process) service.Process {
	if before.Main.PID != 0 {
		if slices.Contains(left, before.Main) {
			return before.Main
		}
		return service.Process{}
	}
	for _, p := range left {
		s, err := k.host.Proc.Stat(p.PID)
		if err == nil && s.Start == p.Start && !slices.ContainsFunc(left, func(above service.Process) bool { return above.PID == s.PPID }) {
			return p
		}
	}
	return service.Process{}
}

// adoptCommand supervises a command that runs already, and reports whether the keeper is done.
func (k *keeper) adoptCommand(ctx context.Context, main service.Process) (done bool) {
	if !k.host.Proc.IsAlive(main.PID, main.Start) {
		return k.recordUnkept(ctx, unkeptEnd{})
	}

	k.writeNote(fmt.Sprintf("found process %d again; the gpuard beside it had been killed, so that a move to another GPU (drift) is not looked for until it is started anew", main.PID))
	k.host.Env = k.commandEnv()
	ready := false
	k.changeRecord(func(r *service.Record) {
		if r.State != service.Running && r.State != service.Ending {
			r.State, r.Since, r.Why, r.Ready = service.Running, time.Now(), "", false
		}
		r.Main = main
		r.Ready = r.Ready || k.instance.Ready == nil
		ready = r.Ready
	})

	k.startChecks(ready)
	var late <-chan time.Time
	if limit := k.task.Spec.Timeout; limit > 0 {
		late = time.After(limit - time.Since(k.recordSnapshot().Since))
	}

	ended := make(chan unkeptEnd, 1)
	go func() {
		how, seen := batch.AwaitProcess(main.PID, main.Start)
		ended <- unkeptEnd{how, seen}
	}()

	var end unkeptEnd
	timedOut := false
	select {
	case end = <-ended:
	case <-ctx.Done():
	case why := <-k.unfit:
		k.writeNote(why.Why + ": ending the command")
	case <-late:
		timedOut = true
	}

	// As it was started: what is asked for may not be readable now, such as where the driver does not answer.
	started := k.recordSnapshot()
	k.own.endProcesses(started, interrupt.SignalByName(started.Stop), started.Grace, k.hurry)
	if timedOut {
		k.recordOver(service.Failed, fmt.Sprintf("its time was over (timeout: %s)", k.task.Spec.Timeout))
		return true
	}

	return k.recordUnkept(ctx, end)
}

func (k *keeper) recordSnapshot() service.Record {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.record
}

// unkeptEnd is how a command ended whose keeper had been killed; seen is whether the kernel says so (since Linux 6.15).
type unkeptEnd struct {
	batch.ExitStatus
	seen bool
}

// recordUnkept deals with such an end, and reports whether the instance has ended for good.
func (k *keeper) recordUnkept(ctx context.Context, how unkeptEnd) (done bool) {
	doomed := k.stopChecks()
	k.changeRecord(func(r *service.Record) {
		r.Exit, r.Signal = nil, how.Signal
		if how.seen && how.Signal == "" {
			r.Exit = &how.Code
		}
	})

	last := k.recordSnapshot()
	end := supervise.End{Code: how.Code, Signal: how.Signal, Unseen: !how.seen, Ran: time.Since(last.Since), Unfit: doomed.Why, Asked: ctx.Err() != nil}
	if doomed.Why != "" {
		end.Ran = doomed.HealthyFor
	}

	life := supervise.Life{Care: k.task.Care, Service: true, Streak: last.Streak}
	settled := life.SettleEnd(end)
	switch {
	case ctx.Err() != nil:
		k.recordOver(service.Done, "it was ended")
		return true
	case !settled:
		k.writeNote(end.DescribeEnd("") + ": starting it again")
		k.resetRecord(last.Restarts+1, life.Streak)
		return false
	case !end.Failed():
		k.recordOver(service.Done, "")
		return true
	}

	why := describeEnd(how.Code, how.Signal)
	if end.Unseen {
		why = "it ended, with an unknown exit status: the gpuard that supervised it had been killed"
	}

	k.recordOver(service.Failed, k.reasonWithLimit(cmp.Or(doomed.Why, why), life.Streak))

	return true
}
