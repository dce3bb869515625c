package pick

import (
	"math/rand/v2"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/gate"
)

// TestDiscreet: whatever a refusal says, its discreet form has no argument of anybody's command line.
func TestDiscreet(t *testing.T) {
	t.Parallel()
	const secret = "swordfish"
	line := "/usr/bin/python train.py --token=" + secret
	r := rand.New(rand.NewPCG(11, 11))
	quoted, told := 0, 0
	for range gate.SoakCount(50000, 3000) {
		data := make([]byte, 200)
		for i := range data {
			data[i] = byte(r.UintN(256))
		}
		p := puzzleOf(data)
		for i := range p.machine.Processes {
			p.machine.Processes[i].Command = line
		}
		for i := range p.held {
			p.held[i].HeldBy = []job.Blocker{{PID: 77, User: "bob", Command: line}}
			p.held[i].Ended = r.UintN(2) == 0
		}
		_, refusal := Place(p.spec, p.machine, p.held, p.in)
		if refusal == nil {
			continue
		}
		quoted += boolToInt(strings.Contains(asJSON(t, job.Plan{}, refusal), secret))
		text := asJSON(t, job.Plan{}, refusal.PublicView())
		told += boolToInt(strings.Contains(text, "of bob (python"))
		if strings.Contains(text, secret) {
			t.Fatalf("%s\nof %x", text, data)
		}
	}
	if quoted < 300 || told < 300 {
		t.Errorf("only %d refusals quote a command line, and %d discreet ones name its program", quoted, told)
	}
}

// TestDiscreetTexts: what is left says who is in the way all the same.
func TestDiscreetTexts(t *testing.T) {
	of := func(bs ...job.Blocker) *job.Refusal {
		r := job.Reason{Verdict: job.Busy, Text: "in use by python --token=swordfish", Remedy: "end it", Processes: bs}
		return (&job.Refusal{Summary: "cannot give GPU 0: " + r.Text, Remedy: "end it", Reasons: []job.Reason{r}}).PublicView()
	}
	for want, bs := range map[string][]job.Blocker{
		"PID 7 of bob (python, 20 GiB)": {{PID: 7, User: "bob", Memory: new(20 * gpu.GiB), Command: "/opt/my/python --token=swordfish"}},
		"PID 7 (python)":                {{PID: 7, Command: "python"}},
		"PID 7 and a process outside of this PID namespace (1 GiB)": {{PID: 7}, {Memory: new(gpu.GiB)}},
		"PID 1, PID 2, PID 3 and 2 more":                            {{PID: 1}, {PID: 2}, {PID: 3}, {PID: 4}, {PID: 5}},
	} {
		if got := of(bs...); got.Summary != "cannot give GPU 0: in use by "+want || got.Reasons[0].Text != "in use by "+want || got.Remedy+got.Reasons[0].Remedy != "" {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	plain := &job.Refusal{Summary: "cannot give GPU 0: leased", Remedy: "wait", Reasons: []job.Reason{{Verdict: job.Busy, Text: "leased", Remedy: "wait"}}}
	if got := plain.PublicView(); got.Summary != plain.Summary || got.Remedy != "wait" || got.Reasons[0].Remedy != "wait" {
		t.Errorf("%+v", got)
	}
}
