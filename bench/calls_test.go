package bench

import (
	"bufio"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/test/nvidia"
)

// BenchmarkCalls counts the calls of NVIDIA's kernel driver, over NVIDIA's own libraries and four idle A100 that are pretended: of
// nvidia-smi, gpuard run and status, of a run that waits and of its start when the lease before it ends, and of gpuard serve. On a card
// that works each takes 0.1 ms and more; the times are those of everything else.
func BenchmarkCalls(b *testing.B) {
	libraries := nvidia.Libraries(b)
	lab := nvidia.New(b, libraries[len(libraries)-1], "idle")
	dir := filepath.Dir(buildProgram(b))
	build(b, filepath.Join(dir, "gpuard-view"))
	gpuard, place := filepath.Join(dir, "gpuard"), newPlace(b, lab.Env()...)
	fmt.Printf("\n%-52s %6s %10s\n", "driver "+lab.Library.Version, "calls", "time")
	count := func(name string, do func()) int {
		began := time.Now()
		do()
		spent, calls := time.Since(began), lab.CountNewCalls()
		fmt.Printf("%-52s %6d %10s\n", name, calls, ms(spent))
		return calls
	}
	once := func(argv ...string) func() {
		return func() {
			if out, err := command(argv, place.env).CombinedOutput(); err != nil {
				b.Errorf("%q: %v\n%s", argv, err, out)
			}
		}
	}
	for b.Loop() {
		smi := filepath.Join(lab.Library.Folder, "nvidia-smi")
		its := count("nvidia-smi, index, memory and load", once(smi, "--query-gpu=index,memory.used,utilization.gpu", "--format=csv"))
		ours := count("gpuard run", once(place.run(gpuard, "true")...))
		count("gpuard run --device 2", once(gpuard, "run", "--quiet", "--no-wait", "--device", "2", "--", "true"))
		count("gpuard status", once(gpuard, "status"))
		wake(b, lab, place, gpuard, count)
		serve := command([]string{gpuard, "serve", "--listen", "127.0.0.1:0"}, place.env)
		out, err := serve.StderrPipe()
		if err == nil {
			err = serve.Start()
		}
		if err != nil {
			b.Fatal(err)
		}
		if line, _ := bufio.NewReader(out).ReadString('\n'); !strings.Contains(line, "http") {
			b.Fatalf("no address: %s", line)
		}
		time.Sleep(3 * time.Second)
		lab.CountNewCalls()
		count("gpuard serve, for 10 s", func() { time.Sleep(10 * time.Second) })
		_, _ = serve.Process.Kill(), serve.Wait()
		ratio := float64(ours) / float64(its)
		fmt.Printf("goal: run at most 1.25 times nvidia-smi: %.2f, %s\n\n", ratio, goal(b, ratio <= 1.25))
		b.ReportMetric(ratio, "calls/nvidia-smi")
	}
}

// wake counts what a request that waits asks once the lease before it has ended.
func wake(b *testing.B, lab *nvidia.InventedMachine, place place, gpuard string, count func(string, func()) int) {
	b.Helper()
	first := command([]string{gpuard, "run", "--quiet", "--gpus", "4", "--", "sleep", "1000"}, place.env)
	if err := first.Start(); err != nil {
		b.Fatal(err)
	}
	time.Sleep(time.Second)
	waiting := command([]string{gpuard, "run", "--quiet", "--", "true"}, place.env)
	if err := waiting.Start(); err != nil {
		b.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	lab.CountNewCalls()
	count("gpuard run that waits, for 5 s", func() { time.Sleep(5 * time.Second) })
	count("gpuard run that waits, when the lease before it ends", func() {
		_, _ = first.Process.Kill(), first.Wait()
		if err := waiting.Wait(); err != nil {
			b.Error(err)
		}
	})
}
