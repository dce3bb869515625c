package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/trend"
	"gpuard/internal/gate"
)

// residentKiB is what the page has for itself, in KiB.
func (p *website) residentKiB() int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	kib, _ := strconv.Atoi(strings.Fields(rest)[0])
	return kib
}

// writeLastDay is a home in which a gpuard serve has kept the last day of so many GPUs.
func writeLastDay(t *testing.T, gpus int) string {
	t.Helper()
	state := quietDir(t)
	folder := homeStatePath(state, "serve")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	var text []byte
	for i := range 24 * 60 {
		m := trend.Minute{At: time.Now().Truncate(time.Minute).Add(time.Duration(i-24*60) * time.Minute), Devices: map[gpu.UUID]trend.Mean{}}
		for d := range gpus {
			v := float64(i) + 1.0/3
			m.Devices[gpu.UUID(fakeUUID(d))] = trend.Mean{Load: &v, Memory: &v, Temperature: &v, Power: &v}
		}
		line, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, line...), '\n')
	}
	if err := os.WriteFile(filepath.Join(folder, "day"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return state
}

// TestServeUnread: clients that ask for the whole day and read nothing share one answer: of those of one second. A busy machine
// takes several seconds for all of them.
func TestServeUnread(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(8)...)
	r.env = append(r.env, "XDG_STATE_HOME="+writeLastDay(t, 8))
	p := r.startServe()
	size := len(p.get("/api/day").body)
	if size < 1<<20 {
		t.Fatalf("the day has only %d bytes", size)
	}
	before := p.residentKiB()
	for i := range 300 {
		c, err := net.DialTimeout("tcp", strings.TrimPrefix(p.base, "http://"), 10*time.Second)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		if _, err := c.Write([]byte("GET /api/day HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		if got := p.get("/api/status"); got.code != http.StatusOK {
			t.Errorf("%d: %s", got.code, got.body)
		}
	}
	if grown := p.residentKiB() - before; grown > 300*size/2>>10 {
		t.Errorf("300 clients that do not read %d bytes cost %d KiB", size, grown)
	}
}

// TestServeOpenly: a page at all addresses says by which name it is found, and takes no token without TLS.
func TestServeOpenly(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	host := must(os.Hostname())
	cmd := r.viewCommand("serve", "--listen", "0.0.0.0:0")
	heard := &outputBuffer{}
	cmd.Stderr = heard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	waitUntil(t, "it says where: "+heard.String(), func() bool { return strings.Contains(heard.String(), "http://"+host+":") })
	if strings.Contains(heard.String(), "[::]") {
		t.Error(heard.String())
	}
	for _, address := range []string{"0.0.0.0:0", "[::]:0"} {
		got := runCommand(t, r.viewCommand("serve", "--listen", address, "--token-file", filepath.Join(t.TempDir(), "token")))
		if got.code != 2 || !strings.Contains(got.err, "add --tls-cert and --tls-key") {
			t.Errorf("%s with a token and no TLS: exit %d, %s", address, got.code, got.err)
		}
	}
}

// TestServeDCGMFolder: files of a killed gpuard serve are removed by the next one; a folder that another user can change,
// or a link in it, gets nothing.
func TestServeDCGMFolder(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	jobs := t.TempDir()
	p := r.startServe("--dcgm-jobs", jobs)
	job := r.cmd("run", "-q", "--name", "train", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60")
	lease := startToFirstLine(t, job)
	file := filepath.Join(jobs, "0")
	waitUntil(t, "its file is there", func() bool { text, _ := os.ReadFile(file); return strings.HasPrefix(string(text), "train "+lease+" (") })
	_, _ = p.cmd.Process.Kill(), p.cmd.Wait()
	_, _ = job.Process.Kill(), job.Wait()
	waitUntil(t, "the lease has ended", func() bool { s, _ := r.readStatus(); return len(s.Devices[0].Leases) == 0 })
	checkEqual(t, "what the killed one has left", len(must(os.ReadDir(jobs))), 1)
	p = r.startServe("--dcgm-jobs", jobs)
	checkEqual(t, "what is left beside the next one", len(must(os.ReadDir(jobs))), 0)
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	_ = p.cmd.Wait()
	if err := os.Chmod(jobs, 0o777); err != nil {
		t.Fatal(err)
	}
	if got := runCommand(t, r.viewCommand("serve", "--listen", "127.0.0.1:0", "--dcgm-jobs", jobs)); got.code == 0 || !strings.Contains(got.err, "all users may write") {
		t.Errorf("a folder of everybody: exit %d, %s", got.code, got.err)
	}
	if gate.Has(t, "root") {
		if err := os.Chmod(jobs, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(jobs, aliceUID, aliceUID); err != nil {
			t.Fatal(err)
		}
		if got := runCommand(t, r.viewCommand("serve", "--listen", "127.0.0.1:0", "--dcgm-jobs", jobs)); got.code == 0 || !strings.Contains(got.err, "belongs to uid") {
			t.Errorf("a folder of another user: exit %d, %s", got.code, got.err)
		}
	}
}
