package sim_test

import (
	"cmp"
	"compress/gzip"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/sim"
	"gpuard/internal/gate"
	"gpuard/internal/text/trace"
)

// read reads a public trace.
func read(t testing.TB, folder, name string) []sim.Job {
	t.Helper()
	file, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // read only
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := trace.ReadJobs(plain)
	if err != nil {
		t.Fatal(err)
	}
	return got.Jobs
}

func machine(t testing.TB, words string) gpu.Machine {
	t.Helper()
	m, err := gpu.InventMachine(words)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func replay(t testing.TB, jobs []sim.Job, m gpu.Machine, policy string) sim.Result {
	t.Helper()
	all := sim.Policies()
	i := slices.IndexFunc(all, func(p sim.Policy) bool { return p.Name == policy })
	r, err := sim.Replay(jobs, sim.Setup{Machine: m, Policy: all[i], Place: job.Packed}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// philly is virtual cluster 11cb48 of the Philly trace, which never asked for more than 16 GPUs, with estimates.
func philly(t testing.TB, folder string, guess sim.Guess) []sim.Job {
	t.Helper()
	jobs := read(t, folder, "philly_11cb48.csv.gz")
	if len(jobs) != 16091 {
		t.Fatal(len(jobs))
	}
	if err := sim.SetEstimates(jobs, guess, rand.New(rand.NewSource(1)).Float64); err != nil {
		t.Fatal(err)
	}
	return jobs
}

// halves are the jobs before and after the middle of the time.
func halves(jobs []sim.Job) (first, second []sim.Job) {
	middle := jobs[0].Arrival + (jobs[len(jobs)-1].Arrival-jobs[0].Arrival)/2
	cut := slices.IndexFunc(jobs, func(j sim.Job) bool { return j.Arrival >= middle })
	return jobs[:cut], jobs[cut:]
}

// TestKnownFigures: other programs got these figures from the same trace by the same rules.
func TestKnownFigures(t *testing.T) {
	t.Parallel()
	jobs := philly(t, gate.TracesFolder(t), sim.GuessRough)
	m := machine(t, "demo:16xA100-80GB")
	for policy, want := range map[string][6]float64{ // mean and median of completion, mean and p99 of wait, slowdown, wait of large jobs
		"fifo":       {1636983, 1461534, 1633981, 4416761, 21610, 2006962},
		"skip":       {241076, 3230, 238074, 1563190, 2823, 1722299},
		"easy":       {119694, 79, 116693, 1442517, 1255, 1677148},
		"easy-short": {92922, 84, 89920, 1336699, 927, 1564070},
		"short":      {28834, 104, 25833, 308706, 251, 1650406},
		"ratio":      {26322, 101, 23320, 308582, 227, 1632261},
	} {
		// Each takes a second.
		if gate.SoakCount(1, 0) == 0 && policy != "fifo" && policy != "short" {
			continue
		}
		r := replay(t, jobs, m, policy)
		got := [6]float64{*r.CompletionMean, *r.CompletionMedian, *r.WaitMean, *r.WaitP99, *r.Slowdown, *r.WaitLarge}
		for i := range want {
			if math.Abs(got[i]-want[i]) > want[i]/100+1 {
				t.Errorf("%s: %.0f, want %.0f", policy, got, want)
				break
			}
		}
	}
	if err := sim.SetEstimates(jobs, sim.GuessExact, nil); err != nil {
		t.Fatal(err)
	}
	if r := replay(t, jobs, m, "short"); math.Abs(*r.CompletionMean-24510) > 245 || math.Abs(*r.WaitLarge-1738889) > 17389 {
		t.Errorf("the shortest first by true times: %.0f, %.0f", *r.CompletionMean, *r.WaitLarge)
	}
}

// bound is the most that a replay may give: mean completion and mean wait of large jobs, in seconds.
type bound struct{ completion, large float64 }

// TestOwnRule: what docs/explanation/scheduling.md says of the rule, on the whole trace and on its halves. The rule was
// chosen on the second half.
func TestOwnRule(t *testing.T) {
	t.Parallel()
	folder := gate.TracesFolder(t)
	m := machine(t, "demo:16xA100-80GB")
	for guess, want := range map[sim.Guess]map[string]bound{
		sim.GuessRough: {"whole": {24_510, 1_650_000}, "first": {10_900, 490_000}, "second": {22_000, 1_200_000}},
		sim.GuessNone:  {"whole": {105_000, 1_650_000}, "first": {24_500, 840_000}, "second": {160_000, 1_680_000}},
	} {
		jobs := philly(t, folder, guess)
		first, second := halves(jobs)
		usual := map[sim.Guess]string{sim.GuessRough: "second", sim.GuessNone: "first"}[guess]
		for part, list := range map[string][]sim.Job{"whole": jobs, "first": first, "second": second} {
			if part != usual && gate.SoakCount(1, 0) == 0 {
				continue
			}
			policies := []string{"own"}
			if part == "whole" && guess == sim.GuessRough && gate.SoakCount(1, 0) == 1 { // only to be read; own is own-30d
				policies = []string{"own", "own-24h", "own-7d", "own-never"}
			}
			for _, policy := range policies {
				began := time.Now()
				r := replay(t, list, m, policy)
				t.Logf("estimates %s, %s part, %-9s completion %.0f median %.0f, wait p99 %.0f, wait of large %.0f, longest %.0f, slowdown %.0f, allocated %.3f, %s",
					guess, part, policy, *r.CompletionMean, *r.CompletionMedian, *r.WaitP99, *r.WaitLarge, *r.WaitMax, *r.Slowdown, *r.Allocated, time.Since(began).Round(time.Millisecond))
				if policy == "own" && (*r.CompletionMean > want[part].completion || *r.WaitLarge > want[part].large) {
					t.Errorf("estimates %s, %s part: completion %.0f, wait of large jobs %.0f; want at most %.0f", guess, part, *r.CompletionMean, *r.WaitLarge, want[part])
				}
			}
		}
	}
}

// TestNothingKnown: without estimates what the rule does for large jobs is no luck of one order of arrival. In each copy of
// the trace the arrivals are up to six hours later, and the times differ by up to a tenth.
func TestNothingKnown(t *testing.T) {
	t.Parallel()
	jobs := philly(t, gate.TracesFolder(t), sim.GuessNone)
	m := machine(t, "demo:16xA100-80GB")
	first, second := halves(jobs)
	type part struct {
		name string
		jobs []sim.Job
		most bound // mean of the copies
	}
	parts, copies := []part{{"first", first, bound{24_000, 900_000}}}, []int64{3} // the worst one of other rules
	if gate.SoakCount(1, 0) == 1 {
		parts = append(parts, part{"whole", jobs, bound{130_000, 1_450_000}}, part{"second", second, bound{150_000, 1_560_000}})
		copies = []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	}
	for _, p := range parts {
		var mean bound
		for _, seed := range copies {
			r := replay(t, moved(p.jobs, seed), m, "own")
			if p.name == "whole" && (*r.CompletionMean > 241_076 || *r.WaitLarge > 1_650_000) {
				t.Errorf("copy %d: completion %.0f, wait of large jobs %.0f", seed, *r.CompletionMean, *r.WaitLarge)
			}
			mean.completion += *r.CompletionMean / float64(len(copies))
			mean.large += *r.WaitLarge / float64(len(copies))
		}
		t.Logf("%s part: completion %.0f, wait of large jobs %.0f", p.name, mean.completion, mean.large)
		if mean.completion > p.most.completion || mean.large > p.most.large {
			t.Errorf("%s part: %.0f, want at most %.0f", p.name, mean, p.most)
		}
	}
}

func moved(jobs []sim.Job, seed int64) []sim.Job {
	random := rand.New(rand.NewSource(seed)) //nolint:gosec // repeatable
	out := slices.Clone(jobs)
	for i := range out {
		out[i].Arrival += int64(random.Float64() * float64(6*time.Hour))
		out[i].Lasts = time.Duration(float64(out[i].Lasts) * (0.9 + 0.2*random.Float64()))
	}
	slices.SortStableFunc(out, func(a, b sim.Job) int { return cmp.Compare(a.Arrival, b.Arrival) })
	return out
}

// TestPacking fills a machine with random tasks of openb until they ask for 130 % of it; what does not fit is dropped.
// The figures are those of best fit over 2,000 seeds. Each task that can be of the number of devices is drawn.
func TestPacking(t *testing.T) {
	t.Parallel()
	folder := gate.TracesFolder(t)
	jobs := read(t, folder, "openb_pod_list_default.csv.gz")
	seeds := gate.SoakCount(2000, 200)
	for _, c := range []struct {
		name, machine string
		best          float64
	}{
		{"8 GPUs", "demo:8xA100-80GB", 90.36},
		{"16 GPUs", "demo:16xA100-80GB", 93.48},
		{"8 GPUs, half of them half as large", "demo:4xA100-80GB+4xA100-40GB", 75.19},
	} {
		m := machine(t, c.machine)
		sum, squares := 0.0, 0.0
		for seed := range seeds {
			part := 100 * fill(t, m, jobs, rand.New(rand.NewSource(int64(seed)))) //nolint:gosec // repeatable
			sum, squares = sum+part, squares+part*part
		}
		mean := sum / float64(seeds)
		deviation := math.Sqrt((squares/float64(seeds) - mean*mean) / float64(seeds))
		t.Logf("%s: %.2f %% allocated, standard error %.2f, over %d seeds; best fit %.2f %%", c.name, mean, deviation, seeds, c.best)
		if math.Abs(mean-c.best) > 2*deviation || seeds == 2000 && mean < c.best-0.005 {
			t.Errorf("%s: %.2f %% allocated, best fit %.2f %%", c.name, mean, c.best)
		}
	}
}

// fill is the part of the machine that is allocated in the end.
func fill(t *testing.T, m gpu.Machine, jobs []sim.Job, random *rand.Rand) float64 {
	t.Helper()
	var fitting []sim.Job
	for _, j := range jobs {
		if int(j.GPUs) <= len(m.Devices) {
			fitting = append(fitting, j)
		}
	}
	large := *pick.ShareableMemory(&m.Devices[0])
	capacity := 0.0
	for i := range m.Devices {
		capacity += float64(*pick.ShareableMemory(&m.Devices[i])) / float64(large)
	}
	var held []job.Lease
	given := 0.0
	for asked := 0.0; asked < 1.3*capacity-1e-9; {
		j := fitting[random.Intn(len(fitting))]
		spec, part := job.Spec{GPUs: int(j.GPUs), Place: job.Packed, Memory: large}, float64(j.GPUs)
		if j.Share > 0 {
			spec.Memory, spec.Share, part = 0, large*gpu.Bytes(j.Share)/1000, float64(j.Share)/1000
		}
		asked += part
		plan, refusal := pick.Place(spec, m, held, pick.Context{Tolerate: pick.DefaultTolerance()})
		if refusal == nil {
			given += part
			held = append(held, job.Lease{ID: time.Duration(len(held)).String(), UID: 1, Devices: plan.UUIDs(), Share: plan.Share})
		}
	}
	return given / capacity
}

// BenchmarkReplay replays the 16,091 jobs, which must take at most 5 seconds.
func BenchmarkReplay(b *testing.B) {
	jobs := philly(b, gate.TracesFolder(b), sim.GuessRough)
	m := machine(b, "demo:16xA100-80GB")
	for b.Loop() {
		began := time.Now()
		replay(b, jobs, m, "own")
		if took := time.Since(began); took > 5*time.Second {
			b.Fatal(took)
		}
	}
}
