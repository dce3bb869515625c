// Package supervise decides what follows the end of a command that gpuard looks after.
//
//	                 ┌──────────────── in line again ◀── the machine was at fault ──┐
//	                 ▼                                                              │
//	waiting ──▶ starting ──▶ running ──▶ stopping ──▶ ended, and to be started again┤
//	                 ▲                     (its time is over, it is to move,        │
//	                 │                      it is unfit, or somebody asks)          │
//	                 └── after a pause, with the same devices ◀─────────────────────┘
//
// What is known of a job over all its starts is a Life; each End goes through SettleEnd, and through DecideNext if
// that leaves something to decide. Whether the machine was at fault is asked in between, because that reads all devices.
package supervise

import (
	"fmt"
	"slices"
	"time"

	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
)

// Life is what is known of a job over all its starts.
type Life struct {
	Care    job.Care
	Service bool // it is a service
	// The shortest pause before a further start.
	First time.Duration
	// Ends in a row after which a start was due.
	Streak int
	// The restarts that Care.Retries or Care.Restart has asked for.
	Restarts int
	// It was moved by --drift, after a fault.
	moved bool
}

// End is how one start has ended.
type End struct {
	// Exit code; -1 when a signal ended it.
	Code int
	// That ended it: "SIGKILL"; "" none.
	Signal string
	// How long it ran well.
	Ran time.Duration
	// Why it was ended although it ran; "" it was not.
	Unfit string
	// The end of the job was asked for.
	Asked    bool
	TimedOut bool // its time was over
	// The signal by which somebody has ended it, or the process that measures its share; "" nobody.
	By string
	// How it ended is not known, because its keeper had been killed: Code and Signal say nothing.
	Unseen bool
}

// Failed reports whether it ended otherwise than a command does that has done its work, as far as is known.
func (e End) Failed() bool { return e.Code != 0 || e.Signal != "" || e.Unfit != "" || e.Unseen }

// EndText is how it ended, in few words: "exit 1", "SIGKILL".
func (e End) EndText() string {
	switch {
	case e.Unfit != "":
		return e.Unfit
	case e.Unseen:
		return "exit status unknown"
	case e.Signal != "":
		return e.Signal
	}
	return fmt.Sprintf("exit %d", e.Code)
}

// DescribeEnd says how the command ended, and what happened to the machine meanwhile; "" nothing that is known.
func (e End) DescribeEnd(fault string) string {
	text := fmt.Sprintf("the command ended (%s)", e.EndText())
	if fault != "" {
		text += ", and " + fault
	}
	return text
}

// Next is what follows an end.
type Next struct {
	// The command is started again.
	Start bool
	// Not on devices in which there is a fault.
	Elsewhere bool
	Pause     time.Duration // before the start
	// What is said to people; "" nothing.
	Say string
}

// IsEndless reports whether it is a service that is started again as its restart says, and not as often as Retries
// says.
func (l *Life) IsEndless() bool {
	return l.Care.Restart != job.NoRestart || l.Service && !l.followsFaults()
}

// followsFaults reports whether --drift moves the job after a fault of the machine.
func (l *Life) followsFaults() bool { return slices.Contains(l.Care.Drift, "sick") }

// SettleEnd counts an end, and reports whether nothing follows it, whatever was the matter with the machine.
func (l *Life) SettleEnd(e End) bool {
	switch {
	case e.Asked, e.TimedOut, e.By != "":
		return true
	case l.IsEndless():
		l.lengthenStreak(e.Ran)
		return !l.startsAgain(e)
	}
	return !e.Failed() || l.Care.Retries == 0 && !l.followsFaults()
}

// DecideNext decides what follows an end that is not settled. fault is what happened to the machine while the command
// ran; "" nothing that is known.
func (l *Life) DecideNext(e End, fault string) Next {
	n := Next{Start: true, Elsewhere: fault != ""}
	ended := e.DescribeEnd(fault)
	count := fmt.Sprintf("start %d of %d", l.Restarts+2, l.Care.Retries+1)
	switch more := l.Restarts < l.Care.Retries; {
	case l.IsEndless() && fault != "":
		l.Restarts++
		n.Pause = l.pauseBeforeStart()
		n.Say = fmt.Sprintf("%s: starting it again elsewhere in %.1f s", ended, n.Pause.Seconds())
	case l.IsEndless():
		l.Restarts++
		n.Pause = l.pauseBeforeStart()
		n.Say = fmt.Sprintf("%s: starting it again in %.1f s", ended, n.Pause.Seconds())
	case more && fault != "":
		l.Restarts++
		n.Say = fmt.Sprintf("%s: starting it again elsewhere, %s", ended, count)
	case more && l.Care.Any:
		l.Restarts++
		l.lengthenStreak(e.Ran)
		n.Pause = l.pauseBeforeStart()
		n.Say = fmt.Sprintf("%s: starting it again in %.1f s, %s", ended, n.Pause.Seconds(), count)
	case fault != "" && l.followsFaults() && !l.moved:
		l.moved = true
		n.Say = ended + ": starting it again elsewhere"
	case fault != "" || !more:
		n.Start = false
	default:
		n.Start = false
		n.Say = option.Sprintf("%s and is not started again: nothing says that it was the machine's fault ({retry=%d}:any does not ask)", ended, l.Care.Retries)
	}

	return n
}

// A command that fails immediately is not started a thousand times a second: the pause doubles with each start, up to
// maxPause.
const (
	FirstPause    = 500 * time.Millisecond // the usual one
	maxPause      = 30 * time.Second
	minLastingRun = time.Minute
)

// lengthenStreak counts one more end, of a start that ran well for that long. After one that lasted the streak begins
// anew.
func (l *Life) lengthenStreak(well time.Duration) {
	l.Streak = StreakAfter(l.Streak, well)
}

// pauseBeforeStart is the time between the last end of the streak and the next start.
func (l *Life) pauseBeforeStart() time.Duration { return RestartPause(l.First, l.Streak) }

// RestartPause is the time between an end and the next start of a command that has failed streak times in a row. It is
// first after one failure.
func RestartPause(first time.Duration, streak int) time.Duration {
	pause := first
	for n := 1; n < streak && pause < maxPause; n++ {
		pause *= 2
	}
	return min(pause, max(first, maxPause))
}

// StreakAfter counts one more failure in a row. A start that ran well for a minute begins a new streak.
func StreakAfter(streak int, well time.Duration) int {
	if well >= minLastingRun {
		return 1
	}
	return streak + 1
}

// IsLooping reports whether the command ended again soon after a restart. Its devices are then free until the next
// start.
func (l *Life) IsLooping() bool { return l.Streak > 1 }

// startsAgain reports whether a service is started again after the last end of a streak.
func (l *Life) startsAgain(e End) bool {
	switch {
	case l.Care.Limit > 0 && l.Streak > l.Care.Limit:
		return false
	case l.Care.Restart == job.Always:
		return true
	}
	return l.Care.Restart == job.OnFailure && e.Failed()
}
