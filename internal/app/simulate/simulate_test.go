package simulate

import (
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/sim"
)

// lines are jobs of two users, an hour each, that come together.
func lines(n int) string {
	return "timestamp,duration,num_gpus,user\n" + strings.Repeat("2026-01-01 08:00:00,3600,1,alice\n2026-01-01 08:00:00,3600,2,bob\n", n)
}

// TestRun: results are in the order of machines and policies, whichever replay ends first; users have their names.
func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.csv.gz")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	packed := gzip.NewWriter(file)
	if _, err := packed.Write([]byte(lines(100))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(packed.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	one, err := gpu.InventMachine("demo:1xL4")
	if err != nil {
		t.Fatal(err)
	}
	r := &Request{Policies: sim.Policies(), Guess: sim.GuessRough, Every: 1}
	for _, n := range []int{2, 4, 8} {
		r.Machines = append(r.Machines, SizedMachine(one, n))
	}
	if r.Trace, err = OpenTrace(path, nil); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	most := 0.0
	got, err := ReplayTrace(t.Context(), r, func(done float64) {
		mu.Lock()
		most = max(most, done)
		mu.Unlock()
	})
	if err != nil || most > 1 {
		t.Fatal(err, most)
	}
	for i := range got {
		g := &got[i]
		if g.GPUs != len(r.Machines[i/len(r.Policies)].Devices) || g.Policy != r.Policies[i%len(r.Policies)].Name || g.Jobs != 200 || len(g.Users) != 2 || g.Users[0].Name != "alice" || g.Users[1].Name != "bob" {
			t.Errorf("result %d: %+v", i, g)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := ReplayTrace(ctx, r, func(float64) {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.Every = 3
	if got, err := ReplayTrace(t.Context(), r, func(float64) {}); err != nil || got[0].Jobs != 67 {
		t.Error(err, got[0].Jobs)
	}
}

func TestOpen(t *testing.T) {
	if got, err := OpenTrace("-", strings.NewReader(lines(1))); err != nil || len(got.Jobs) != 2 {
		t.Error(err)
	}
	folder := t.TempDir()
	plain := filepath.Join(folder, "jobs.gz")
	if err := os.WriteFile(plain, []byte(lines(1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{folder: "is no file", plain: "gzip: invalid header", filepath.Join(folder, "none"): "no such file"} {
		if _, err := OpenTrace(path, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestSizes(t *testing.T) {
	if got := UsualSizes([]sim.Job{{GPUs: 1}, {GPUs: 3}}); len(got) != 3 || got[0] != 4 {
		t.Error(got)
	}
	for gpus, want := range map[int][]int{1: {1, 2, 4, 8, 16}, 8: {8, 16, 24}, 16: {16, 24, 32}, 20: {24, 32, 48}, 64: {64}, 100: {64}} {
		if got := UsualSizes([]sim.Job{{GPUs: int16(gpus)}}); !slices.Equal(got, want) {
			t.Errorf("for %d GPUs: %v", gpus, got)
		}
	}
}
