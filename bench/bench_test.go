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
	settle func() // untimed, after each start
	spent  []time.Duration
}

func BenchmarkStart(b *testing.B) {
	gpuard := buildProgram(b)
	fake, demo := overFake(b, 4), overDemo(b)
	programs := []*program{
		{name: "true", argv: []string{"true"}},
		{name: "env X=1 true", argv: []string{"env", "X=1", "true"}},
		{name: "gpuard --version", argv: []string{gpuard, "--version"}},
		{name: "gpuard run -- true", argv: []string{gpuard, "run", "--quiet", "--", "true"}, env: fake.env, settle: fake.settle},
		{name: "gpuard run --machine demo -- true", argv: []string{gpuard, "run", "--quiet", "--machine", "demo", "--", "true"}, env: demo.env, settle: demo.settle},
	}
	programs = append(programs, others(b)...)
	for b.Loop() {
		measure(b, programs)
	}
	base := quantile(programs[1].spent, 0.5)
	fmt.Printf("\n%-36s %9s %9s %12s\n", "start to end of a job, "+strconv.Itoa(rounds)+" rounds", "p50", "p99", "over env p50")
	for _, p := range programs {
		p50 := quantile(p.spent, 0.5)
		fmt.Printf("%-36s %9s %9s %12s\n", p.name, ms(p50), ms(quantile(p.spent, 0.99)), ms(p50-base))
	}
	over := quantile(programs[3].spent, 0.5) - base
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
			p.spent = append(p.spent, spent/time.Duration(max(p.jobs, 1)))
			if p.settle != nil {
				p.settle()
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
					err := command([]string{gpuard, "run", "--quiet", "--no-wait", "--", "true"}, place.env).Run()
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

func BenchmarkHolder(b *testing.B) {
	gpuard := buildProgram(b)
	place := overFake(b, 4)
	var private, resident int64
	for b.Loop() {
		job := command([]string{gpuard, "run", "--quiet", "--", "sleep", "60"}, place.env)
		if err := job.Start(); err != nil {
			b.Fatal(err)
		}
		pid := holderOf(b, gpuard)
		time.Sleep(500 * time.Millisecond) // the holder has settled down
		private, resident = memoryOf(b, pid)
		_ = job.Process.Kill()
		_ = job.Wait()
		place.settle()
	}
	fmt.Printf("\nholder: %.1f MiB private, %.1f MiB resident (most of it shared with every other gpuard)\n", mib(private), mib(resident))
	fmt.Printf("goal: at most %.0f MiB private: %s\n\n", mib(goalPrivate), verdict(private <= goalPrivate))
	b.ReportMetric(mib(private), "MiB-private")
}
