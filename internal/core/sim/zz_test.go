package sim

import (
	"encoding/csv"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
)

func load() (jobs []Job) {
	f, _ := os.Open("/tmp/simproto/p.csv")
	rows, _ := csv.NewReader(f).ReadAll()
	for _, r := range rows[1:] {
		t, _ := time.Parse("2006-01-02 15:04:05", r[0])
		d, _ := strconv.ParseFloat(r[1], 64)
		n, _ := strconv.Atoi(r[2])
		jobs = append(jobs, Job{Arrival: t.UnixNano(), Lasts: time.Duration(d * 1e9), GPUs: int16(n)})
	}
	slices.SortStableFunc(jobs, func(a, b Job) int { return int(a.Arrival/1e9 - b.Arrival/1e9) })
	return
}

func TestZZ(t *testing.T) {
	m, _ := gpu.Invent("demo:16xA100-80GB")
	for _, g := range []Guess{Rough, Unsaid} {
		jobs := load()
		if err := Estimate(jobs, g); err != nil {
			t.Fatal(err)
		}
		whole := jobs
		mid := whole[0].Arrival + (whole[len(whole)-1].Arrival-whole[0].Arrival)/2
		cut := slices.IndexFunc(whole, func(j Job) bool { return j.Arrival >= mid })
		for _, half := range []string{"A", "B", "all"} {
			jobs := map[string][]Job{"A": whole[:cut], "B": whole[cut:], "all": whole}[half]
			for _, p := range Policies() {
				if only := os.Getenv("ONLY"); only != "" && !slices.Contains(strings.Split(only, ","), p.Name) {
					continue
				}
				began := time.Now()
				r, err := Replay(jobs, Setup{Machine: m, Policy: p, Place: "packed"}, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%s %s %-10s jct %.0f med %.0f wait %.0f p99 %.0f slow %.0f large %.0f max %.0f alloc %.3f frag %.3f  %v", half, g, p.Name, *r.CompletionMean, *r.CompletionMedian, *r.WaitMean, *r.WaitP99, *r.Slowdown, *r.WaitLarge, *r.WaitMax, *r.Allocated, *r.Fragmented, time.Since(began))
			}
		}
	}
}
