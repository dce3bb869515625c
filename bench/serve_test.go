package bench

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Goals of gpuard serve on eight devices with nothing running.
const (
	goalIdleCore  = 0.01     // of one processor, all processes of gpuard serve together
	goalPagesCore = 0.10     // with 200 open pages
	goalResident  = 60 << 20 // bytes, all processes together
	openPages     = 200
	watchedFor    = 20 * time.Second
)

// BenchmarkServe measures what gpuard serve costs while nothing runs, and with 200 open pages.
func BenchmarkServe(b *testing.B) {
	dir := filepath.Dir(buildProgram(b))
	build(b, filepath.Join(dir, "gpuard-view"))
	place := overFake(b, 8)
	for b.Loop() {
		cmd := command([]string{filepath.Join(dir, "gpuard"), "serve", "--listen", "127.0.0.1:0"}, append(place.env, "XDG_STATE_HOME="+b.TempDir()))
		out, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			b.Fatal(err)
		}
		line, _ := bufio.NewReader(out).ReadString('\n')
		address := regexp.MustCompile(`http://[0-9.:]+`).FindString(line)
		if address == "" {
			b.Fatalf("no address: %s", line)
		}
		time.Sleep(3 * time.Second)
		idle, resident := use(b, cmd.Process.Pid)
		fmt.Printf("\ngpuard serve, 8 devices, nothing running: %.2f %% of a core (goal: 1 %%: %s), %d MB resident (goal: 60 MB: %s)\n",
			100*idle, goal(b, idle < goalIdleCore), resident>>20, goal(b, resident < goalResident))
		for range openPages {
			response, err := http.Get(address + "/events")
			if err != nil {
				b.Fatal(err)
			}
			defer response.Body.Close()
			go func() { _, _ = io.Copy(io.Discard, response.Body) }()
		}
		end := make(chan struct{})
		go func() { // something changes for every page each second
			for celsius := 30; ; celsius = 30 + (celsius+1)%40 {
				select {
				case <-end:
					return
				case <-time.After(time.Second):
					place.driver.SetValue(0, "temperature", strconv.Itoa(celsius))
				}
			}
		}()
		time.Sleep(2 * time.Second)
		pages, resident := use(b, cmd.Process.Pid)
		fmt.Printf("with %d open pages: %.1f %% of a core (goal: 10 %%: %s), %d MB resident\n", openPages, 100*pages, goal(b, pages < goalPagesCore), resident>>20)
		close(end)
		b.ReportMetric(100*idle, "%core-idle")
		b.ReportMetric(100*pages, "%core-200-pages")
		_, _ = cmd.Process.Kill(), cmd.Wait()
	}
}

// use is the processor time of a process and its children as a part of the time that passes, and their memory.
func use(b *testing.B, pid int) (core float64, resident int64) {
	b.Helper()
	before, _ := spent(pid)
	time.Sleep(watchedFor)
	after, resident := spent(pid)
	return (after - before).Seconds() / watchedFor.Seconds(), resident
}

// spent is the processor time of a process and its children so far, and their memory: a page of the program that both
// have counts once (Pss of proc_pid_smaps(5)).
func spent(pid int) (processor time.Duration, resident int64) {
	all := []string{strconv.Itoa(pid)}
	for _, list := range must(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))) {
		children, _ := os.ReadFile(list)
		all = append(all, strings.Fields(string(children))...)
	}
	for _, p := range all {
		text, err := os.ReadFile("/proc/" + p + "/stat")
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if err != nil || len(fields) < 13 {
			continue
		}
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		processor += time.Duration(user+system) * 10 * time.Millisecond
		memory, _ := os.ReadFile("/proc/" + p + "/smaps_rollup")
		_, rest, _ = strings.Cut(string(memory), "\nPss:")
		var kib int64
		_, _ = fmt.Sscan(rest, &kib)
		resident += kib << 10
	}
	return processor, resident
}
