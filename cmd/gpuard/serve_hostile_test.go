package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/test/pace"
)

// checkAlive: the page answers quickly, the process is the same, and has given back what the attack took.
func (p *website) checkAlive(before int) {
	p.t.Helper()
	began := time.Now()
	if got := p.get("/api/status"); got.code != http.StatusOK || time.Since(began) > 5*time.Second {
		p.t.Errorf("%d after %v: %s", got.code, time.Since(began), got.body)
	}
	waitUntil(p.t, "its descriptors are closed", func() bool { return p.countDescriptors() <= before+10 })
}

func (p *website) countDescriptors() int {
	return len(must(os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))))
}

// TestServeMalformed: 10,000 requests that are none, or ask for odd things.
func TestServeMalformed(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	p := r.startServe("--token-file", filepath.Join(t.TempDir(), "token"))
	before := p.countDescriptors()
	random := rand.New(rand.NewPCG(3, 4))
	address := strings.TrimPrefix(p.base, "http://")
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	for i := range 10_000 {
		line := pick("GET", "POST", "PUT", "get", "\x00", "CONNECT", "") + " " +
			pick("/", "/../../etc/passwd", "/chart/x/load.svg", "/chart//", "/api/"+strings.Repeat("a", random.IntN(5000)), "/%00", "/%zz", "*", "//evil.example.org/", "/<script>", "/events?x=%0d%0a", "/api/cancel") + " " +
			pick("HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "HTTP/2.0", "") + "\r\n"
		headers := pick("Host: 127.0.0.1\r\n", "Host: evil\r\n", "", "Host: a\r\nHost: b\r\n", "Host: 127.0.0.1\r\nContent-Length: -1\r\n", "Host: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
			"Host: 127.0.0.1\r\nX: "+strings.Repeat("y", random.IntN(40_000))+"\r\n", "Host: 127.0.0.1\r\nAuthorization: Bearer \xff\xfe\r\n", "Host: [::1\r\n", "Host: 127.0.0.1\r\nAccept-Language: "+strings.Repeat("zh,", 100)+"\r\n")
		body := pick("", "\r\n", "\r\n{\"arguments\":", "\r\nffffffffffffffff\r\n", "\r\n\x00\x01\x02")
		c, err := net.DialTimeout("tcp", address, 10*time.Second)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		_, _ = c.Write([]byte(line + headers + "Connection: close\r\n" + body))
		if i%50 == 0 { // the others do not wait for their answer
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			answer, _ := io.ReadAll(io.LimitReader(c, 1<<20))
			if bytes.Contains(answer, []byte("root:x:0")) || bytes.Contains(answer, []byte("<script>")) {
				t.Errorf("%q is answered with %s", line, answer)
			}
		}
		_ = c.Close()
	}
	p.checkAlive(before)
}

// TestServeSlow: clients that send or read nothing for long, and 1,000 connections, keep nobody else waiting.
func TestServeSlow(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	p := r.startServe()
	before := p.countDescriptors()
	address := strings.TrimPrefix(p.base, "http://")
	var open []net.Conn
	for i := range 1000 {
		c, err := net.DialTimeout("tcp", address, 10*time.Second)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		switch i % 3 {
		case 0: // a request that does not end
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "))
		case 1: // an open page that reads nothing
			_, _ = c.Write([]byte("GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"))
		}
		open = append(open, c)
	}
	began := time.Now()
	for _, path := range []string{"/", "/metrics", "/api/status"} {
		if got := p.get(path); got.code != http.StatusOK {
			t.Errorf("%s: %d", path, got.code)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the answers took %v", took)
	}
	for _, c := range open {
		_ = c.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	p.checkAlive(before)
}

// TestServeLong: two hours at a hundred times the speed: memory stays flat, the file is bounded, and there is a minute for
// every minute.
func TestServeLong(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	state := quietDir(t)
	r.env = append(r.env, "TIMES=100", "XDG_STATE_HOME="+state)
	p := r.startServe()
	memory := func() int {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
		_, rest, _ := strings.Cut(string(text), "RssAnon:")
		kib, _ := strconv.Atoi(strings.Fields(rest)[0])
		return kib
	}
	speed, length := pace.Start(t), time.Duration(soakCount(72, 8))*time.Second
	time.Sleep(length / 4)
	early := memory()
	time.Sleep(length * 3 / 4)
	if late := memory(); late > early+early/2+4096 {
		t.Errorf("it grew from %d to %d KiB", early, late)
	}
	if info, err := os.Stat(filepath.Join(homeStatePath(state, "serve"), "day")); err != nil || info.Size() > 2*24*60*200*2 {
		t.Errorf("the file of the last day: %v, %v", info, err)
	}
	var day struct {
		Minutes []struct{ At time.Time }
	}
	width := 600 * time.Millisecond
	waitUntil(t, "there are as many minutes as have gone by", func() bool {
		if err := json.Unmarshal([]byte(p.get("/api/day").body), &day); err != nil {
			t.Fatal(err)
		}
		return len(day.Minutes) >= int(length/width)-3
	})
	most := speed.ScaleClock(2 * width) // one may be lost to a busy machine
	for i := 1; i < len(day.Minutes); i++ {
		if gap := day.Minutes[i].At.Sub(day.Minutes[i-1].At); gap > most {
			t.Errorf("a gap of %v before minute %d", gap, i)
		}
	}
}

// TestServeSame: status, the page, the metrics and JSON say the same at the same moment.
func TestServeSame(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(3)...)
	r.SetValue(0, "utilization", "37")
	r.SetValue(1, "temperature", "71")
	p := r.startServe()
	lease := startToFirstLine(t, r.cmd("run", "-q", "--device", "2", "--", "sh", "-c", "echo $GPUARD_LEASE; exec "+r.Job+" --gpu 2 --mem 3G"))
	waitUntil(t, "its memory is read", func() bool { return *p.readStatus().Devices[2].MemoryUsed >= 3<<30 })
	cmd := r.viewCommand("top")
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	screen := startOnTerminal(t, cmd)
	screen.waitForScreen("37%")
	screen.waitForScreen("71C")
	screen.waitForScreen("3.0/80G")
	screen.waitForScreen(lease)
	screen.typeKeys("q")
	_ = cmd.Wait()
	waitUntil(t, "all say the same", func() bool {
		here, _ := r.readStatus()
		there, text, page := p.readStatus(), p.get("/metrics").body, p.get("/").body
		for i, d := range here.Devices {
			o := there.Devices[i]
			number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
			if *d.MemoryUsed != *o.MemoryUsed || *d.Utilization != *o.Utilization || *d.Temperature != *o.Temperature || d.Use != o.Use || len(d.Leases) != len(o.Leases) ||
				!strings.Contains(text, fmt.Sprintf("gpuard_gpu_memory_used_bytes{uuid=\"%s\"} %s\n", d.UUID, number(float64(*d.MemoryUsed)))) ||
				!strings.Contains(text, fmt.Sprintf("gpuard_gpu_utilization_ratio{uuid=\"%s\"} %s\n", d.UUID, number(*d.Utilization))) ||
				!strings.Contains(text, fmt.Sprintf("gpuard_gpu_temperature_celsius{uuid=\"%s\"} %d\n", d.UUID, *d.Temperature)) ||
				!strings.Contains(page, fmt.Sprintf("%d °C", *d.Temperature)) || !strings.Contains(page, fmt.Sprintf("%.0f %%", 100**d.Utilization)) || !strings.Contains(page, fmt.Sprintf(`data-is="memory" data-value="%d" data-of="%d"`, *d.MemoryUsed, *d.MemoryTotal)) {
				return false
			}
		}
		return strings.Contains(page, lease) && strings.Contains(text, `lease="`+lease+`"`)
	})
}
