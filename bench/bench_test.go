package bench

// What gpuard costs, beside programs that do a part of its work, measured in one run: rounds are
// interleaved, so that a busy moment of the machine hits all alike. `make bench` runs this.

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

// Goals of the project; a missed one is printed as such and fails nothing, because the machine decides too.
const (
	goalOverEnv = 6 * time.Millisecond // p50 of `gpuard run -- true` over `env X=1 true`
	goalPrivate = 4 << 20              // bytes that a holder has for itself
)

const (
	rounds       = 200
	batch        = 50 // jobs of one start of GNU parallel or task-spooler
	batchRounds  = 8
	claimWorkers = 8
	claimTime    = 3 * time.Second
)

// program is one line of the table; jobs is how many jobs one start of it runs.
type program struct {
	name   string
	argv   []string
	env    []string
	jobs   int
	rounds int
	settle func() // after each start, and not part of its time
	spent  []time.Duration
	cpu    []time.Duration // of the process itself and what it waited for
	ending []time.Duration // how long settle took
}

func BenchmarkStart(b *testing.B) {
	gpuard := buildProgram(b)
	fake, demo := overFake(b, 4), overDemo(b)
	programs := []*program{
		{name: "true", argv: []string{"true"}},
		{name: "env X=1 true", argv: []string{"env", "X=1", "true"}},
		{name: "gpuard --version", argv: []string{gpuard, "--version"}},
		{name: "gpuard run -- true", argv: fake.run(gpuard, "true"), env: fake.env, settle: fake.settle},
		{name: "gpuard run --machine demo -- true", argv: []string{gpuard, "run", "--quiet", "--machine", "demo", "--", "true"}, env: demo.env, settle: demo.settle},
	}
	programs = append(programs, others(b)...)
	for b.Loop() {
		measure(b, programs)
	}
	base := quantile(programs[1].spent, 0.5)
	fmt.Printf("\n%-36s %9s %9s %12s %9s\n", "start to end of a job, "+strconv.Itoa(rounds)+" rounds", "p50", "p99", "over env p50", "CPU p50")
	for _, p := range programs {
		p50 := quantile(p.spent, 0.5)
		fmt.Printf("%-36s %9s %9s %12s %9s\n", p.name, ms(p50), ms(quantile(p.spent, 0.99)), ms(p50-base), ms(quantile(p.cpu, 0.5)))
	}
	over := quantile(programs[3].spent, 0.5) - base
	end := programs[3].ending
	fmt.Printf("from the end of the command until its lease is gone: p50 %s, p99 %s\n", ms(quantile(end, 0.5)), ms(quantile(end, 0.99)))
	fmt.Printf("goal: gpuard run at most %s over env, p50: %s, %s\n\n", ms(goalOverEnv), ms(over), verdict(over <= goalOverEnv))
	b.ReportMetric(float64(over.Microseconds())/1000, "ms-over-env")
}

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

func measure(b *testing.B, programs []*program) {
	for round := range rounds {
		for i := range programs {
			p := programs[(i+round)%len(programs)]
			if p.rounds > 0 && round%(rounds/p.rounds) != 0 {
				continue
			}
			c := command(p.argv, p.env)
			start := time.Now()
			out, err := c.CombinedOutput()
			spent := time.Since(start)
			if err != nil {
				b.Fatalf("%s: %v\n%s", p.name, err, out)
			}
			jobs := time.Duration(max(p.jobs, 1))
			p.spent = append(p.spent, spent/jobs)
			p.cpu = append(p.cpu, (c.ProcessState.UserTime()+c.ProcessState.SystemTime())/jobs)
			if p.settle != nil {
				p.settle()
				p.ending = append(p.ending, time.Since(start)-spent)
			}
		}
	}
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

// BenchmarkHolder looks at one holder of several, as on a machine that is in use: pages of the program that
// all of them map are not private then.
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
