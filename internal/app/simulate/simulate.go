// Package simulate answers how many GPUs are needed, and with which rule, by replaying a record of jobs on invented
// machines. It leases nothing and reads no device.
package simulate

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/sim"
	"gpuard/internal/text/trace"
)

// Trace is the jobs of a record.
type Trace = trace.Trace

// Request is what is to be replayed.
type Request struct {
	Trace Trace
	// Each is replayed with each policy.
	Machines []gpu.Machine
	Policies []sim.Policy
	Place    job.Place
	Guess    sim.Guess
	// Keeps the first of so many jobs.
	Every int
}

// OpenTrace reads a trace from a file, which may be compressed, or from standard input, "-".
func OpenTrace(path string, stdin io.Reader) (Trace, error) {
	in := stdin
	if path != "-" {
		file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return Trace{}, exit.Usagef("cannot read the trace: %v; name a file with jobs, or - for standard input", err)
		}

		defer file.Close() //nolint:errcheck // read only
		if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
			return Trace{}, exit.Usagef("cannot read the trace: %s is no file; name a file with jobs, or - for standard input", path)
		}

		in = file
	}
	if strings.HasSuffix(path, ".gz") {
		plain, err := gzip.NewReader(in)
		if err != nil {
			return Trace{}, exit.Usagef("cannot read the trace %s: %v", path, err)
		}
		in = plain
	}

	return ReadTrace(in, "the trace "+path)
}

// ReadTrace reads a trace; name is what errors call it.
func ReadTrace(in io.Reader, name string) (Trace, error) {
	t, err := trace.ReadJobs(in)
	if err != nil {
		return t, exit.Usagef("%s; name a file with jobs: gpuard simulate FILE", strings.Replace(err.Error(), "the trace", name, 1))
	}
	return t, nil
}

// ReplayTrace replays the jobs on each machine with each policy, and returns the results in that order. progress is
// told now and then which part of all is done, from any goroutine.
func ReplayTrace(ctx context.Context, r *Request, progress func(done float64)) ([]sim.Result, error) {
	if r.Every > 1 {
		kept := r.Trace.Jobs[:0]
		for i, j := range r.Trace.Jobs {
			if i%r.Every == 0 {
				kept = append(kept, j)
			}
		}
		r.Trace.Jobs = kept
	}

	if err := sim.SetEstimates(r.Trace.Jobs, r.Guess, rand.New(rand.NewSource(1)).Float64); err != nil { //nolint:gosec // repeatable on purpose
		return nil, exit.Usagef("%v", err)
	}

	all := len(r.Machines) * len(r.Policies)
	results, errs := make([]sim.Result, all), make([]error, all)
	var started atomic.Int64
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(all, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < all; i = int(next.Add(1)) - 1 {
				before := 0
				setup := sim.Setup{Machine: r.Machines[i/len(r.Policies)], Policy: r.Policies[i%len(r.Policies)], Place: r.Place}
				results[i], errs[i] = sim.Replay(r.Trace.Jobs, setup, func(n int) bool {
					progress(float64(started.Add(int64(n-before))) / float64(all*max(1, len(r.Trace.Jobs))))
					before = n
					return ctx.Err() == nil
				})
				started.Add(int64(len(r.Trace.Jobs) - before))
			}
		})
	}

	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}

	for i := range results {
		if errs[i] != nil {
			return nil, errs[i]
		}
		for k := range results[i].Users {
			u := &results[i].Users[k]
			u.Name = r.Trace.Users[u.User]
		}
	}

	return results, nil
}

// SyntheticNotes says what of the jobs does not come from the trace.
func SyntheticNotes(r *Request) []string {
	out := []string{}
	switch {
	case r.Guess == sim.GuessRough:
		out = append(out, "estimates: the true time, times a random factor of 1 to 4 (seed 1), rounded up to 1 h, 4 h, 12 h, 1 d, 3 d, 7 d or 60 d")
	case r.Guess == sim.GuessExact:
		out = append(out, "estimates: the true time, which nobody knows in advance")
	case r.Guess == sim.GuessNone || !r.Trace.Estimates:
		out = append(out, "estimates: none; gpuard's own rule takes those of earlier jobs on as many GPUs")
	}

	if len(r.Trace.Users) == 1 && r.Trace.Users[0] == "" {
		out = append(out, "users: the trace names none; all jobs are of one user")
	}

	if r.Trace.Shares {
		out = append(out, "memory: a job for a part of a GPU takes that part of the memory of the largest one")
	}

	if r.Every > 1 {
		out = append(out, fmt.Sprintf("jobs: only the first of each %d", r.Every))
	}

	return out
}

// SizedMachine is a machine of n devices like the first one of m, idle and healthy, without links.
func SizedMachine(m gpu.Machine, n int) gpu.Machine {
	out := gpu.Machine{Source: "invented", Driver: m.Driver, CUDA: m.CUDA, Processes: []gpu.Process{}}
	for i := range n {
		d := m.Devices[0]
		d.Index, d.UUID, d.PCI, d.Links = i, gpu.UUID(fmt.Sprintf("GPU-simulated-%02d", i)), fmt.Sprintf("00000000:%02X:00.0", i+1), nil
		out.Devices = append(out.Devices, d)
	}
	return out
}

// UsualSizes are usual sizes of machines on which all jobs fit: several, so that they can be compared, from the
// smallest on.
func UsualSizes(jobs []sim.Job) []int {
	const several = 3
	largest := 1
	for i := range jobs {
		largest = max(largest, int(jobs[i].GPUs))
	}

	fits := slices.DeleteFunc([]int{1, 2, 4, 8, 16, 24, 32, 48, maxDevices}, func(n int) bool { return n < largest })
	if len(fits) == 0 {
		// What fits on none is left out.
		return []int{maxDevices}
	}

	usual := slices.DeleteFunc(slices.Clone(fits), func(n int) bool { return n > 16 })

	return fits[:min(max(several, len(usual)), len(fits))]
}

// maxDevices is how many devices a simulated machine can have.
const maxDevices = 64
