package experiment

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
)

// noises are kinds of noise of about 30 % around 1.
var noises = map[string]func(*rand.Rand) float64{
	"uniform":   func(r *rand.Rand) float64 { return 1 + 0.3*(2*r.Float64()-1) },
	"normal":    func(r *rand.Rand) float64 { return max(0.1, 1+0.3*r.NormFloat64()) },
	"lognormal": func(r *rand.Rand) float64 { return math.Exp(0.3 * r.NormFloat64()) },
	"skewed":    func(r *rand.Rand) float64 { return 1 + 0.3*r.ExpFloat64() },
	"outliers": func(r *rand.Rand) float64 {
		if r.IntN(10) == 0 {
			return 1.5
		}
		return 1 + 0.02*r.NormFloat64()
	},
}

// standIn is an experiment with two stand-in programs: together A takes slow times as long as alone, and B takes as long.
func standIn(seed uint64, repeat int, slow float64, noise func(*rand.Rand) float64) *Answer {
	r := rand.New(rand.NewPCG(seed, 1))
	e := &Experiment{Arms: []Arm{Alone, Together}, Commands: 2, Planned: repeat}
	var runs []Run
	for _, turn := range PlanTurns(e.Arms, 2, 1, repeat, r.IntN) {
		a, b := 10*noise(r), 8*noise(r)
		if turn.Arm == Together {
			a *= slow
		}
		if turn.Round < 1 {
			a, b = 100*a, 100*b // what is cold does not count
		}
		runs = append(runs, Run{Arm: turn.Arm, Round: turn.Round, Seconds: a + b, Commands: []Outcome{{Command: "A", Seconds: a}, {Command: "B", Seconds: b}}})
	}
	return Conclude(e, runs)
}

// TestStandIns: of 100 experiments with 30 % of noise, the intervals of at least 95 hold the true ratio, and at least 95
// say where there is no difference that none could be shown.
func TestStandIns(t *testing.T) {
	const seeds, slow = 100, 1.8
	for name, noise := range noises {
		for _, repeat := range []int{5, 7, 10} {
			held, silent, found := 0, 0, 0
			for seed := range uint64(seeds) {
				a := standIn(seed, repeat, slow, noise)
				if r := a.findQuantity(Together, "A", timeName).Ratio; r.Low <= slow && slow <= r.High {
					held++
				}
				if strings.Contains(a.Conclusion[0], "for B no difference could be shown") {
					silent++
				}
				if strings.Contains(a.Conclusion[0], "slower than alone for A") {
					found++
				}
			}
			if held < 95 || silent < 95 {
				t.Errorf("%s noise, %d runs: %d of %d intervals hold %.1f, and %d see no difference where there is none", name, repeat, held, seeds, slow, silent)
			}
			if repeat == 10 && found < 85 {
				t.Errorf("%s noise, %d runs: only %d of %d find that it is slower", name, repeat, found, seeds)
			}
		}
	}
	if got := standIn(1, 5, slow, func(*rand.Rand) float64 { return 1 }).Conclusion[0]; got != "together is 1.80 times (1.73 to 1.88) slower than alone for A; for B no difference could be shown (0.94 to 1.07)" {
		t.Errorf("without noise: %s", got)
	}
}

// TestCoverage: over thousands of experiments the intervals hold the true ratio as often as they say, and are not so wide
// that this is no wonder.
func TestCoverage(t *testing.T) {
	const experiments = 4000
	steady := func(r *rand.Rand) float64 { return math.Exp(0.02 * r.NormFloat64()) }
	for name, noise := range noises {
		other := noise
		if name == "lognormal" { // of which one arm may have less
			other = steady
		}
		for _, n := range []int{3, 5, 6, 7, 8, 9, 10, 20} {
			r, held, width := rand.New(rand.NewPCG(7, uint64(n))), 0, 0.0
			for range experiments {
				a, b := make([]float64, n), make([]float64, n)
				for i := range n {
					a[i], b[i] = other(r), 1.8*noise(r)
				}
				got := ratioOf(b, a)
				if width += math.Log(got.High/got.Low) / experiments; got.Low <= 1.8 && 1.8 <= got.High {
					held++
				}
			}
			if part := float64(held) / experiments; part < 0.945 {
				t.Errorf("%s noise, %d runs: %.3f of the intervals hold the ratio", name, n, part)
			}
			if n == 5 && width > 1.4 {
				t.Errorf("%s noise: the intervals of %d runs span a factor of %.2f", name, n, math.Exp(width))
			}
		}
	}
}

func TestStudent(t *testing.T) {
	for freedom, want := range map[int]float64{1: 12.7062, 4: 2.7764, 10: 2.2281, 11: 2.2010, 15: 2.1314, 30: 2.0423, 1000: 1.9623} { // tables of the distribution
		if got := student95(freedom); math.Abs(got-want) > 0.0002 {
			t.Errorf("%d degrees of freedom: %.4f, want %.4f", freedom, got, want)
		}
	}
}

