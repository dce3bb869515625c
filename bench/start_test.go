package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/test/pace"
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
	cpu    []time.Duration // of the process, of what it waited for, and of its holder
	faults []time.Duration // page faults of the same, as numbers
	ending []time.Duration // how long settle took
}

// BenchmarkStart compares starts with those of other programs.
func BenchmarkStart(b *testing.B) {
	gpuard := buildProgram(b)
	fake := overFake(b, 4)
	programs := []*program{
		{name: "true", argv: []string{"true"}},
		{name: "env X=1 true", argv: []string{"env", "X=1", "true"}},
		{name: "an empty Go program", argv: []string{installed(b, buildEmpty(b))}},
		{name: "the same with purego", argv: []string{installed(b, buildEmpty(b, "github.com/ebitengine/purego"))}},
	}
	// What gpuard would cost with the libraries of its page and its full screen: decision 0030.
	view := installed(b, build(b, filepath.Join(b.TempDir(), "gpuard-view")))
	programs = append(programs, &program{name: "gpuard-view --version", argv: []string{view, "--version"}})
	path, demo := installed(b, gpuard), overDemo(b)
	version := &program{name: "gpuard --version", argv: []string{path, "--version"}}
	run := &program{name: "gpuard run --machine demo -- true", env: demo.env, settle: demo.settle,
		argv: []string{path, "run", "--quiet", "--machine", "demo", "--", "true"}}
	driver := &program{name: "gpuard run -- true", argv: fake.run(path, "true"), env: fake.env, settle: fake.settle}
	programs = append(append(programs, version, run, driver), others(b)...)
	for b.Loop() {
		measure(b, programs)
	}
	base := quantile(programs[1].spent, 0.5)
	fmt.Printf("\n%-36s %9s %9s %9s %12s %9s %7s %9s\n", "start to end of a job, "+strconv.Itoa(rounds)+" rounds",
		"least", "p50", "p99", "over env p50", "CPU p50", "faults", "init")
	for _, p := range programs {
		p50 := quantile(p.spent, 0.5)
		init := ""
		if clock, _ := initialisation(p.argv[0]); clock > 0 {
			init = fmt.Sprintf("%.2f ms", float64(clock)/1e6)
		}
		fmt.Printf("%-36s %9s %9s %9s %12s %9s %7d %9s\n", p.name, ms(quantile(p.spent, 0)), ms(p50), ms(quantile(p.spent, 0.99)),
			ms(p50-base), ms(quantile(p.cpu, 0.5)), quantile(p.faults, 0.5), init)
	}
	fmt.Printf("from the end of the command until its lease is gone: p50 %s, p99 %s\n", ms(quantile(driver.ending, 0.5)), ms(quantile(driver.ending, 0.99)))
	for _, g := range []struct {
		what      string
		goal, got time.Duration
	}{
		{"run --machine demo over env, p50", goalOverEnv, quantile(run.spent, 0.5) - base},
		{"its processor time with that of the holder, p50", goalProcessor, quantile(run.cpu, 0.5)},
		{"--version over an empty Go program, p50", goalOverEmpty, quantile(version.spent, 0.5) - quantile(programs[2].spent, 0.5)},
	} {
		fmt.Printf("goal: %s: at most %s: %s, %s\n", g.what, ms(g.goal), ms(g.got), verdict(g.got <= g.goal))
	}
	fmt.Println()
	b.ReportMetric(float64((quantile(run.spent, 0.5)-base).Microseconds())/1000, "ms-over-env")
}

// installed copies a program as an installation does: the pages of a file that the linker wrote start slower than those
// of its copy.
func installed(b *testing.B, path string) string {
	b.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	copied := filepath.Join(b.TempDir(), "gpuard")
	if err := os.WriteFile(copied, text, 0o755); err != nil { //nolint:gosec // a program
		b.Fatal(err)
	}
	return copied
}

