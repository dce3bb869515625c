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
)

// newQueue is a queue on a disk with n held jobs.
func newQueue(b *testing.B, gpuard string, n int) (env []string, journal string) {
	b.Helper()
	home := b.TempDir()
	env = []string{"XDG_STATE_HOME=" + home}
	journal = filepath.Join(home, "gpuard", "queue", "journal")
	timed(b, command([]string{gpuard, "submit", "-q", "--hold", "--cpu", "--", "true"}, env))
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
		for _, n := range []int{1, 1_000, 10_000} {
			env, _ := newQueue(b, gpuard, n)
			timed(b, command([]string{gpuard, "submit", "-q", "--hold", "--cpu", "--", "true"}, env)) // reads what grow has added
			var ours, theirs []time.Duration
			for range rounds {
				ours = append(ours, timed(b, command([]string{gpuard, "submit", "-q", "--hold", "--cpu", "--", "true"}, env)))
				theirs = append(theirs, timed(b, command([]string{"env", "true"}, env)))
			}
			over := quantile(ours, 0.5) - quantile(theirs, 0.5)
			fmt.Printf("%8d %10s %10s %10s %10s\n", n, ms(quantile(ours, 0.5)), ms(quantile(ours, 0.99)), ms(quantile(theirs, 0.5)), ms(over))
			b.ReportMetric(float64(over.Microseconds())/1000, fmt.Sprintf("ms-over-env-%d", n))
		}
		env, journal := newQueue(b, gpuard, 100_000)
		spent := timed(b, command([]string{gpuard, "queue"}, env))
		fmt.Printf("gpuard queue with 100,000 jobs: %s (goal: 1 s: %s)\n", ms(spent), verdict(spent < time.Second))
		rate(b, gpuard, env, journal)
	}
}

// rate lets jobs that were handed in before run.
func rate(b *testing.B, gpuard string, _ []string, _ string) {
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
