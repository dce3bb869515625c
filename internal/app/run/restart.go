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
	"gpuard/internal/host/launch"
	"gpuard/internal/host/store"
)

// move asks for another device for a command that runs.
type move struct {
	reason string     // for people, and the value of GPUARD_DRIFT_REASON: "hot: GPU 2 slows down …"
	avoid  []gpu.UUID // not these either; those that it has are avoided anyway
}

// lookout watches the devices of a command that runs and asks for moves, until ctx ends: with the command, or when it
// was moved. It is called once per start, so what it remembers between starts (when the last move was) is its own. A
// move for which there is no other device leaves the command where it is and is said; asking again soon would say it
// again.
type lookout func(ctx context.Context, on job.Lease) <-chan move

// elsewhere leases another device for a command that runs, while it keeps the one it has. nil is that there is none.
func (s *supervision) elsewhere(ctx context.Context, l *Launch, m move) *Launch {
	spec := s.limited(s.spec)
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

// loudly says what is said also where silence was asked for.
func (s *supervision) loudly(text string) {
	if s.host.Loud != nil {
		s.host.Loud(text)
		s.logged(text)
		return
	}
	s.host.Say(text)
}

// again starts a command that failed once more, where that is wanted. It returns nil when not.
func (s *supervision) again(ctx context.Context, l *Launch, child *launch.Child) *Launch {
	drifts := slices.Contains(s.care.Drift, "sick")
	if s.care.Restart != job.NoRestart || s.service.ended != nil && !drifts {
		return s.forever(ctx, l, child)
	}
	code, signal, ran, _ := child.Outcome()
	if s.done.Asked || s.done.TimedOut || code == 0 && signal == "" || s.care.Retries == 0 && !drifts {
		return nil
	}
	if by := endSignal(child); by != "" {
		if s.care.Retries > 0 {
			s.host.Say(fmt.Sprintf("the command was ended by %s and is not started again: %s", by, possibleSenders(l)))
		}
		return nil
	}
	fault, broken := s.blame(ctx, l)
	ending := s.how()
	pause := time.Duration(0)
	count := fmt.Sprintf("start %d of %d", s.restarts+2, s.care.Retries+1)
	switch {
	case s.restarts < s.care.Retries && fault != "":
		s.restarts++
		s.host.Say(fmt.Sprintf("the command ended (%s), and %s: starting it again elsewhere, %s", ending, fault, count))
	case s.restarts < s.care.Retries && s.care.Any:
		s.restarts++
		pause = s.breather(ran)
		s.host.Say(fmt.Sprintf("the command ended (%s): starting it again in %.1f s, %s", ending, pause.Seconds(), count))
	case fault != "" && drifts && s.sick == 0:
		s.sick++
		text := fmt.Sprintf("the command ended (%s), and %s: starting it again elsewhere", ending, fault)
		if s.host.Say(text); s.service.ended != nil {
			s.service.ended(s.done, text)
		}
	case fault != "" || s.restarts >= s.care.Retries:
		return nil
	default:
		s.host.Say(fmt.Sprintf("the command ended (%s) and is not started again: nothing says that it was the machine's fault (--retry %d:any does not ask)", ending, s.care.Retries))
		return nil
	}
	return s.onward(ctx, l, child, fault, broken, pause)
}

// how the command ended: "exit 1", "SIGKILL".
func (s *supervision) how() string {
	switch {
	case s.doomed.Why != "":
		return s.doomed.Why
	case s.done.Signal != "":
		return s.done.Signal
	}
	return fmt.Sprintf("exit %d", s.done.Code)
}

// forever starts a service once more, as its restart says. It returns nil when not.
func (s *supervision) forever(ctx context.Context, l *Launch, child *launch.Child) *Launch {
	_, _, ran, _ := child.Outcome()
	failed := s.done.Code != 0 || s.done.Signal != ""
	if s.doomed.Why != "" {
		failed, ran = true, s.doomed.Well
	}
	switch {
	case s.done.Asked, s.done.TimedOut:
		return nil
	case child.Meant(time.Now().Add(-meant)) != "": // a signal to gpuard; the job control signals of the command do not mean that
		s.done.Asked = true
		return nil
	}
	pause := s.breather(ran)
	if !s.care.Again(failed, s.done.Streak) {
		return nil
	}
	fault, broken := s.blame(ctx, l)
	s.restarts++
	text := fmt.Sprintf("the command ended (%s): starting it again in %.1f s", s.how(), pause.Seconds())
	if fault != "" {
		text = fmt.Sprintf("the command ended (%s), and %s: starting it again elsewhere in %.1f s", s.how(), fault, pause.Seconds())
	}
	s.host.Say(text)
	s.service.ended(s.done, text)
	s.doomed = Unfit{}
	return s.onward(ctx, l, child, fault, broken, pause)
}

// onward leases for another start, after a pause: what the command had, unless there is a fault in it. A service that
// ends again and again leaves its devices to others meanwhile.
func (s *supervision) onward(ctx context.Context, l *Launch, child *launch.Child, fault string, broken []gpu.UUID, pause time.Duration) *Launch {
	if s.why = ""; fault != "" && slices.Contains(s.care.Drift, "sick") {
		s.why = "sick: " + fault
	}
	s.endCommand(child) // what it left would be in the way
	against := ""
	if s.service.ended != nil && s.done.Looping() {
		s.spec.Prefer = l.Plan.UUIDs()
	} else if fault == "" {
		var next *Launch
		if next, against = s.onceMore(ctx, l); next != nil {
			if rest(ctx, pause) {
				return next
			}
			next.release()
			return nil
		}
	}
	s.giveBack(l, against)
	if !rest(ctx, pause) {
		return nil
	}
	return s.anew(ctx, broken)
}

// anew leases for another start what is not broken, as at the beginning.
func (s *supervision) anew(ctx context.Context, broken []gpu.UUID) *Launch {
	spec := s.limited(s.spec)
	spec.Avoid = broken
	next, err := s.prepareUnlocked(ctx, spec)
	if err != nil {
		if s.done.Why = err.Error(); ctx.Err() == nil {
			s.host.Say("the command is not started again: " + s.done.Why)
		}
		return nil
	}
	next.spec = s.spec
	return next
}

// prepareUnlocked leases as soon as the lock of the lease folder can be had: another process that keeps it too long is no
// reason to give up a command that is to be started again.
func (s *supervision) prepareUnlocked(ctx context.Context, spec job.Spec) (*Launch, error) {
	for told := false; ; told = true {
		next, err := prepare(ctx, &Launch{host: s.host, meeting: s.meeting, isRestart: true, task: s.task}, spec)
		var locked *store.LockedError
		if !errors.As(err, &locked) {
			return next, err
		}
		if !told {
			s.host.Say("trying again until the command can be started: " + err.Error())
		}
		if !rest(ctx, time.Second) {
			return nil, ctx.Err()
		}
	}
}

// meant is how long a program may take to end when it is told to.
const meant = 30 * time.Second

// endSignal returns the signal that was sent to end the command, "" for none. After such a signal the command is not
// started again, whatever the state of the machine.
func endSignal(child *launch.Child) string {
	_, signal, _, _ := child.Outcome()
	if slices.Contains([]string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"}, signal) {
		return signal
	}
	return child.Meant(time.Now().Add(-meant))
}

// possibleSenders names the possible senders of the signal: a user, or the process that measures the share. The signal
// alone does not show which.
func possibleSenders(l *Launch) string {
	if l.Plan.Share > 0 {
		return fmt.Sprintf("either a user ended it, or it used more than its share of %s, which the line about that says", l.Plan.Share)
	}
	return "a user ended it"
}

// blame finds a fault of the machine that happened while the command ran.
func (s *supervision) blame(ctx context.Context, l *Launch) (fault string, broken []gpu.UUID) {
	if l.claimed == nil || !s.host.Hardware() {
		return "", nil
	}
	after, err := s.host.Read(ctx, gpu.Identity|gpu.Load|gpu.Health)
	if err != nil {
		return "the GPUs cannot be read any more: " + err.Error(), nil
	}
	fault, broken = health.Blame(l.claimed.Machine, after, l.Plan.UUIDs(), l.claimed.Held.Lease.Since, time.Now())
	broken = slices.DeleteFunc(broken, func(id gpu.UUID) bool { // one that is gone is not given, and cannot be excluded
		_, _, there := after.Find(id)
		return !there
	})
	return fault, broken
}

func bytesOf(n int64) *gpu.Bytes { return new(gpu.Bytes(n)) }
