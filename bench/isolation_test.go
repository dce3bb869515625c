package bench

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"gpuard/internal/host/isolation"
)

// goalWall is what a wall may add to the p50 of a run.
const goalWall = 4 * time.Millisecond

// BenchmarkWall compares a run with the same behind a wall. Device files of seven other GPUs cannot be made everywhere,
// so what it takes to close as many is measured by that step alone.
func BenchmarkWall(b *testing.B) {
	if why := isolation.NamespaceObstacle() + isolation.LandlockObstacle(); why != "" {
		b.Skip(why)
	}
	gpuard := installed(b, buildProgram(b))
	fake := overFake(b, 8)
	plain := &program{name: "gpuard run -- true", argv: fake.run(gpuard, "true"), env: fake.env, settle: fake.settle}
	behind := func(level string) *program {
		argv := slices.Concat([]string{gpuard, "run", "--quiet", "--no-wait", "--isolate", level}, fake.flags, []string{"--", "true"})
		return &program{name: "… --isolate " + level, argv: argv, env: fake.env, settle: fake.settle}
	}
	step := func(what, nodes string) *program {
		return &program{name: "gpuard " + isolation.WallFlag + ", " + what, argv: []string{gpuard, isolation.WallFlag, `{"level":"namespace","nodes":[` + nodes + `]}`, "/bin/true", "true"}}
	}
	none, seven := step("no file", ""), step("seven files", `"/dev/full","/dev/zero","/dev/tty","/dev/random","/dev/urandom","/dev/ptmx","/dev/kmsg"`)
	programs := []*program{plain, behind("namespace"), none, seven, behind("landlock")}
	bases := []*program{plain, plain, none, none, plain}
	if isolation.Cgroup() == "" {
		programs, bases = append(programs, behind("cgroup")), append(bases, plain)
	}
	for b.Loop() {
		measure(b, programs)
	}
	fmt.Printf("\n%-42s %9s %9s %9s %12s\n", "behind a wall, "+strconv.Itoa(rounds)+" rounds", "least", "p50", "p99", "more, p50")
	over := func(p, base *program) time.Duration { return quantile(p.spent, 0.5) - quantile(base.spent, 0.5) }
	for i, p := range programs {
		fmt.Printf("%-42s %9s %9s %9s %12s\n", p.name, ms(quantile(p.spent, 0)), ms(quantile(p.spent, 0.5)), ms(quantile(p.spent, 0.99)), ms(over(p, bases[i])))
	}
	worst := over(programs[1], plain) + over(seven, none)
	fmt.Printf("goal: --isolate namespace over a plain run, with seven files to close, p50: at most %s: %s, %s\n\n", ms(goalWall), ms(worst), verdict(worst <= goalWall))
	b.ReportMetric(float64(worst.Microseconds())/1000, "ms-of-wall")
}
