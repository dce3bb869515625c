package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

// processorTime is how much processor time the page and the process that reads for it have used.
func (p *website) processorTime() (used time.Duration) {
	const tick = 10 * time.Millisecond // CLK_TCK is 100 on every Linux that Go runs on
	pids := []string{strconv.Itoa(p.cmd.Process.Pid)}
	threads, _ := filepath.Glob("/proc/" + pids[0] + "/task/*/children") // each has those that it started
	for _, path := range threads {
		text, _ := os.ReadFile(path)
		pids = append(pids, strings.Fields(string(text))...)
	}
	for _, pid := range pids {
		stat, _ := os.ReadFile("/proc/" + pid + "/stat")
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 12 {
			user, _ := strconv.Atoi(fields[11])
			system, _ := strconv.Atoi(fields[12])
			used += time.Duration(user+system) * tick
		}
	}
	return used
}

// TestServeClients: 200 pages that are open, on a machine of 8 GPUs whose load changes each second, cost little, and so does none; all
// of them get what happens.
func TestServeClients(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(8)...)
	r.env = append(r.env, "XDG_STATE_HOME="+writeLastDay(t, 8))
	p := r.startServe()
	seconds := soakCount(60, 6)
	cost := func() float64 {
		began, before := time.Now(), p.processorTime()
		for n := range seconds {
			for gpu := range 8 {
				r.SetValue(gpu, "utilization", strconv.Itoa((n*7+gpu*11)%100))
			}
			time.Sleep(time.Second)
		}
		return 100 * float64(p.processorTime()-before) / float64(time.Since(began))
	}
	idle := cost()
	var got [100]atomic.Int64 // as many as one user of this machine may have
	for i := range got {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.base+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept-Language", []string{"en", "zh"}[i%2])
		response, err := http.DefaultClient.Do(request)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("page %d: %v", i, err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		go func() { _, _ = io.Copy(byteCount{&got[i]}, response.Body) }()
	}
	pages := len(got)
	if gate.Has(t, "root") {
		pages += openPagesAsOther(t, p, 100)
	}
	busy := cost()
	least := got[0].Load()
	for i := range got {
		least = min(least, got[i].Load())
	}
	t.Logf("without a page %.1f %% of a core, with %d %.1f %%; %d KiB; the page that got least got %d bytes", idle, pages, busy, p.residentKiB(), least)
	if p.residentKiB() > 60<<10 && !raceEnabled {
		t.Errorf("it has %d KiB", p.residentKiB())
	}
	if least < int64(4_000*seconds/2) {
		t.Errorf("a page got %d bytes in %d s", least, seconds)
	}
}

// openPagesAsOther opens pages as another user of the machine, and reads them.
func openPagesAsOther(t *testing.T, p *website, n int) int {
	t.Helper()
	host, port, err := net.SplitHostPort(strings.TrimPrefix(p.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	const script = `for i in $(seq "$2"); do (exec 3<>/dev/tcp/$0/$1; printf 'GET /events HTTP/1.1\r\nHost: %s\r\n\r\n' "$0" >&3; exec cat <&3 >/dev/null) & done; echo open; wait`
	cmd := exec.Command("bash", "-c", script, host, port, strconv.Itoa(n))
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: aliceUID, Gid: aliceUID}, Setpgid: true}
	startToFirstLine(t, cmd)
	t.Cleanup(func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	return n
}

// byteCount counts what is written to it.
type byteCount struct{ n *atomic.Int64 }

// Write implements io.Writer.
func (c byteCount) Write(text []byte) (int, error) {
	c.n.Add(int64(len(text)))
	return len(text), nil
}
