package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sweepRuns is how many runs of a command that does nothing each program starts, in turns of sweepPart.
const (
	sweepRuns = 10_000
	sweepPart = 1_000
	sweepGPUs = 8
)

// BenchmarkSweep runs a command that does nothing very often, on eight devices: with gpuard, and with GNU parallel with
// slot numbers and xargs -P2, which lease nothing, record nothing and write no log. The goals are to be no slower than
// parallel and half as fast as xargs. The runs' folders are on a disk that is at rest.
func BenchmarkSweep(b *testing.B) {
	gpuard := buildProgram(b)
	place := overDemo(b)
	inMemory(b, &place)
	work := b.TempDir()
	fmt.Printf("\na folder and a file in it take %s on this disk\n", ms(atRest(b, work)))
	parallel, err := exec.LookPath("parallel")
	if err != nil {
		fmt.Println("GNU parallel is not installed: apt-get install parallel")
	}
	numbers := make([]string, sweepPart)
	for i := range numbers {
		numbers[i] = strconv.Itoa(i)
	}
	var ours, theirs, xargs []time.Duration // of each turn
	var oursCPU, theirsCPU time.Duration
	turns := 0
	for b.Loop() {
		for range sweepRuns / sweepPart {
			turns++
			c := command([]string{gpuard, "sweep", "--quiet", "--dir", filepath.Join(work, strconv.Itoa(turns)), "--machine", fmt.Sprintf("demo:%dxL4", sweepGPUs),
				"--over", fmt.Sprintf("n=1..%d", sweepPart), "--", "true"}, place.env)
			ours = append(ours, timed(b, c))
			oursCPU += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
			c = command([]string{"xargs", "-P2", "-n1", "true"}, nil)
			c.Stdin = strings.NewReader(strings.Join(numbers, "\n") + "\n")
			xargs = append(xargs, timed(b, c))
			if parallel == "" {
				continue
			}
			c = command([]string{parallel, "-j", strconv.Itoa(sweepGPUs), "CUDA_VISIBLE_DEVICES=$(({%}-1)) true"}, nil)
			c.Stdin = strings.NewReader(strings.Join(numbers, "\n") + "\n")
			theirs = append(theirs, timed(b, c))
			theirsCPU += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
		}
	}
	rate := func(spent []time.Duration) float64 { return sweepPart / max(quantile(spent, 0.5).Seconds(), 1e-9) } // p50: a disk has slow moments
	each := func(cpu time.Duration) string { return ms(cpu / time.Duration(turns*sweepPart)) }
	fmt.Printf("\n%d runs of true on %d devices, in turns of %d\n", turns*sweepPart, sweepGPUs, sweepPart)
	fmt.Printf("%-36s %8.0f runs/s %9s CPU each\n", "gpuard sweep (leases, logs, journal)", rate(ours), each(oursCPU))
	fmt.Printf("%-36s %8.0f runs/s\n", "xargs -P2", rate(xargs))
	fmt.Printf("goal: at least half of xargs: %s (%.2f)\n", goal(b, 2*rate(ours) >= rate(xargs)), rate(ours)/rate(xargs))
	b.ReportMetric(rate(ours)/rate(xargs), "of-xargs")
	if parallel != "" {
		fmt.Printf("%-36s %8.0f runs/s %9s CPU each\n", "GNU parallel, slot numbers", rate(theirs), each(theirsCPU))
		fmt.Printf("goal: at least as many as GNU parallel: %s\n", goal(b, rate(ours) >= rate(theirs)))
	}
	fmt.Println()
	b.ReportMetric(rate(ours), "runs/s")
}

// atRest waits until the disk makes a folder and a file as fast as usual, and is how long it takes for them (p50). For six
// minutes after thousands of files were removed, ext4 looks at each of them for every one that is made (recently_deleted
// in fs/ext4/ialloc.c), which takes ten times as long; the run before this one has removed some. A disk that is always
// slow is waited for in vain, and measured.
func atRest(b *testing.B, work string) time.Duration {
	b.Helper()
	const usual, most, probes = 60 * time.Microsecond, 7 * time.Minute, 100
	probe := func(turn int) time.Duration {
		var spent []time.Duration
		for i := range probes {
			dir, start := filepath.Join(work, fmt.Sprintf("probe-%d-%d", turn, i)), time.Now()
			err := os.Mkdir(dir, 0o700)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "log"), nil, 0o600)
			}
			if spent = append(spent, time.Since(start)); err != nil {
				b.Fatal(err)
			}
		}
		return quantile(spent, 0.5)
	}
	took := probe(0)
	if took > usual {
		fmt.Println("waiting for the disk, on which many files were removed: seven minutes at most")
	}
	for turn, end := 1, time.Now().Add(most); took > usual && time.Now().Before(end); turn++ {
		time.Sleep(10 * time.Second)
		took = probe(turn)
	}
	return took
}

// inMemory puts the leases where a machine that root has set up has them, which is no disk (/run): on ext4 a lease takes
// longer the more leases have ended in the last minute. The runs' folders and the journal stay on the disk.
func inMemory(b *testing.B, p *place) {
	b.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "gpuard-bench-")
	if err != nil {
		fmt.Println("the leases are on a disk:", err)
		return
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	p.env = append(p.env, "GPUARD_STATE="+dir)
}

func timed(b *testing.B, c *exec.Cmd) time.Duration {
	b.Helper()
	start := time.Now()
	if out, err := c.CombinedOutput(); err != nil {
		b.Fatalf("%s: %v\n%s", c.Path, err, out)
	}
	return time.Since(start)
}