// TestRatio: what cannot be compared has no ratio.
func TestRatio(t *testing.T) {
	for _, pair := range [][2][]float64{{{1e-30, 1e30}, {1, 1}}, {{1, 1}, {1e-30, 1e30}}, {{1}, {1, 2}}, {{1, 2}, {1}}, {{0, 1}, {1, 2}}, {{1, 2}, {-1, 2}}, {nil, nil}} {
		if got := ratioOf(pair[0], pair[1]); got != nil {
			t.Errorf("%v against %v: %v", pair[0], pair[1], got)
		}
	}
	for _, c := range []struct {
		values, base []float64
		want         string
	}{ // numbers that are rounded alike have at least the spread of the rounding
		{[]float64{11, 11}, []float64{10, 10}, "no 1.10 times (0.77 to 1.56)"},
		{[]float64{11, 11, 11, 11, 11}, []float64{10, 10, 10, 10, 10}, "yes 1.10 times (1.05 to 1.15)"},
		{[]float64{11.01, 11.01}, []float64{10, 10}, "yes 1.10 times (1.10 to 1.10)"},
		{[]float64{1004, 1004, 1004}, []float64{1000, 1000, 1000}, "yes 1.004 times (1.003 to 1.005)"},
		{[]float64{1.00001234, 1.00001235}, []float64{1, 1}, "no 1.0000 times (1.0000 to 1.0000)"},
		{[]float64{0.004, 0.0041, 0.0039}, []float64{1.01, 1, 1.02}, "yes 0.0040 times (0.0037 to 0.0042)"},
	} {
		r := ratioOf(c.values, c.base)
		if got := map[bool]string{true: "yes ", false: "no "}[r.ShowsDifference()] + r.Words(); got != c.want {
			t.Errorf("%v against %v: %s, want %s", c.values, c.base, got, c.want)
		}
	}
}

// TestTurns: every arm once in each round, in orders that differ, and the same for the same seed.
func TestTurns(t *testing.T) {
	arms := []Arm{Alone, Together, Apart}
	plan := func(seed uint64) []Turn { return PlanTurns(arms, 2, 1, 6, rand.New(rand.NewPCG(seed, 0)).IntN) }
	turns := plan(1)
	orders, places := map[string]bool{}, map[string]bool{}
	for i := 0; i < len(turns); i += len(arms) {
		var order []Arm
		for _, turn := range turns[i : i+len(arms)] {
			if turn.Round != i/len(arms) {
				t.Errorf("turn %d is in round %d", i, turn.Round)
			}
			order = append(order, turn.Arm)
			places[fmt.Sprint(turn.Places)] = true
		}
		orders[fmt.Sprint(order)] = true
		if slices.Sort(order); !slices.Equal(order, []Arm{Alone, Apart, Together}) {
			t.Errorf("a round has %v", order)
		}
	}
	if len(turns) != 21 || len(orders) < 3 || len(places) != 2 {
		t.Errorf("%d turns, orders %v, places %v", len(turns), orders, places)
	}
	if fmt.Sprint(plan(1)) != fmt.Sprint(turns) || fmt.Sprint(plan(2)) == fmt.Sprint(turns) {
		t.Error("the seed does not decide about the order")
	}
}

