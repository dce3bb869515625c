package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/test/slurm"
)

// newQueue is a queue on a disk with n held jobs.
func newQueue(b *testing.B, gpuard string, n int) (env []string, journal string) {
	b.Helper()
	home := b.TempDir()
	env = []string{"XDG_STATE_HOME=" + home}
	timed(b, command([]string{gpuard, "submit", "-q", "--hold", "--cpu", "--", "true"}, env))
	for _, path := range must(filepath.Glob(filepath.Join(home, "gpuard", "hosts", "*", "queue", "journal"))) {
		journal = path
	}
	grow(b, journal, n)
	return env, journal
}

// grow adds copies of the first job until there are n.
func grow(b *testing.B, journal string, n int) {
	b.Helper()
	text, err := os.ReadFile(journal)
	if err != nil {
		b.Fatal(err)
	}
	var event map[string]any
	if err := json.Unmarshal(text, &event); err != nil {
		b.Fatal(err)
	}
	var all bytes.Buffer
	for run := 1; run < n; run++ {
		event["run"] = run
		line, err := json.Marshal(event)
		if err != nil {
			b.Fatal(err)
		}
		all.Write(append(line, '\n'))
	}
	file, err := os.OpenFile(journal, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // it was written
	if _, err := file.Write(all.Bytes()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkQueue hands in durable jobs on a disk, in turns with an empty command, for queues of different length; and
// shows a queue of 100,000.
func BenchmarkQueue(b *testing.B) {
	gpuard := buildProgram(b)
	const rounds = 200
	for b.Loop() {
		fmt.Printf("\nsubmit on a disk, %d rounds in turns with env\n%8s %10s %10s %10s %10s\n", rounds, "queued", "p50", "p99", "env p50", "over env")
		var first time.Duration
		for _, n := range []int{1, 1_000, 10_000} {
			env, _ := newQueue(b, gpuard, n)
			timed(b, command([]string{gpuard, "submit", "-q", "--hold", "--cpu", "--", "true"}, env)) // reads what grow has added
			var ours, theirs []time.Duration
			for range rounds {
				ours = append(ours, timed(b, command([]string{gpuard, "submit", "-q", "--hold", "--cpu", "--", "true"}, env)))
				theirs = append(theirs, timed(b, command([]string{"env", "true"}, env)))
			}
			over := quantile(ours, 0.5) - quantile(theirs, 0.5)
			if n == 1 {
				first = over
			}
			fmt.Printf("%8d %10s %10s %10s %10s (goal: %s: %s; as with one: %s)\n", n, ms(quantile(ours, 0.5)), ms(quantile(ours, 0.99)), ms(quantile(theirs, 0.5)), ms(over),
				ms(goalOverEnv), goal(b, over <= goalOverEnv), goal(b, over <= first+time.Millisecond))
			b.ReportMetric(float64(over.Microseconds())/1000, fmt.Sprintf("ms-over-env-%d", n))
		}
		env, journal := newQueue(b, gpuard, 100_000)
		spent := timed(b, command([]string{gpuard, "queue"}, env))
		fmt.Printf("gpuard queue with 100,000 jobs: %s (goal: 1 s: %s)\n", ms(spent), goal(b, spent < time.Second))
		runnerMemory(b, gpuard, env, journal)
		rate(b, gpuard)
		array(b, gpuard)
	}
}

// runnerMemory measures the runner while 100,000 jobs wait behind one that runs.
func runnerMemory(b *testing.B, gpuard string, env []string, journal string) {
	b.Helper()
	timed(b, command([]string{gpuard, "submit", "-q", "--cpu", "--nice", "-1", "--", "sleep", "3"}, env))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if text, _ := os.ReadFile(journal); bytes.Contains(text, []byte(`"is":"start"`)) {
			break
		}
		if time.Now().After(deadline) {
			b.Fatal("the job did not start within 20 s")
		}
	}
	dir := strings.TrimPrefix(env[0], "XDG_STATE_HOME=")
	kib := 0
	for _, path := range must(filepath.Glob("/proc/[0-9]*/cmdline")) {
		if words, _ := os.ReadFile(path); bytes.Contains(words, []byte("__jobs\x00"+dir)) {
			status, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
			_, rest, _ := strings.Cut(string(status), "VmHWM:")
			_, _ = fmt.Sscan(rest, &kib)
		}
	}
	fmt.Printf("the runner with 100,000 jobs: %d MB (goal: 100 MB: %s)\n", kib>>10, goal(b, kib > 0 && kib < 100<<10))
	b.ReportMetric(float64(kib>>10), "MB-runner")
}

func must[T any](value T, _ error) T { return value }

// array hands in 1,000 durable jobs with one command, and waits until all have run.
func array(b *testing.B, gpuard string) {
	b.Helper()
	env := []string{"XDG_STATE_HOME=" + b.TempDir()}
	began := time.Now()
	timed(b, command([]string{gpuard, "submit", "-q", "--cpu", "--array", "1-1000", "--", "true"}, env))
	timed(b, command([]string{gpuard, "wait", "1-1000"}, env))
	each := 1000 / time.Since(began).Seconds()
	fmt.Printf("%-40s %8.0f jobs/s (goal: 500: %s)\n", "gpuard submit --array, end to end", each, goal(b, each >= 500))
	b.ReportMetric(each, "jobs/s-array")
	spoolerRate(b)
	clusterRate(b)
}

// spoolerRate measures task-spooler, where it is installed: its queue is in memory.
func spoolerRate(b *testing.B) {
	b.Helper()
	if _, err := exec.LookPath("tsp"); err != nil {
		fmt.Println("task-spooler is not installed: apt-get install task-spooler")
		return
	}
	const n = 200
	env := []string{"TS_SOCKET=" + filepath.Join(b.TempDir(), "socket"), "TMPDIR=" + b.TempDir()}
	timed(b, command([]string{"tsp", "-S", "2"}, env))
	began := time.Now()
	for range n {
		timed(b, command([]string{"tsp", "true"}, env))
	}
	timed(b, command([]string{"tsp", "-w"}, env))
	fmt.Printf("%-40s %8.0f jobs/s\n", "task-spooler, not durable", n/time.Since(began).Seconds())
	timed(b, command([]string{"tsp", "-K"}, env))
}

// clusterRate measures a real Slurm on this machine, where it can be started: handing in, and an array to its end.
func clusterRate(b *testing.B) {
	b.Helper()
	if why := slurm.FindMissing(); why != "" {
		fmt.Println(why)
		return
	}
	cluster := slurm.Start(b, slurm.Options{})
	const n = 40
	var each []time.Duration
	for range n {
		each = append(each, timed(b, cluster.Command("sbatch", "--hold", "-o", "/dev/null", "--wrap", "true")))
	}
	spent := timed(b, cluster.Command("sbatch", "--wait", "-o", "/dev/null", "--array", fmt.Sprintf("1-%d", n), "--wrap", "true"))
	fmt.Printf("%-40s %8.1f jobs/s\n", "Slurm, sbatch --array, end to end", n/spent.Seconds())
	fmt.Printf("%-40s %10s p50 %10s p99\n", "Slurm, sbatch --hold", ms(quantile(each, 0.5)), ms(quantile(each, 0.99)))
}

// rate lets jobs that were handed in before run.
func rate(b *testing.B, gpuard string) {
	b.Helper()
	const n = 1000
	env, journal := newQueue(b, gpuard, n)
	text, err := os.ReadFile(journal)
	if err == nil {
		err = os.WriteFile(journal, bytes.ReplaceAll(text, []byte(`"held":true,`), nil), 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	timed(b, command(append([]string{gpuard, "wait"}, numbersTo(n)...), env))
	ours := float64(n) / time.Since(began).Seconds()
	fmt.Printf("%-40s %8.0f jobs/s\n", "gpuard, durable jobs that do nothing", ours)
	b.ReportMetric(ours, "jobs/s")
	for name, argv := range map[string][]string{"xargs -P2": {"xargs", "-P2", "-n1", "true"}, "GNU parallel --joblog": {"parallel", "-j2", "--joblog", filepath.Join(b.TempDir(), "log"), "true"}} {
		if _, err := exec.LookPath(argv[0]); err != nil {
			continue
		}
		c := command(argv, env)
		c.Stdin = strings.NewReader(strings.Join(numbersTo(n), "\n") + "\n")
		spent := timed(b, c)
		fmt.Printf("%-40s %8.0f jobs/s\n", name, float64(n)/spent.Seconds())
	}
}

func numbersTo(n int) (words []string) {
	for i := range n {
		words = append(words, strconv.Itoa(i+1))
	}
	return words
}
