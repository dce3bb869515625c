package bench

// What gpuard costs, next to programs that do a part of its work, measured in one run: rounds are interleaved, so that
// a busy moment of the machine affects all alike. `make bench` runs this.

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Goals of the project. A missed one of these is printed as such and fails nothing, because the machine decides too; those of
// the queue, of a sweep and of serve have room for a slower one, and fail.
const (
	goalOverEnv   = 4 * time.Millisecond // p50 of `gpuard run --machine demo -- true`, and of `gpuard submit`, over `env X=1 true`
	goalOverEmpty = 1 * time.Millisecond // p50 of `gpuard --version` over a Go program that does nothing
	goalProcessor = 5 * time.Millisecond // p50 of the processor time of the same run, its holder included
	goalPrivate   = 4 << 20              // bytes that a holder has for itself
)

const (
	rounds       = 200
	batch        = 50 // jobs of one start of GNU parallel or task-spooler
	batchRounds  = 8
	claimWorkers = 8
	claimTime    = 3 * time.Second
)

// others are programs that many people start jobs with, where they are installed. Their figure is per job.
func others(b *testing.B) []*program {
	var found []*program
	if _, err := exec.LookPath("parallel"); err == nil {
		argv := []string{"parallel", "-j1", "true", ":::"}
		for i := range batch {
			argv = append(argv, strconv.Itoa(i))
		}
		found = append(found, &program{name: "GNU parallel -j1 true, per job", argv: argv, jobs: batch, rounds: batchRounds})
	} else {
		fmt.Println("GNU parallel is not installed: apt-get install parallel")
	}
	if tsp, err := exec.LookPath("tsp"); err == nil {
		env := []string{"TS_SOCKET=" + filepath.Join(b.TempDir(), "tsp")}
		b.Cleanup(func() { _ = command([]string{tsp, "-K"}, env).Run() })
		script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do tsp true >/dev/null; i=$((i+1)); done; tsp -w; tsp -C", batch)
		found = append(found, &program{name: "task-spooler, per job", argv: []string{"sh", "-c", script}, env: env, jobs: batch, rounds: batchRounds})
	} else {
		fmt.Println("task-spooler is not installed: apt-get install task-spooler")
	}
	return found
}

func BenchmarkClaims(b *testing.B) {
	gpuard := buildProgram(b)
	place := overFake(b, 8)
	var given, refused atomic.Int64
	var spent time.Duration
	for b.Loop() {
		start := time.Now()
		var workers sync.WaitGroup
		for range claimWorkers {
			workers.Go(func() {
				for time.Since(start) < claimTime {
					err := command(place.run(gpuard, "true"), place.env).Run()
					var exit *exec.ExitError
					switch {
					case err == nil:
						given.Add(1)
					case errors.As(err, &exit) && exit.ExitCode() == 120:
						refused.Add(1)
					default:
						b.Errorf("cannot claim: %v", err)
						return
					}
				}
			})
		}
		workers.Wait()
		spent += time.Since(start)
	}
	perSecond := float64(given.Load()) / spent.Seconds()
	fmt.Printf("\nclaims on 8 devices, %d processes at a time: %.0f given and %.0f refused per second (start of the process included)\n\n",
		claimWorkers, perSecond, float64(refused.Load())/spent.Seconds())
	b.ReportMetric(perSecond, "claims/s")
}

// BenchmarkHolder measures one holder of several, as on a machine in use: pages of the program that all of them map are
// not private then.
func BenchmarkHolder(b *testing.B) {
	const jobs = 4
	gpuard := buildProgram(b)
	place := overFake(b, jobs)
	var private, resident int64
	for b.Loop() {
		for i := range jobs {
			job := command(place.run(gpuard, "sleep", "60"), place.env)
			if err := job.Start(); err != nil {
				b.Fatal(err)
			}
			defer func() { _ = job.Process.Kill(); _ = job.Wait() }()
			holdersOf(b, gpuard, i+1)
		}
		time.Sleep(500 * time.Millisecond) // they have settled down
		for _, pid := range holdersOf(b, gpuard, jobs) {
			p, r := memoryOf(b, pid)
			private, resident = max(private, p), max(resident, r)
		}
	}
	fmt.Printf("\nholder, the largest of %d: %.1f MiB private, %.1f MiB resident\n", jobs, mib(private), mib(resident))
	fmt.Printf("goal: at most %.0f MiB private: %s\n\n", mib(goalPrivate), verdict(private <= goalPrivate))
	b.ReportMetric(mib(private), "MiB-private")
}