// buildEmpty builds a program that does nothing but import these packages.
func buildEmpty(b *testing.B, imports ...string) string {
	b.Helper()
	source := filepath.Join(b.TempDir(), "main.go")
	text := "package main\n\n"
	for _, path := range imports {
		text += "import _ " + strconv.Quote(path) + "\n"
	}
	if err := os.WriteFile(source, []byte(text+"\nfunc main() {}\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	out := filepath.Join(b.TempDir(), "empty")
	build := exec.Command("go", "build", "-trimpath", "-o", out, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		b.Fatalf("cannot build an empty program: %v\n%s", err, text)
	}
	return out
}

// initialisation is how long the packages of a Go program take to initialise (the least of ten starts), and how many
// pieces of memory they allocate for that; 0 of another program.
func initialisation(path string) (least time.Duration, allocations int) {
	line := regexp.MustCompile(`(?m)^init \S+ @\S+ ms, (\S+) ms clock, \d+ bytes, (\d+) allocs$`)
	for range 10 {
		c := command([]string{path, "--version"}, []string{"GODEBUG=inittrace=1"})
		out, _ := c.CombinedOutput()
		var sum time.Duration
		allocations = 0
		for _, found := range line.FindAllStringSubmatch(string(out), -1) {
			clock, _ := strconv.ParseFloat(found[1], 64)
			count, _ := strconv.Atoi(found[2])
			sum += time.Duration(clock * 1e6)
			allocations += count
		}
		if least == 0 || sum < least {
			least = sum
		}
	}
	return least, allocations
}

func measure(b *testing.B, programs []*program) {
	for round := range rounds {
		for i := range programs {
			p := programs[(i+round)%len(programs)]
			if p.rounds > 0 && round%(rounds/p.rounds) != 0 {
				continue
			}
			p.start(b)
		}
	}
}

// start starts the program once. While it runs this process is the one that adopts its holder, to learn what that has
// used.
func (p *program) start(b testing.TB) {
	if p.settle != nil {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			b.Fatal(err)
		}
		defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) //nolint:errcheck // it could be set
	}
	c := command(p.argv, p.env)
	start := time.Now()
	out, err := c.CombinedOutput()
	spent := time.Since(start)
	if err != nil {
		b.Fatalf("%s: %v\n%s", p.name, err, out)
	}
	cpu, faults := time.Duration(0), time.Duration(0)
	add := func(u *syscall.Rusage) {
		cpu += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		faults += time.Duration(u.Minflt)
	}
	add(c.ProcessState.SysUsage().(*syscall.Rusage))
	if p.settle != nil {
		p.settle()
		p.ending = append(p.ending, time.Since(start)-spent)
		for {
			var usage syscall.Rusage
			_, err := syscall.Wait4(-1, nil, 0, &usage)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil {
				break
			}
			add(&usage)
		}
	}
	jobs := time.Duration(max(p.jobs, 1))
	p.spent = append(p.spent, spent/jobs)
	p.cpu = append(p.cpu, cpu/jobs)
	p.faults = append(p.faults, faults/jobs)
}

// TestStart guards the start of the program with limits that a loaded machine keeps too: what packages allocate while
// they are initialised is the same everywhere, and processor time is that of the best of many starts.
func TestStart(t *testing.T) {
	const (
		mostAllocations = 600 // a library that fills tables or compiles expressions at each start is seen here
		mostVersion     = 15 * time.Millisecond
		mostRun         = 40 * time.Millisecond // with the holder
	)
	gpuard := buildProgram(t)
	demo := overDemo(t)
	clock, allocations := initialisation(gpuard)
	if allocations == 0 || allocations > mostAllocations {
		t.Errorf("the packages allocate %d pieces of memory before main, at most %d: GODEBUG=inittrace=1 shows which", allocations, mostAllocations)
	}
	speed := pace.Start(t)
	version := &program{name: "--version", argv: []string{gpuard, "--version"}}
	run := &program{name: "run", env: demo.env, settle: demo.settle, argv: []string{gpuard, "run", "--quiet", "--machine", "demo", "--", "true"}}
	for range 20 {
		version.start(t)
		run.start(t)
	}
	t.Logf("initialisation %v in %d allocations; processor time: --version %v, run %v", clock, allocations, quantile(version.cpu, 0), quantile(run.cpu, 0))
	if least, most := quantile(version.cpu, 0), speed.ScaleCPU(mostVersion); least > most {
		t.Errorf("--version takes %v of processor time, at most %v", least, most)
	}
	if least, most := quantile(run.cpu, 0), speed.ScaleCPU(mostRun); least > most {
		t.Errorf("a run of true takes %v of processor time, at most %v", least, most)
	}
}
