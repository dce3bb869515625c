package experiment

import (
	"slices"
	"strings"
	"testing"
)

// printing is an experiment of one command whose runs print these texts, in the two arms in turn.
func printing(t *testing.T, specs []string, outputs ...string) *Answer {
	t.Helper()
	e := &Experiment{Arms: []Arm{Alone, Together}, Commands: 1, Planned: len(outputs) / 2}
	for _, spec := range specs {
		m, err := ParseMetric(spec)
		if err != nil {
			t.Fatal(err)
		}
		e.Metrics = append(e.Metrics, m)
	}
	var runs []Run
	for i, text := range outputs {
		one := Outcome{Command: "A", Seconds: 1}
		one.ReadMetrics(e.Metrics, []byte(text))
		runs = append(runs, Run{Arm: e.Arms[i%2], Round: 1 + i/2, Seconds: 1, Commands: []Outcome{one}})
	}
	return Conclude(e, runs)
}

// TestMissing: a metric that has no ratio, or fewer numbers than runs, does not vanish without a word.
func TestMissing(t *testing.T) {
	for _, c := range []struct {
		outputs []string
		want    []string
	}{
		{[]string{"ips 1", "ips 2", "ips 1", "", "ips 1", ""}, []string{"ips was printed in 1 of 3 runs of A, together"}},
		{[]string{"ips 1", "ips 0", "ips 1", "ips 0"}, []string{"ips of A is not always above 0 in together, so it has no ratio"}},
		{[]string{"ips 0", "ips 1", "ips 0", "ips 1"}, []string{"ips of A is not always above 0 in alone, so it has no ratio"}},
		{[]string{"ips 1e-30", "ips 1", "ips 1e30", "ips 1"}, []string{"ips of A varies too much in together or alone to have a ratio"}},
		{[]string{"ips 1", "ips 1,5", "ips 1", "ips 2"}, []string{`ips could not be read in 1 of 2 runs of A, together: "1,5" is not a number`}},
		{[]string{"ips x", "ips x"}, []string{`ips could not be read in 1 of 1 runs of A, alone: "x" is not a number`, `ips could not be read in 1 of 1 runs of A, together: "x" is not a number`}},
		{[]string{"", ""}, []string{"no command printed ips: try the pattern on the output of one run"}},
		{[]string{"ips 1", "ips 1", "ips 1", "ips 1"}, nil},
	} {
		if got := printing(t, []string{"ips=ips (.+)"}, c.outputs...).Warnings; !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.outputs, got, c.want)
		}
	}
}

// TestLittleZero: a run that prints a throughput of 0 and no latency has no part in the product, and the throughput no ratio.
func TestLittleZero(t *testing.T) {
	one, two, none := `{"rps":10,"p50":1.01}`, `{"rps":20,"p50":1.02}`, `{"rps":0}`
	got := printing(t, []string{"rps=json:rps", "p50=json:p50"}, one, two, one, two, one, two, none, none).Warnings
	if !slices.Contains(got, "rps of A is not always above 0 in alone, so it has no ratio") || !slices.Contains(got, "p50 was printed in 3 of 4 runs of A, together") {
		t.Errorf("%q", got)
	}
}

// TestClauses: each clause says what is faster than what.
func TestClauses(t *testing.T) {
	e := &Experiment{Arms: []Arm{Together, Apart}, Commands: 3, Planned: 3}
	var runs []Run
	for i := range 6 {
		noise := 1 + 0.001*float64(i)
		run := Run{Arm: e.Arms[i%2], Round: 1 + i/2, Seconds: noise, Commands: []Outcome{{Seconds: noise}, {Seconds: noise}, {Seconds: noise}}}
		if run.Arm == Apart {
			run.Commands[1].Seconds /= 2
			run.Commands[2].Seconds /= 4
		}
		runs = append(runs, run)
	}
	got := Conclude(e, runs).Conclusion[0]
	if !strings.HasPrefix(got, "between apart and together no difference could be shown for A (") || !strings.Contains(got, "; apart is 2.00 times (") || !strings.Contains(got, ") faster than together for B; 4.00 times (") || !strings.HasSuffix(got, ") faster for C") {
		t.Error(got)
	}
}

// TestOneRun: one run of each is not enough, and more help.
func TestOneRun(t *testing.T) {
	if got := printing(t, nil, "", "").Conclusion[0]; got != "nothing can be said about together against alone: 1 of 1 runs counted in together, and two are needed: raise --repeat" {
		t.Error(got)
	}
}

// TestWarmupFails: that only the warm-up failed is said too.
func TestWarmupFails(t *testing.T) {
	e := &Experiment{Arms: []Arm{Alone, Together}, Commands: 1, Planned: 1}
	one := []Outcome{{Seconds: 1}}
	runs := []Run{{Arm: Alone, Problem: "A ended with exit code 3", Commands: one}, {Arm: Together, Commands: one}, {Arm: Alone, Round: 1, Commands: one}, {Arm: Together, Round: 1, Commands: one}}
	if got := Conclude(e, runs).Warnings; !slices.Equal(got, []string{"the warm-up of alone failed: A ended with exit code 3"}) {
		t.Errorf("%q", got)
	}
}
