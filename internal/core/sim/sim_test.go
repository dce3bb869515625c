package sim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/gate"
)

// TestMain: what these tests make is small and soon over, and to collect it took a third of their time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}

func invent(t testing.TB, words string) gpu.Machine {
	t.Helper()
	m, err := gpu.InventMachine(words)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func named(name string) Policy {
	i := slices.IndexFunc(Policies(), func(p Policy) bool { return p.Name == name })
	return Policies()[i]
}

// some are random jobs of several users, a part of them with shares.
func some(seed uint64, n int, users uint32, shares bool) []Job {
	r := rand.New(rand.NewPCG(seed, 3))
	var jobs []Job
	at := int64(1_700_000_000e9)
	for range n {
		j := Job{Arrival: at, Lasts: time.Duration(r.Float64() * r.Float64() * float64(5*time.Hour)), GPUs: int16([]int{1, 1, 1, 1, 2, 2, 4, 8, 9}[r.IntN(9)]), User: r.Uint32N(users)} //nolint:gosec // small
		if r.IntN(2) == 0 {
			j.Estimate = j.Lasts + time.Duration(r.Float64()*float64(time.Hour)) + 1
		}
		if shares && r.IntN(3) > 0 {
			j.GPUs, j.Share = 1, int16(1+r.IntN(900)) //nolint:gosec // small
		}
		jobs = append(jobs, j)
		at += int64(r.Float64() * float64(40*time.Minute))
	}
	return jobs
}

// TestInvariants: under every policy no device is given twice, nothing starts before it comes, everything ends, and the
// rooms that the own rule sees are those that pick sees.
func TestInvariants(t *testing.T) {
	t.Parallel()
	for seed, words := range []string{"demo:8xA100-80GB", "demo:8xL4", "demo:4xA100-80GB+4xA100-40GB"} {
		m := invent(t, words)
		for _, shares := range []bool{false, true} {
			jobs := some(uint64(seed), gate.SoakCount(400, 150), 3, shares)
			for _, p := range Policies() {
				r := newReplay(jobs, Setup{Machine: m, Policy: p})
				for at, more := r.nextEvent(); more; at, more = r.nextEvent() {
					if at < r.now {
						t.Fatal("time goes back")
					}
					if err := r.playEvent(at); err != nil {
						t.Fatal(p.Name, err)
					}
					check(t, r)
				}
				if len(r.waits)+r.tooLarge != len(jobs) || r.line.waitingCount() > 0 || len(r.held) > 0 {
					t.Errorf("%s: %d of %d jobs have run, %d are too large", p.Name, len(r.waits), len(jobs), r.tooLarge)
				}
			}
		}
	}
}

func check(t *testing.T, r *replay) {
	t.Helper()
	on := map[gpu.UUID]gpu.Bytes{}
	for _, l := range r.held {
		for _, id := range l.Devices {
			share := l.Share
			if d := r.devices[r.places[id]]; share == 0 {
				share = d.can
			}
			on[id] += share
		}
	}
	for id, sum := range on {
		if sum > r.devices[r.places[id]].can {
			t.Fatalf("%s of %s are given", sum, id)
		}
	}
	if slices.Min(append(r.waits, 0)) < 0 {
		t.Fatal("a job starts before it comes")
	}
	own, ok := r.line.(*ownLine)
	if !ok || r.events%7 > 0 {
		return
	}
	own.updateRooms()
	for id, want := range pick.RoomByDevice(r.Machine, r.held, pick.Context{Tolerate: pick.DefaultTolerance()}) {
		got := own.rooms[id]
		if got.Whole != want.Whole || (got.Share == nil) != (want.Share == nil) || got.Share != nil && *got.Share != *want.Share {
			t.Fatalf("%s: %+v, pick says %+v", id, got, want)
		}
	}
}

// TestOrders: what each policy is for, in the smallest case. One GPU is busy for 10 hours. Then come, a minute apart, a
// job for both GPUs for an hour, one GPU for 20 hours, one for 2 hours, and one for an hour.
func TestOrders(t *testing.T) {
	const minute, hour = time.Minute, time.Hour
	jobs := []Job{
		{Lasts: 10 * hour, GPUs: 1}, {Arrival: int64(minute), Lasts: hour, GPUs: 2}, {Arrival: int64(2 * minute), Lasts: 20 * hour, GPUs: 1},
		{Arrival: int64(3 * minute), Lasts: 2 * hour, GPUs: 1}, {Arrival: int64(4 * minute), Lasts: hour, GPUs: 1}}
	for i := range jobs {
		jobs[i].Arrival += 1_700_000_000e9
	}
	if err := SetEstimates(jobs, GuessExact, nil); err != nil {
		t.Fatal(err)
	}
	for policy, want := range map[string][]time.Duration{ // when each starts
		"fifo":  {0, 10 * hour, 11 * hour, 11 * hour, 13 * hour},
		"skip":  {0, 22*hour + 0*minute, 2 * minute, 10 * hour, 12 * hour},
		"easy":  {0, 10 * hour, 11 * hour, 3 * minute, 2*hour + 3*minute},
		"short": {0, 22 * hour, 2 * minute, 11 * hour, 10 * hour},
		"own":   {0, 10 * hour, 11 * hour, 3 * minute, 2*hour + 3*minute},
	} {
		r := newReplay(jobs, Setup{Machine: invent(t, "demo:2xA100-80GB"), Policy: named(policy)})
		got := make([]time.Duration, len(jobs))
		for at, more := r.nextEvent(); more; at, more = r.nextEvent() {
			if err := r.playEvent(at); err != nil {
				t.Fatal(err)
			}
			for _, one := range r.running {
				got[one.job] = time.Duration(one.started - r.begin)
			}
		}
		if policy == "skip" || policy == "short" {
			want[1] = got[1] // last, whenever that is
			if got[1] < 20*hour {
				t.Errorf("%s: %v", policy, got)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", policy, got, want)
		}
	}
}

func TestResult(t *testing.T) {
	m := invent(t, "demo:2xA100-80GB")
	empty, err := Replay(nil, Setup{Machine: m, Policy: named("own")}, nil)
	if err != nil || empty.CompletionMean != nil || empty.Allocated != nil || empty.WaitLarge != nil || empty.Users == nil {
		t.Errorf("%+v, %v", empty, err)
	}
	jobs := []Job{{Arrival: 1e9, Lasts: 100 * time.Second, GPUs: 2}, {Arrival: 1e9, Lasts: 100 * time.Second, GPUs: 1, User: 1}, {Arrival: 1e9, Lasts: 1, GPUs: 3}}
	got, err := Replay(jobs, Setup{Machine: m, Policy: named("fifo")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Result{Policy: "fifo", GPUs: 2, Jobs: 2, TooLarge: 1, CompletionMean: new(150.0), CompletionMedian: new(200.0), WaitMean: new(50.0), WaitP99: new(100.0), WaitMax: new(100.0),
		Slowdown: new(1.5), Allocated: new(0.75), Fragmented: new(0.0), Span: 200,
		Users: []User{{Jobs: 1, Completion: 100, GPUSeconds: 200}, {User: 1, Jobs: 1, Wait: 100, Completion: 200, GPUSeconds: 100}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	stopped := 0
	if _, err := Replay(some(1, 400, 1, false), Setup{Machine: m, Policy: named("own")}, func(int) bool { stopped++; return false }); !errors.Is(err, ErrStopped) || stopped != 1 {
		t.Error(err, stopped)
	}
}

// TestUnequalGPUs: whole jobs are never given what is far smaller than the others, and shares are; the policies agree with
// package pick, which would refuse a start.
func TestUnequalGPUs(t *testing.T) {
	m := invent(t, "demo:2xA100-80GB+2xL4")
	for _, p := range Policies() {
		whole := []Job{{Arrival: 1e9, Lasts: time.Hour, GPUs: 1}, {Arrival: 1e9, Lasts: time.Hour, GPUs: 1}, {Arrival: 1e9, Lasts: time.Hour, GPUs: 2}, {Arrival: 1e9, Lasts: 1, GPUs: 3}}
		got, err := Replay(whole, Setup{Machine: m, Policy: p}, nil)
		if err != nil || got.TooLarge != 1 || got.Span != 7200 {
			t.Errorf("%s: %+v, %v", p.Name, got, err)
		}
		var shares []Job
		for i := range int64(12) {
			shares = append(shares, Job{Arrival: 1e9 + i, Lasts: time.Hour, GPUs: 1, Share: 200})
		}
		if got, err := Replay(shares, Setup{Machine: m, Policy: p}, nil); err != nil || got.Span >= 7200 {
			t.Errorf("%s: 10 shares on the A100 and 2 on the L4 at a time: %+v, %v", p.Name, got, err)
		}
	}
}

// TestFairness: a user with one job among many of another one waits little, under the own rule.
func TestFairness(t *testing.T) {
	var jobs []Job
	for i := range 500 {
		jobs = append(jobs, Job{Arrival: 1_700_000_000e9 + int64(i), Lasts: time.Hour, GPUs: 1})
	}
	jobs = append(jobs, Job{Arrival: 1_700_000_060e9, Lasts: time.Hour, GPUs: 1, User: 1})
	r, err := Replay(jobs, Setup{Machine: invent(t, "demo:4xA100-80GB"), Policy: named("own")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if wait := r.Users[1].Wait; wait > 3600 {
		t.Errorf("the other one waits %.0f s", wait)
	}
}

func TestEstimate(t *testing.T) {
	jobs := []Job{{Lasts: 10 * time.Hour, Estimate: 1}, {Lasts: 100 * 24 * time.Hour}, {Lasts: time.Second}}
	for _, c := range []struct {
		guess Guess
		want  []time.Duration
	}{
		{GuessGiven, []time.Duration{1, 0, 0}},
		{GuessRough, []time.Duration{3 * 24 * time.Hour, 60 * 24 * time.Hour, time.Hour}},
		{GuessExact, []time.Duration{10 * time.Hour, 100 * 24 * time.Hour, time.Second}},
		{GuessNone, []time.Duration{0, 0, 0}},
	} {
		if err := SetEstimates(jobs, c.guess, func() float64 { return 0.6 }); err != nil {
			t.Fatal(err)
		}
		for i, want := range c.want {
			if jobs[i].Estimate != want {
				t.Errorf("%s: job %d has %s, want %s", c.guess, i, jobs[i].Estimate, want)
			}
		}
	}
	if SetEstimates(jobs, "wild", nil) == nil {
		t.Error("a guess that is none has no error")
	}
}

// BenchmarkDecision is one decision of the own rule, and what follows of it, by how many wait: with the walltimes that
// users ask for, and where each asks for another one. The exponent is that from 100 waiting on.
func BenchmarkDecision(b *testing.B) {
	for _, c := range []struct {
		name  string
		kinds int
	}{{"usual-times", 7}, {"all-differ", math.MaxInt}} {
		took := map[int]float64{}
		lengths := []int{100, 1000, 10_000, 100_000}
		for _, n := range lengths {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				decide := decisions(b, n, c.kinds)
				for b.Loop() {
					decide()
				}
				if took[n] = float64(b.Elapsed().Nanoseconds()) / float64(b.N); n > lengths[0] && took[lengths[0]] > 0 {
					b.ReportMetric(math.Log(took[n]/took[lengths[0]])/math.Log(float64(n)/float64(lengths[0])), "exponent")
				}
			})
		}
	}
}

// decisions has n jobs waiting, and takes one decision at each call.
func decisions(tb testing.TB, n, kinds int) func() {
	tb.Helper()
	r := newReplay(crowd(n+1, kinds), Setup{Machine: invent(tb, "demo:16xA100-80GB"), Policy: named("own"), Place: job.Packed})
	r.now = r.jobs[n].Arrival
	line := r.line.(*ownLine)
	r.admitJob(0)
	for i := range n - 1 {
		line.users[0].enqueueJob(&r.jobs[i+1], i+1)
	}
	line.waits = n
	line.giveTickets(0)
	return func() {
		t, ok := r.line.nextTurn()
		if !ok {
			tb.Fatal("nothing may start")
		}
		r.line.addJob(t.job)
	}
}

// TestDecisionCost: a decision costs no more with many waiting jobs where their estimates are the usual ones, and not
// more than in proportion where all differ. The least of several measurements counts: other programs make it longer.
func TestDecisionCost(t *testing.T) {
	for _, c := range []struct {
		name                    string
		kinds, few, many, times int
		most                    float64 // exponent
	}{{"usual-times", 7, 100, 30_000, 100, 0.3}, {"all-differ", math.MaxInt, 100, 3000, 20, 1.2}} {
		least := func(n int) float64 {
			decide, took := decisions(t, n, c.kinds), time.Duration(math.MaxInt64)
			for range 5 {
				began := processorTime(t)
				for range c.times {
					decide()
				}
				took = min(took, processorTime(t)-began)
			}
			return took.Seconds()
		}
		exponent := math.Log(least(c.many)/least(c.few)) / math.Log(float64(c.many)/float64(c.few))
		t.Logf("%s: exponent %.2f", c.name, exponent)
		if exponent > c.most {
			t.Errorf("%s: a decision takes time by the number of waiting jobs to the power of %.2f, at most %.1f", c.name, exponent, c.most)
		}
	}
}

// processorTime is what this process has used of the processors, which passes only while they run it.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// TestWaitingMemory: what a waiting job takes in memory is the same however many wait, and little.
func TestWaitingMemory(t *testing.T) {
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	for _, policy := range []string{"own", "fifo", "easy"} {
		for _, n := range []int{20_000, 100_000} {
			jobs := crowd(n, 7)
			for i := range jobs {
				jobs[i].Arrival = 1_700_000_000e9 + int64(i*60/n) // all have come when step is called
			}
			before, waiting, taken := heap(), 0, 0.0
			_, err := Replay(jobs, Setup{Machine: invent(t, "demo:8xA100-80GB"), Policy: named(policy)}, func(started int) bool {
				waiting, taken = n-started, float64(heap()-before)
				return false
			})
			if !errors.Is(err, ErrStopped) {
				t.Fatal(err)
			}
			each := taken / float64(waiting)
			t.Logf("%s: %d waiting jobs take %.1f bytes each", policy, waiting, each)
			if each > 40 {
				t.Errorf("%s: %d waiting jobs take %.1f bytes each, at most 40", policy, waiting, each)
			}
		}
	}
}

// crowd is n jobs that come second by second.
func crowd(n, kinds int) []Job {
	jobs := make([]Job, n)
	for i := range jobs {
		jobs[i] = Job{Arrival: 1_700_000_000e9 + int64(i)*1e9, Lasts: time.Hour, Estimate: time.Duration(1+i%kinds) * time.Hour, GPUs: int16([]int{1, 1, 2, 4, 8}[i%5])} //nolint:gosec // small
		if kinds > n {
			jobs[i].Estimate = time.Hour + time.Duration(i)*time.Second
		}
	}
	return jobs
}
