package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// slowdown is how much slower than before something may be: p50 against p50.
const slowdown = 1.05

// workload is something that people wait for. ready makes a machine for one program, and returns what does the work once and
// says how long it took.
type workload struct {
	name   string
	rounds int
	ready  func(b *testing.B, gpuard string) func() time.Duration
}

func workloads() []workload {
	onDemo := func(words ...string) func(b *testing.B, gpuard string) func() time.Duration {
		return func(b *testing.B, gpuard string) func() time.Duration {
			demo := overDemo(b)
			argv := append(append([]string{gpuard, "run", "--quiet", "--machine", "demo"}, words...), "--", "true")
			return func() time.Duration {
				defer demo.settle()
				return timed(b, command(argv, demo.env))
			}
		}
	}
	return []workload{
		{"run --machine demo", 200, onDemo()},
		{"the same with --retry, as a parent", 200, onDemo("--retry", "1")},
		{"run, four GPUs", 200, func(b *testing.B, gpuard string) func() time.Duration {
			fake := overFake(b, 4)
			return func() time.Duration {
				defer fake.settle()
				return timed(b, command(fake.run(gpuard, "true"), fake.env))
			}
		}},
		{"kill -9 to the start of the next one", 200, func(b *testing.B, gpuard string) func() time.Duration {
			fake, heard := overFake(b, 1), newEar(b)
			says := fake.waits(gpuard, nil, "sh", "-c", "echo $$ >"+heard.path+"; exec sleep 1000")
			c := &chain{line: fake.leases, next: func() { startAside(b, command(says, fake.env)) }}
			c.begin(heard)
			return func() time.Duration {
				c.hand(heard)
				return c.spent[len(c.spent)-1]
			}
		}},
		{"submit", 200, func(b *testing.B, gpuard string) func() time.Duration {
			env, _ := newQueue(b, gpuard, 1)
			return func() time.Duration {
				return timed(b, command([]string{gpuard, "submit", "-q", "--hold", "--cpu", "--", "true"}, env))
			}
		}},
		{"500 durable jobs", 20, func(b *testing.B, gpuard string) func() time.Duration {
			return func() time.Duration {
				env := []string{"XDG_STATE_HOME=" + b.TempDir()}
				began := time.Now()
				timed(b, command([]string{gpuard, "submit", "-q", "--cpu", "--array", "1-500", "--", "true"}, env))
				timed(b, command([]string{gpuard, "wait", "1-500"}, env))
				return time.Since(began)
			}
		}},
		{"a sweep of 500", 20, func(b *testing.B, gpuard string) func() time.Duration {
			place, work, turn := overDemo(b), b.TempDir(), 0
			inMemory(b, &place)
			return func() time.Duration {
				turn++
				return timed(b, command([]string{gpuard, "sweep", "--quiet", "--dir", filepath.Join(work, strconv.Itoa(turn)), "--machine", "demo:8xL4", "--over", "n=1..500", "--", "true"}, place.env))
			}
		}},
	}
}

// BenchmarkBefore compares this program with another one, GPUARD_BEFORE, in turns: make bench BEFORE=COMMIT builds that.
func BenchmarkBefore(b *testing.B) {
	other := os.Getenv("GPUARD_BEFORE")
	if other == "" {
		b.Skip("nothing to compare with: make bench BEFORE=COMMIT")
	}
	programs := []string{installed(b, buildProgram(b)), installed(b, other)}
	atRest(b, b.TempDir())
	fmt.Printf("\n%-36s %10s %10s %10s %10s %8s\n", "beside the program before, in turns", "p50", "p99", "before p50", "p99", "ratio")
	for b.Loop() {
		for _, w := range workloads() {
			var once [2]func() time.Duration
			var spent [2][]time.Duration
			for i, path := range programs {
				once[i] = w.ready(b, path)
			}
			for round := range w.rounds {
				for turn := range once {
					i := (turn + round) % len(once)
					spent[i] = append(spent[i], once[i]())
				}
			}
			now, before := quantile(spent[0], 0.5), quantile(spent[1], 0.5)
			ratio := float64(now) / float64(before)
			fmt.Printf("%-36s %10s %10s %10s %10s %8.3f, at most %.2f: %s\n", w.name, ms(now), ms(quantile(spent[0], 0.99)), ms(before), ms(quantile(spent[1], 0.99)),
				ratio, slowdown, goal(b, ratio <= slowdown))
		}
	}
	fmt.Println()
}
