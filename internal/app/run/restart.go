package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/job"
	"gpuard/internal/core/supervise"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/store"
)

// moveRequest asks for another device for a command that runs.
type moveRequest struct {
	// The reason for people, and the value of GPUARD_DRIFT_REASON: "hot: GPU 2 slows down …".
	reason string
	// Not these either; those that it has are avoided anyway.
	avoid []gpu.UUID
}

// moveWatch watches the devices of a command that runs and asks for moves, until ctx ends: with the command, or when it
// was moved. It is called once per start, so what it remembers between starts (when the last move was) is its own. A
// move for which there is no other device leaves the command where it is and is said; asking again soon would say it
// again.
type moveWatch func(ctx context.Context, on job.Lease) <-chan moveRequest

// leaseOtherDevice leases another device for a command that runs, while it keeps the one it has. nil is that there is
// none.
func (s *supervision) leaseOtherDevice(ctx context.Context, l *Launch, m moveRequest) *Launch {
	spec := s.withTimeLeft(s.spec)
	spec.Waiting, spec.Moving = job.Waiting{No: true}, l.Lease
	spec.Avoid = append(l.Plan.UUIDs(), m.avoid...)
	next, err := s.prepareUnlocked(ctx, spec)
	if err != nil {
		if ctx.Err() == nil {
			s.host.Say(fmt.Sprintf("%s: the command stays where it is: %v", m.reason, err))
		}
		return nil
	}

	next.spec = s.spec

	return next
}

// sayAlways says what is said also where silence was asked for.
func (s *supervision) sayAlways(text string) {
	if s.host.Loud != nil {
		s.host.Loud(text)
		s.writeLog(text)
		return
	}
	s.host.Say(text)
}

// nextLaunch leases for another start of a command that has ended, where core/supervise wants one. It returns nil where
// not.
func (s *supervision) nextLaunch(ctx context.Context, l *Launch, child *launch.Child) *Launch {
	s.last = s.commandEnd(child)
	settled := s.life.SettleEnd(s.last)
	s.done.Streak = s.life.Streak
	if settled {
		if s.last.By != "" && !s.last.TimedOut && s.last.Failed() && s.care.Retries > 0 {
			s.host.Say(fmt.Sprintf("the command was ended by %s and is not started again: %s", s.last.By, possibleSenders(l)))
		}
		return nil
	}

	fault, broken := s.findFault(ctx, l)
	next := s.life.DecideNext(s.last, fault)
	s.done.Streak = s.life.Streak
	if next.Say != "" {
		s.host.Say(next.Say)
	}

	if !next.Start {
		return nil
	}

	s.doomed = EndReason{}
	if s.service.beforeRestart != nil {
		s.service.beforeRestart(s.done, next.Say)
	}

	return s.leaseNextStart(ctx, l, child, fault, broken, next.Pause)
}

// commandEnd is how the command has ended.
func (s *supervision) commandEnd(child *launch.Child) supervise.End {
	_, _, ran, _ := child.Outcome()
	e := supervise.End{Code: s.done.Code, Signal: s.done.Signal, Ran: ran, TimedOut: s.done.TimedOut}
	if s.doomed.Why != "" {
		e.Unfit, e.Ran = s.doomed.Why, s.doomed.HealthyFor
	}

	if !s.life.IsEndless() {
		e.By = endSignal(child)
	} else if child.LastSignalSince(time.Now().Add(-endSignalWindow)) != "" {
		// A signal to gpuard; the job control signals of the command do not mean that.
		s.done.Asked = true
	}

	e.Asked = s.done.Asked

	return e
}

// leaseNextStart leases for another start, after a pause: what the command had, unless there is a fault in it. A
// service that ends again and again leaves its devices to others meanwhile.
func (s *supervision) leaseNextStart(ctx context.Context, l *Launch, child *launch.Child, fault string, broken []gpu.UUID, pause time.Duration) *Launch {
	s.why = ""
	if fault != "" && slices.Contains(s.care.Drift, "sick") {
		s.why = "sick: " + fault
	}

	// What it left would be in the way.
	s.endCommand(child)
	against := ""
	if s.service.beforeRestart != nil && s.life.IsLooping() {
		s.spec.Prefer = l.Plan.UUIDs()
	} else if fault == "" {
		var next *Launch
		next, against = s.reuseLease(ctx, l)
		if next != nil {
			if waitPause(ctx, pause) {
				return next
			}
			next.releaseLease()
			return nil
		}
	}

	s.giveBackDevices(l, against)
	if !waitPause(ctx, pause) {
		return nil
	}

	return s.leaseAvoiding(ctx, broken)
}

// leaseAvoiding leases for another start what is not broken, as at the beginning.
func (s *supervision) leaseAvoiding(ctx context.Context, broken []gpu.UUID) *Launch {
	spec := s.withTimeLeft(s.spec)
	spec.Avoid = broken
	next, err := s.prepareUnlocked(ctx, spec)
	if err != nil {
		s.done.Why = err.Error()
		if ctx.Err() == nil {
			s.host.Say("the command is not started again: " + s.done.Why)
		}
		return nil
	}

	next.spec = s.spec

	return next
}

// prepareUnlocked leases as soon as the lock of the lease folder can be had: another process that keeps it too long is
// no reason to give up a command that is to be started again.
func (s *supervision) prepareUnlocked(ctx context.Context, spec job.Spec) (*Launch, error) {
	for told := false; ; told = true {
		next, err := prepareStart(ctx, &Launch{host: s.host, meeting: s.meeting, isRestart: true, task: s.task}, spec)
		var locked *store.LockedError
		if !errors.As(err, &locked) {
			return next, err
		}

		if !told {
			s.host.Say("trying again until the command can be started: " + err.Error())
		}

		if !waitPause(ctx, time.Second) {
			return nil, ctx.Err()
		}
	}
}

// endSignalWindow is how long a program may take to end when it is told to.
const endSignalWindow = 30 * time.Second

// endSignal returns the signal that was sent to end the command, "" for none. After such a signal the command is not
// started again, whatever the state of the machine.
func endSignal(child *launch.Child) string {
	_, signal, _, _ := child.Outcome()
	if slices.Contains([]string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"}, signal) {
		return signal
	}
	return child.LastSignalSince(time.Now().Add(-endSignalWindow))
}

// possibleSenders names the possible senders of the signal: a user, or the process that measures the share. The signal
// alone does not show which.
func possibleSenders(l *Launch) string {
	if l.Plan.Share > 0 {
		return fmt.Sprintf("either a user ended it, or it used more than its share of %s, which the line about that says", l.Plan.Share)
	}
	return "a user ended it"
}

// findFault finds a fault of the machine that happened while the command ran.
func (s *supervision) findFault(ctx context.Context, l *Launch) (fault string, broken []gpu.UUID) {
	if l.claimed == nil || !s.host.IsHardware() {
		return "", nil
	}

	after, err := s.host.Read(ctx, gpu.Identity|gpu.Load|gpu.Health)
	if err != nil {
		return "the GPUs cannot be read any more: " + err.Error(), nil
	}

	fault, broken = health.BlameDevices(l.claimed.Machine, after, l.Plan.UUIDs(), l.claimed.Held.Lease.Since, time.Now())
	broken = slices.DeleteFunc(broken, func(id gpu.UUID) bool {
		// One that is gone is not given, and cannot be excluded.
		_, _, there := after.FindDevice(id)
		return !there
	})

	return fault, broken
}

func bytesOf(n int64) *gpu.Bytes { return new(gpu.Bytes(n)) }