func TestParseArms(t *testing.T) {
	got, err := ParseArms([]string{"alone", "together:mps", "mig:1g.10gb"})
	if err != nil || fmt.Sprint(got) != "[alone together:mps mig:1g.10gb]" || got[2].Kind() != MIG || got[2].Profile() != "1g.10gb" || got[1].Kind() != MPS || got[1].Profile() != "" {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range [][]string{{"alone"}, {}, {"alone", "alone"}, {"alone", "mixed"}, {"alone", "together:"}, {"alone", "mig:"}} {
		if got, err := ParseArms(bad); err == nil || !strings.HasPrefix(err.Error(), "cannot compare ") {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
}

func TestMetric(t *testing.T) {
	for _, c := range []struct{ spec, output, want string }{
		{"v=([0-9.]+) img/s", "10 img/s\n20.5 img/s\n", "20.5"},
		{"v=rate: ([0-9,.]+)", "rate: 1,234.5", "1234.5"},
		{"v=rate: (.+)", "rate: 7\nrate: fast", ""}, // an older number does not stand for it,
		{"v=rate: (.+)", "rate: NaN", ""},
		{"v=json:rate", "{\"rate\": 1}\nnoise\n{\"rate\": 2.5}\n{\"loss\": 3}\n{\"rate\": tru", "2.5"},
		{"v=json:a.b", `{"a": {"b": "12"}}`, "12"},
		{"v=json:a.b", `{"a": 3}`, ""},
		{"v=json:a", "", ""},
		{"v=json:ips", "{\"ips\":1,\"loss\":2}\n{\"ips\":9,\"loss\":NaN,\"low\":-Infinity,\"text\":\"a \\\"NaN\"}", "9"},
		{"v=json:text", `{"x":NaN,"text":"NaN 1"}`, ""},
		{"v=json:loss", "{\"loss\":1}\n{\"loss\":NaN}", ""},
		{"v=json:loss", "{\"loss\":1}\n{\"loss\":null}", "1"},
		{"v=json:a.b", `{"a.b": 5, "a": {"b": 6}}`, "5"},
		{"v=json:a.b.c", `{"a": {"b.c": 7}}`, "7"},
		{"v=^ips ([0-9]+)$", "begin\nips 1\nips 2\nend\n", "2"},
		{"v=([0-9.,]+) ms", "1,5 ms", ""},
		{"v=([0-9.,]+) ms", "0,123 ms", ""},
		{"v=([0-9.,]+) ms", "1,234,567.5 ms", "1.2345675e+06"},
		{"v=([0-9.,]+)", "ips 12, loss", "12"},
	} {
		m, err := ParseMetric(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		var o Outcome
		if o.ReadMetrics([]Metric{m}, []byte(c.output)); len(o.Metrics) > 0 {
			got = fmt.Sprint(o.Metrics[0].Value)
		}
		if got != c.want {
			t.Errorf("%s in %q: %q, want %q", c.spec, c.output, got, c.want)
		}
	}
	for _, bad := range []string{"", "v", "v=", "=x", "v=json:", "v=(", "v=[0-9]+", "seconds=(x)"} {
		if _, err := ParseMetric(bad); err == nil || !strings.HasPrefix(err.Error(), "cannot ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// load is an experiment with a server under load: throughput and latency change by these factors in the second arm.
func load(throughput, latency float64, metrics ...string) *Answer {
	e := &Experiment{Arms: []Arm{Together, Apart}, Commands: 1, Planned: 6}
	for _, text := range metrics {
		m, _ := ParseMetric(text + "=(x)")
		e.Metrics = append(e.Metrics, m)
	}
	r := rand.New(rand.NewPCG(3, 3))
	var runs []Run
	for _, turn := range PlanTurns(e.Arms, 1, 0, e.Planned, r.IntN) {
		noise := 1 + 0.1*r.Float64() // of both: a slower run has the lower throughput
		x, y := 100/noise, 0.01*noise
		if turn.Arm == Apart {
			x, y = x*throughput, y*latency
		}
		runs = append(runs, Run{Arm: turn.Arm, Round: turn.Round, Seconds: 1, Commands: []Outcome{{Command: "A", Seconds: 1, Metrics: []Value{{metrics[0], x}, {metrics[1], y}}}}})
	}
	return Conclude(e, runs)
}

// TestLittle: with a fixed number of clients 2.3 times the throughput means a latency of 1/2.3, and not 41 % less.
func TestLittle(t *testing.T) {
	a := load(2.3, 0.59, "images/s", "latency_ms")
	if len(a.Warnings) != 1 || !strings.HasPrefix(a.Warnings[0], "images/s and latency_ms of A contradict each other: in apart images/s is 2.28") || !strings.Contains(a.Warnings[0], "became 1.36 times") {
		t.Errorf("%q", a.Warnings)
	}
	for _, c := range []struct {
		throughput, latency float64
		names               [2]string
	}{{2.3, 1 / 2.3, [2]string{"images/s", "latency"}}, {1.05, 1, [2]string{"rps", "p50"}}, {2.3, 0.59, [2]string{"images/s", "p99_latency"}}, {2.3, 0.59, [2]string{"loss", "latency"}},
		{2.3, 0.59, [2]string{"ms/step", "latency"}}, {2.3, 0.59, [2]string{"s/it", "latency"}}, {2.3, 0.59, [2]string{"https_errors", "latency"}}} {
		if a := load(c.throughput, c.latency, c.names[:]...); len(a.Warnings) != 0 {
			t.Errorf("%v: %q", c, a.Warnings)
		}
	}
	if got := a.Conclusion[1]; !strings.HasPrefix(got, "images/s of A in apart is 2.28 times") || !strings.HasSuffix(got, ") that in together") {
		t.Errorf("%q", got)
	}
}

// TestFailed: a run whose command failed is not part of the result, and is counted.
func TestFailed(t *testing.T) {
	e := &Experiment{Arms: []Arm{Alone, Together}, Commands: 2, Planned: 3}
	var runs []Run
	for round := range 4 {
		ok := []Outcome{{Command: "A", Seconds: 1 + float64(round)/100}, {Command: "B", Seconds: 2}}
		runs = append(runs, Run{Arm: Alone, Round: round, Seconds: 3, Commands: ok})
		bad := Run{Arm: Together, Round: round, Seconds: 0.1, Problem: "A ended with exit code 1", Commands: []Outcome{{Command: "A"}, {Command: "B"}}}
		if round == 1 {
			bad = Run{Arm: Together, Round: round, Seconds: 3, Commands: ok}
		}
		runs = append(runs, bad)
	}
	a := Conclude(e, runs)
	if len(a.Conclusion) != 1 || a.Conclusion[0] != "nothing can be said about together against alone: 1 of 3 runs counted in together, and two are needed" {
		t.Errorf("%q", a.Conclusion)
	}
	if len(a.Warnings) != 2 || a.Warnings[1] != "the warm-up of together failed: A ended with exit code 1" || a.Warnings[0] != "2 of 3 runs of together do not count: A ended with exit code 1" || a.Arms[1].Counted != 1 || a.Arms[1].Failed != 2 {
		t.Errorf("%q, %+v", a.Warnings, a.Arms)
	}
	if q := a.findQuantity(Together, "A", timeName); q.Runs != 1 || q.Ratio != nil {
		t.Errorf("%+v", q)
	}
	if got := Conclude(e, nil); len(got.Quantities) != 0 || len(got.Conclusion) != 1 {
		t.Errorf("without runs: %+v", got)
	}
}

// TestWarnings: commands that were not together all the time, and clocks that were lowered.
func TestWarnings(t *testing.T) {
	e := &Experiment{Arms: []Arm{Alone, Together}, Commands: 2, Planned: 2}
	var runs []Run
	for round := range 2 {
		for _, arm := range e.Arms {
			run := Run{Arm: arm, Round: round + 1, Seconds: 3, Commands: []Outcome{{Command: "A", Seconds: 1}, {Command: "B", Seconds: 2}}}
			if arm == Together {
				run.Commands[0].Company, run.Commands[1].Company, run.Use.Throttled = new(1.0), new(0.5), new(0.3)
			}
			runs = append(runs, run)
		}
	}
	got := strings.Join(Conclude(e, runs).Warnings, "\n")
	for _, want := range []string{"in together, B ran 50 % of its time without all the others", "in together the GPU's clocks were lowered for 30 % of the time"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
}

// TestMeter: readings stand for the time before them; what one of them lacked is absent, and not zero.
func TestMeter(t *testing.T) {
	device := func(load, power float64, clock int, used gpu.Bytes, events ...string) gpu.Device {
		return gpu.Device{Utilization: &load, Power: &power, ClockSM: &clock, MemoryUsed: &used, ClockEvents: append([]string{}, events...)}
	}
	var m Meter
	m.Add(2*time.Second, []gpu.Device{device(0.5, 100, 1000, gpu.GiB), device(0.7, 300, 2000, 3*gpu.GiB)})
	m.Add(time.Second, []gpu.Device{device(0.1, 50, 1000, gpu.GiB, "gpu_idle"), device(0.3, 70, 1000, gpu.GiB, "hw_thermal_slowdown")})
	m.Rest(time.Second)
	u := m.Use()
	if *u.Energy != 2*400+2*120 || *u.Power != 260 || math.Abs(*u.Load-0.4) > 1e-9 || *u.Clock != 1250 || *u.Throttled != 0.5 || *u.Memory != 3*gpu.GiB {
		t.Errorf("%v %v %v %v %v %v", *u.Energy, *u.Power, *u.Load, *u.Clock, *u.Throttled, *u.Memory)
	}
	blind := device(0.5, 0, 1000, 0)
	blind.Power, blind.MemoryUsed, blind.ClockEvents = nil, nil, nil
	m.Add(time.Second, []gpu.Device{blind})
	if u = m.Use(); u.Energy != nil || u.Power != nil || u.Throttled != nil || u.Load == nil || *u.Memory != 3*gpu.GiB {
		t.Errorf("%+v", u)
	}
	m.Rest(time.Second)
	if m.Rest(time.Second); m.Use().Load != nil { // a step of which nothing was read
		t.Errorf("%+v", m.Use())
	}
	if u = (&Meter{}).Use(); u != (Use{}) {
		t.Errorf("nothing was read: %+v", u)
	}
}

// TestLeft: the expected time follows the arms, which take differently long.
func TestLeft(t *testing.T) {
	turns := []Turn{{Arm: Alone}, {Arm: Together}, {Arm: Alone}, {Arm: Together}, {Arm: Apart}}
	if SecondsLeft(turns, nil) != nil {
		t.Error("nothing is known yet")
	}
	if got := *SecondsLeft(turns, []Run{{Arm: Alone, Seconds: 10}, {Arm: Together, Seconds: 20}}); got != 10+20+15 {
		t.Errorf("%v", got)
	}
}
