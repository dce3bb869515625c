package batchcmd

import (
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/job"
	"gpuard/internal/core/status"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/translate"
	"gpuard/test/golden"
)

// TestQueueView: queue and history have the columns of ps, and no line is wider than the terminal.
func TestQueueView(t *testing.T) {
	began := golden.Now.Add(-time.Hour)
	jobs := []userqueue.Entry{
		{Number: 9, State: userqueue.Running, Submitted: golden.Now.Add(-2 * time.Hour), Started: &began, PID: 4242, Name: "python", Command: []string{"python", "train.py", "--epochs", "300"}},
		{Number: 10, State: userqueue.Waiting, Submitted: golden.Now.Add(-time.Minute), Asks: "2 GPUs", Name: "bert", Spec: job.Spec{Name: "bert"}, Note: "paper", Why: "none of 4 is free"},
		{Number: 11, State: userqueue.Held, Submitted: golden.Now, Asks: "1 GPU", Name: "true"},
		{Number: 112, State: userqueue.After, Submitted: golden.Now, Asks: "1 GPU", Name: "eval", Awaits: []int{9, 10}},
	}
	jobs[0].Devices = []batchlog.Device{{Index: 0}, {Index: 3}}
	noon, yesterday := golden.Now.Add(-3*time.Hour), golden.Now.Add(-20*time.Hour)
	ended := []userqueue.Entry{
		{Number: 2, State: userqueue.Done, Seconds: 60, Ended: &yesterday, Starts: 3, Name: "bert", Devices: jobs[0].Devices},
		{Number: 3, State: userqueue.Done, Seconds: 3723, Ended: &noon, Starts: 1, Name: "python", Devices: jobs[0].Devices},
		{Number: 4, State: userqueue.Refused, Name: "nothing", Why: "cannot make the log"},
	}
	others := make([]status.Waiting, 3)
	for i, why := range []string{"0 of 4 that it can use are free; GPU 0: leased as k3f9 by bob", "0 of 4 that it can use are free; GPU 0: leased as k3f9 by bob", "a rule allows its user 2 at the same time"} {
		others[i] = status.Waiting{Place: i + 1, User: "ann", Command: "eval.py", PID: 70 + i, Count: 1, Why: why}
	}
	soon := golden.Now.Add(5 * time.Minute)
	jobs[1].Expected = &soon
	for name, term := range map[string]console.Term{"queue-40": {Width: 40}, "queue-60": {Width: 60}, "queue-80": {Width: 80}, "queue-zh-80": {Width: 80, Language: translate.ReadLocale("zh_CN")}} {
		var b strings.Builder
		width := term.Width
		term.UTF8 = true
		console.Draw(&b, term, func(v *console.Page) {
			queueView(v, &QueueAnswer{Kept: true, Jobs: jobs, Others: others}, 0, golden.Now)
		})
		console.Draw(&b, term, func(page *console.Page) { historyView(page, ended, golden.Now) })
		for line := range strings.Lines(b.String()) {
			if n := console.CellWidth(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("at %d columns there is a line of %d: %s", width, n, line)
			}
		}
		golden.Compare(t, name, b.String())
	}
}
