package supervise

import (
	"fmt"
	"math"
	"testing"
	"time"

	"gpuard/internal/core/job"
)

// TestStreak: the pauses of a command that runs well for these times, the first of which is 500 ms.
func TestStreak(t *testing.T) {
	const s, minute = time.Second, time.Minute
	for _, c := range []struct {
		well []time.Duration
		want string
	}{
		{[]time.Duration{0, 0, 0, 59 * s}, "500ms 1s+ 2s+ 4s+ "},
		{[]time.Duration{0, 0, minute, 0}, "500ms 1s+ 500ms 1s+ "},
		{[]time.Duration{minute, minute}, "500ms 500ms "},
		{[]time.Duration{0, 0, 0, 0, 0, 0, 0, 0}, "500ms 1s+ 2s+ 4s+ 8s+ 16s+ 30s+ 30s+ "},
	} {
		l := Life{First: 500 * time.Millisecond}
		got := ""
		for _, well := range c.well {
			l.lengthenStreak(well)
			got += l.pauseBeforeStart().String()
			if l.IsLooping() {
				got += "+"
			}
			got += " "
		}
		if got != c.want {
			t.Errorf("%v: %s, want %s", c.well, got, c.want)
		}
	}
	if got := fmt.Sprint((&Life{Streak: math.MaxInt, First: s}).pauseBeforeStart(), (&Life{Streak: 3, First: minute}).pauseBeforeStart()); got != "30s 1m0s" {
		t.Error(got)
	}
}

func TestAgain(t *testing.T) {
	for _, c := range []struct {
		restart job.Restart
		limit   int
		code    int
		streak  int
		want    bool
	}{
		{job.NoRestart, 0, 1, 1, false},
		{job.OnFailure, 0, 1, 1000, true},
		{job.OnFailure, 0, 0, 1, false},
		{job.OnFailure, 2, 1, 2, true},
		{job.OnFailure, 2, 1, 3, false},
		{job.Always, 0, 0, 1000, true},
		{job.Always, 2, 0, 2, true},
		{job.Always, 2, 0, 3, false},
	} {
		l := Life{Care: job.Care{Restart: c.restart, Limit: c.limit}, Service: true, Streak: c.streak - 1}
		if got := !l.SettleEnd(End{Code: c.code}); got != c.want || l.Streak != c.streak {
			t.Errorf("%+v: %v, streak %d", c, got, l.Streak)
		}
	}
}

// life is a life by its flags.
func life(flags string) *Life {
	l := &Life{First: time.Second}
	switch flags {
	case "--retry 2":
		l.Care.Retries = 2
	case "--retry 2:any":
		l.Care.Retries, l.Care.Any = 2, true
	case "--drift=sick":
		l.Care.Drift = []string{"hot", "sick"}
	case "--drift=sick --retry 1":
		l.Care.Drift, l.Care.Retries = []string{"sick"}, 1
	case "a service":
		l.Service = true
	case "a service with drift: sick":
		l.Service, l.Care.Drift = true, []string{"sick"}
	case "restart: on-failure:2":
		l.Service, l.Care.Restart, l.Care.Limit = true, job.OnFailure, 2
	case "restart: on-failure:1":
		l.Service, l.Care.Restart, l.Care.Limit = true, job.OnFailure, 1
	case "restart: always":
		l.Service, l.Care.Restart = true, job.Always
	}
	return l
}

// TestLives: what follows each end of a job; a fault of the machine is asked for only where it matters.
func TestLives(t *testing.T) {
	type step struct {
		end   End
		fault string
		want  string
	}
	const settled = "settled"
	one, killed, done := End{Code: 1}, End{Code: -1, Signal: "SIGKILL"}, End{}
	lost := "GPU 1 is gone"
	for flags, steps := range map[string][]step{
		"--timeout 1h": {{one, lost, settled}},
		"--retry 2": {
			{one, lost, "elsewhere: the command ended (exit 1), and GPU 1 is gone: starting it again elsewhere, start 2 of 3"},
			{killed, "", "over: the command ended (SIGKILL) and is not started again: nothing says that it was the machine's fault (--retry 2:any does not ask)"},
			{killed, lost, "elsewhere: the command ended (SIGKILL), and GPU 1 is gone: starting it again elsewhere, start 3 of 3"},
			{killed, lost, "over: "},
			{done, "", settled},
		},
		"--retry 2:any": {
			{one, "", "again after 1s: the command ended (exit 1): starting it again in 1.0 s, start 2 of 3"},
			{one, "", "again after 2s: the command ended (exit 1): starting it again in 2.0 s, start 3 of 3"},
			{one, "", "over: "},
		},
		"--drift=sick": {
			{one, "", "over: "},
			{one, lost, "elsewhere: the command ended (exit 1), and GPU 1 is gone: starting it again elsewhere"},
			{one, lost, "over: "},
			{done, lost, settled},
		},
		"--drift=sick --retry 1": {
			{one, lost, "elsewhere: the command ended (exit 1), and GPU 1 is gone: starting it again elsewhere, start 2 of 2"},
			{one, lost, "elsewhere: the command ended (exit 1), and GPU 1 is gone: starting it again elsewhere"},
			{one, lost, "over: "},
		},
		"a service": {{one, lost, settled}},
		"a service with drift: sick": {
			{one, lost, "elsewhere: the command ended (exit 1), and GPU 1 is gone: starting it again elsewhere"},
			{one, lost, "over: "},
		},
		"restart: on-failure:2": {
			{one, "", "again after 1s: the command ended (exit 1): starting it again in 1.0 s"},
			{End{Unfit: "unhealthy: no answer", Ran: 2 * time.Minute}, "", "again after 1s: the command ended (unhealthy: no answer): starting it again in 1.0 s"},
			{one, lost, "elsewhere after 2s: the command ended (exit 1), and GPU 1 is gone: starting it again elsewhere in 2.0 s"},
			{one, "", settled},
		},
		"restart: on-failure:1": {
			{End{Unseen: true}, "", "again after 1s: the command ended (exit status unknown): starting it again in 1.0 s"},
			{End{Unseen: true}, "", settled},
		},
		"restart: always": {
			{done, "", "again after 1s: the command ended (exit 0): starting it again in 1.0 s"},
			{End{Asked: true}, "", settled},
			{End{Code: 124, TimedOut: true}, "", settled},
			{End{Signal: "SIGTERM", By: "SIGTERM"}, "", settled},
		},
	} {
		l := life(flags)
		for i, s := range steps {
			got := settled
			if !l.SettleEnd(s.end) {
				n := l.DecideNext(s.end, s.fault)
				got = map[bool]string{true: "again", false: "over"}[n.Start]
				if n.Start && n.Elsewhere {
					got = "elsewhere"
				}
				if n.Pause > 0 {
					got += " after " + n.Pause.String()
				}
				got += ": " + n.Say
			}
			if got != s.want {
				t.Errorf("%s, end %d:\n%s, want\n%s", flags, i+1, got, s.want)
			}
		}
	}
}
