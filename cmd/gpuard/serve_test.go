package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/status"
	"gpuard/test/fakegpu"
)

// viewFolder is where this process builds gpuard-view: its libraries would make every other program of the tests slower.
func viewFolder() string { return filepath.Join(testPlace.Root(), "view") }

// viewCommand is cmd for the commands that gpuard-view has. TIMES=10 makes them ten times as fast. Files of the system are below
// $SITE, an empty folder unless the rack has one: else the terminals of whoever runs the tests would be told of troubles.
func (r *fakeDriverMachine) viewCommand(args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := r.cmd(args...)
	if !slices.ContainsFunc(r.env, func(pair string) bool { return strings.HasPrefix(pair, "SITE=") }) {
		cmd.Env = append(cmd.Env, "SITE="+makeHostRoot(r.t))
	}
	cmd.Env = append(cmd.Env, "PATH="+buildView(r.t)+":"+os.Getenv("PATH"))
	return cmd
}

// buildView builds it once, and returns its folder.
func buildView(t testing.TB) string {
	t.Helper()
	folder := viewFolder()
	program := filepath.Join(folder, "gpuard-view")
	if err := os.Mkdir(folder, 0o755); err != nil { // another test does
		waitUntil(t, "gpuard-view is built", func() bool { _, err := os.Stat(program); return err == nil })
		return folder
	}
	args := []string{"build", "-o", program + ".new", "gpuard/test/view"}
	if raceEnabled {
		args = slices.Insert(args, 1, "-race")
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("cannot build gpuard-view: %v\n%s", err, out)
	}
	if err := os.Rename(program+".new", program); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestViewStarts: no package that gpuard-view is linked with takes its time before main. A version of go-runewidth made a table
// then, in 20 ms of 30.
func TestViewStarts(t *testing.T) {
	t.Parallel()
	program := filepath.Join(buildView(t), "gpuard-view")
	const most = 5               // ms
	var spent map[string]float64 // by package, in ms, the least of the starts
	slow := func() (found []string) {
		for name, took := range spent {
			if took > most && !raceEnabled {
				found = append(found, fmt.Sprintf("%s takes %.1f ms", name, took))
			}
		}
		return found
	}
	for n := 0; n < 2 || n < 100 && len(slow()) > 0; n++ { // on a busy machine a package may lose the processor
		cmd := exec.Command(program, "--version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		now := map[string]float64{}
		for _, line := range regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, (\S+) ms clock`).FindAllStringSubmatch(string(out), -1) {
			took, err := strconv.ParseFloat(line[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			if before, again := spent[line[1]]; again {
				took = min(took, before)
			}
			now[line[1]] = took
		}
		spent = now
	}
	if len(spent) < 10 {
		t.Fatalf("%d packages", len(spent))
	}
	if found := slow(); len(found) > 0 {
		t.Error(found)
	}
}

// website is a gpuard serve that runs.
type website struct {
	t    testing.TB
	cmd  *exec.Cmd
	base string // its address
	said *outputBuffer
}

// startServe starts gpuard serve on a port of its own.
func (r *fakeDriverMachine) startServe(args ...string) *website {
	r.t.Helper()
	return servePage(r.t, r.viewCommand(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...))
}

func servePage(t testing.TB, cmd *exec.Cmd) *website {
	t.Helper()
	p := &website{t: t, cmd: cmd, said: &outputBuffer{}}
	cmd.Stderr = p.said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	waitUntil(t, "the page has an address: "+p.said.String(), func() bool {
		p.base = address.FindString(p.said.String())
		return p.base != ""
	})
	waitUntil(t, "the devices were read", func() bool { return p.get("/api/status").code == http.StatusOK })
	return p
}

type response struct {
	code   int
	header http.Header
	body   string
}

func (p *website) get(path string, headers ...string) response {
	p.t.Helper()
	return p.sendRequest(http.MethodGet, path, "", headers...)
}

// sendRequest makes a request; headers are names and values in turn.
func (p *website) sendRequest(method, path, body string, headers ...string) response {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), method, p.base+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		}
	}
	got, err := (&http.Client{Timeout: 20 * time.Second}).Do(request)
	if err != nil {
		return response{body: err.Error()}
	}
	defer got.Body.Close()
	text, _ := io.ReadAll(got.Body)
	return response{got.StatusCode, got.Header, string(text)}
}

func (p *website) readStatus() (s status.Report) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(p.get("/api/status").body), &s); err != nil {
		p.t.Fatal(err)
	}
	return s
}

// TestServe: devices and leases are on the page, in the metrics and in the JSON answers, the same as in status; a change
// is seen at the next reading, of which there is one each second.
func TestServe(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	p := r.startServe()
	lease := startToFirstLine(t, r.cmd("run", "-q", "--device", "1", "--share", "20G", "--", "sh", "-c", "echo $GPUARD_LEASE; exec "+r.Job+" --gpu 1 --mem 2G"))
	readings := map[time.Time]bool{p.readStatus().Taken: true}
	waitUntil(t, "the lease is on the page", func() bool {
		readings[p.readStatus().Taken] = true
		return strings.Contains(p.get("/").body, lease)
	})
	if len(readings) > 3 {
		t.Errorf("the lease was on the page only at the %dth reading", len(readings))
	}
	waitUntil(t, "its memory is known", func() bool {
		return strings.Contains(p.get("/metrics").body, `gpuard_lease_memory_used_bytes{lease="`+lease+`"`)
	})
	here, _ := r.readStatus()
	there := p.readStatus()
	for i, d := range here.Devices {
		o := there.Devices[i]
		checkEqual(t, "device "+strconv.Itoa(i), []any{o.UUID, o.Use, o.Health, len(o.Leases), o.MemoryTotal}, []any{d.UUID, d.Use, d.Health, len(d.Leases), d.MemoryTotal})
		checkContains(t, p.get("/metrics").body,
			fmt.Sprintf(`gpuard_gpu_state{state="%s",uuid="%s"} 1`, d.Use, d.UUID),
			fmt.Sprintf(`gpuard_gpu_memory_total_bytes{uuid="%s"} %s`, d.UUID, strconv.FormatFloat(float64(*d.MemoryTotal), 'g', -1, 64)))
	}
	for _, path := range []string{"/api/queue", "/api/services", "/api/findings", "/api/history", "/api/day", "/api/"} {
		got := p.get(path)
		var object struct{ Schema string }
		if err := json.Unmarshal([]byte(got.body), &object); err != nil || !strings.HasPrefix(object.Schema, "gpuard.") || got.code != http.StatusOK {
			t.Errorf("%s: %d, %v\n%s", path, got.code, err, got.body)
		}
	}
	checkContains(t, p.get("/", "Accept-Language", "zh-CN,zh;q=0.9").body, `<html lang="zh">`, "等待", "运行中")
}

// TestServeGuards: only who means this machine gets an answer, and only who has the token may ask for something.
func TestServeGuards(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	file := filepath.Join(t.TempDir(), "token")
	p := r.startServe("--token-file", file, "--name", "box.example.org")
	token, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	info, _ := os.Stat(file)
	checkEqual(t, "mode of the token", info.Mode().Perm(), os.FileMode(0o600))
	bearer := "Bearer " + strings.TrimSpace(string(token))
	for _, test := range []struct {
		what    string
		headers []string
		code    int
	}{
		{"its address", nil, 200},
		{"localhost", []string{"Host", "localhost:8470"}, 200},
		{"a name it was told", []string{"Host", "BOX.example.org"}, 200},
		{"another name", []string{"Host", "evil.example.org"}, 421},
		{"its own origin", []string{"Origin", p.base}, 200},
		{"another origin", []string{"Origin", "http://evil.example.org"}, 403},
		{"another port", []string{"Origin", "http://127.0.0.1:1"}, 403},
		{"no origin at all", []string{"Origin", "null"}, 403},
		{"another site", []string{"Sec-Fetch-Site", "cross-site"}, 403},
	} {
		for _, path := range []string{"/", "/metrics", "/api/status", "/events"} {
			if path == "/events" && test.code == 200 {
				continue // never ends
			}
			if got := p.get(path, test.headers...); got.code != test.code {
				t.Errorf("%s asked by %s: %d, want %d: %s", path, test.what, got.code, test.code, got.body)
			}
		}
	}
	const jsonType, body = "application/json", `{"arguments": ["0"]}`
	for _, test := range []struct {
		what, path, body string
		headers          []string
		code             int
	}{
		{"without a token", "/api/drain", body, []string{"Content-Type", jsonType}, 401},
		{"with a wrong one", "/api/drain", body, []string{"Content-Type", jsonType, "Authorization", bearer + "x"}, 401},
		{"by another site", "/api/drain", body, []string{"Content-Type", jsonType, "Authorization", bearer, "Origin", "http://evil.example.org"}, 403},
		{"as a form", "/api/drain", "arguments=0", []string{"Content-Type", "application/x-www-form-urlencoded", "Authorization", bearer}, 415},
		{"without words", "/api/drain", `{}`, []string{"Content-Type", jsonType, "Authorization", bearer}, 400},
		{"with too much", "/api/drain", `{"arguments": ["` + strings.Repeat("x", 70_000) + `"]}`, []string{"Content-Type", jsonType, "Authorization", bearer}, 400},
		{"of what is not there", "/api/drain", `{"arguments": ["7"]}`, []string{"Content-Type", jsonType, "Authorization", bearer}, 409},
		{"of a lease that is not there", "/api/release", `{"arguments": ["zzzz"]}`, []string{"Content-Type", jsonType, "Authorization", bearer}, 409},
		{"as it should be", "/api/drain", body, []string{"Content-Type", jsonType, "Authorization", bearer}, 200},
	} {
		if got := p.sendRequest(http.MethodPost, test.path, test.body, test.headers...); got.code != test.code {
			t.Errorf("%s %s: %d, want %d: %s", test.path, test.what, got.code, test.code, got.body)
		}
	}
	waitUntil(t, "it is drained", func() bool { return p.readStatus().Devices[0].Use == status.Draining })
	if got := p.get("/", "Accept", "text/html"); !strings.Contains(got.header.Get("Content-Security-Policy"), "default-src 'none'") || strings.Contains(got.body, strings.TrimSpace(string(token))) {
		t.Errorf("%v", got.header)
	}

	plain := r.startServe()
	got := plain.sendRequest(http.MethodPost, "/api/drain", body, "Content-Type", jsonType, "Authorization", bearer)
	checkEqual(t, "drain without --token-file", got.code, 403)
}

// TestServeKilled: gpuard serve may be killed at any moment; leases, jobs and the line go on, and the next one has the
// last day.
func TestServeKilled(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.env = append(r.env, "TIMES=100", "XDG_STATE_HOME="+quietDir(t))
	lease := startToFirstLine(t, r.cmd("run", "-q", "--device", "1", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 3600"))
	checkEqual(t, "submit", runCommand(t, r.cmd("submit", "-q", "--hold", "--cpu", "--", "true")).code, 0)
	waiter := r.cmd("run", "-q", "--device", "1", "--", "true")
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = waiter.Process.Kill(), waiter.Wait() })
	rest := func() []any {
		s, _ := r.readStatus()
		var q struct{ Jobs []struct{ Job int } }
		if err := json.Unmarshal([]byte(runCommand(t, r.cmd("queue", "--mine", "--json")).out), &q); err != nil {
			t.Fatal(err)
		}
		tickets := []string{}
		for _, w := range s.Waiting {
			tickets = append(tickets, w.ID)
		}
		leases := []string{}
		for _, l := range s.Devices[1].Leases {
			leases = append(leases, l.ID)
		}
		return []any{len(s.Devices[0].Leases), strings.Join(leases, " "), tickets, q.Jobs}
	}
	waitUntil(t, "it waits", func() bool { return len(rest()[2].([]string)) == 1 })
	before := rest()
	checkEqual(t, "lease", before[1], any(lease))
	minutes := func(p *website) (list []time.Time) {
		var day struct{ Minutes []struct{ At time.Time } }
		if err := json.Unmarshal([]byte(p.get("/api/day").body), &day); err != nil {
			t.Fatal(err)
		}
		for _, m := range day.Minutes {
			list = append(list, m.At)
		}
		return list
	}
	p := r.startServe()
	waitUntil(t, "there are minutes", func() bool { return len(minutes(p)) > 2 })
	first := minutes(p)[0]
	_, _ = p.cmd.Process.Kill(), p.cmd.Wait()
	for range soakCount(1000, 10) {
		p := r.startServe()
		time.Sleep(time.Duration(time.Now().UnixNano() % int64(300*time.Millisecond)))
		_, _ = p.cmd.Process.Kill(), p.cmd.Wait()
	}
	p = r.startServe()
	day := minutes(p)
	for i, at := range day {
		if i > 0 && !at.After(day[i-1]) {
			t.Errorf("minute %d is not after the one before it", i)
		}
	}
	if !slices.ContainsFunc(day, first.Equal) {
		t.Errorf("the first minute, %s, is not among %v", first, day)
	}
	checkEqual(t, "leases, line and jobs", rest(), before)
	waitUntil(t, "no reader is left but the last", func() bool {
		n := 0
		for _, words := range must(filepath.Glob("/proc/[0-9]*/cmdline")) {
			text, _ := os.ReadFile(words)
			env, _ := os.ReadFile(filepath.Join(filepath.Dir(words), "environ"))
			if bytes.HasPrefix(text, []byte("gpuard-view\x00__observe\x00")) && bytes.Contains(env, []byte(r.state+"\x00")) {
				n++
			}
		}
		return n == 1
	})
}

func must[T any](value T, _ error) T { return value }

// TestServeHangingDriver: a call for one device that does not return leaves the page, the metrics and the other devices
// working, and the process that reads them is replaced.
func TestServeHangingDriver(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.env = append(r.env, "TIMES=10")
	p := r.startServe()
	r.Hang("nvmlDeviceGetUtilizationRates", 0)
	waitUntil(t, "device 0 does not answer", func() bool { return strings.Contains(p.get("/").body, "no answer") })
	for range 20 {
		began := time.Now()
		for _, path := range []string{"/", "/metrics", "/api/status"} {
			if got := p.get(path); got.code != http.StatusOK {
				t.Errorf("%s: %d", path, got.code)
			}
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the answers took %v", took)
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.SetValue(1, "margin", "1")
	line := regexp.MustCompile(`(?m)^gpuard: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d GPU 1 is so hot`)
	waitUntil(t, "its heat is told, with the time", func() bool { return line.MatchString(p.said.String()) })
	before := p.readStatus().Taken
	r.SetValue(1, "temperature", "77")
	waitUntil(t, "device 1 is read", func() bool {
		d := p.readStatus().Devices[1]
		return d.Temperature != nil && *d.Temperature == 77
	})
	if !p.readStatus().Taken.After(before) {
		t.Error("no newer reading")
	}
	waitUntil(t, "the reader is replaced", func() bool { return !strings.Contains(p.get("/metrics").body, "gpuard_reader_starts_total 1\n") })
	r.Answer()
	waitUntil(t, "device 0 answers again", func() bool {
		d := p.readStatus().Devices[0]
		return d.Utilization != nil
	})
}

// TestServeEvents: an open page gets what changes.
func TestServeEvents(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	p := r.startServe()
	response, err := http.Get(p.base + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(response.Body); s.Scan(); {
			lines <- s.Text()
		}
	}()
	// The best of some: another process may hold the machine for a while, and a page that is slow is slow each time.
	var took time.Duration
	for degrees := 66; degrees < 72; degrees++ {
		r.SetValue(0, "temperature", strconv.Itoa(degrees))
		began, late := time.Now(), time.After(20*time.Second)
		for found := false; !found; {
			select {
			case line, more := <-lines:
				if !more {
					t.Fatal("the events have ended")
				}
				found = strings.Contains(line, `"part":"devices"`) && strings.Contains(line, strconv.Itoa(degrees)+" °C")
			case <-late:
				t.Fatal("the change did not come")
			}
		}
		if took = time.Since(began); took <= 2*time.Second {
			return
		}
	}
	t.Errorf("a change was seen after %v", took)
}

// TestServeMisused: what cannot be served is said.
func TestServeMisused(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	p := r.startServe()
	dir := t.TempDir()
	open, short := filepath.Join(dir, "open"), filepath.Join(dir, "short")
	for name, text := range map[string]string{open: "0123456789abcdef0123", short: "x"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(short, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--listen", strings.TrimPrefix(p.base, "http://")}, 1, "something does already"},
		{[]string{"--listen", "nowhere"}, 2, "write an address and a port"},
		{[]string{"--token-file", open}, 2, "others can read it"},
		{[]string{"--token-file", short}, 2, "shorter than 16"},
		{[]string{"--token-file", filepath.Join(dir, "link")}, 2, "cannot read the token"},
		{[]string{"--token-file", dir}, 2, "no file of yours"},
		{[]string{"--tls-cert", open}, 2, "cannot use --tls-cert without --tls-key"},
		{[]string{"--tls-cert", open, "--tls-key", open}, 1, "cannot serve with TLS"},
		{[]string{"now"}, 2, "now"},
	} {
		args := append([]string{"serve"}, test.args...)
		if test.args[0] != "--listen" {
			args = append(args, "--listen", "127.0.0.1:0")
		}
		got := runCommand(t, r.viewCommand(args...))
		if got.code != test.code || !strings.Contains(got.err, test.says) {
			t.Errorf("%v: exit %d, %s", test.args, got.code, got.err)
		}
	}
	bare := r.cmd("serve")
	bare.Path = must(filepath.EvalSymlinks("/proc/self/exe"))
	bare.Args[0] = "gpuard"
	bare.Env = append(bare.Env, "PATH="+dir)
	if got := runCommand(t, bare); got.code != 1 || !strings.Contains(got.err, "cannot find gpuard-view") {
		t.Errorf("without gpuard-view: exit %d, %s", got.code, got.err)
	}
	if err := p.cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}

// TestServeScript: what others can choose (the name of a process) is text on the page.
func TestServeScript(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	p := r.startServe()
	name := filepath.Join(t.TempDir(), "<script>alert(1)<")
	if err := os.Symlink(must(exec.LookPath("sleep")), name); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	r.AddProcess(0, cmd.Process.Pid, 2<<30, fakegpu.Compute)
	waitUntil(t, "the process is on the page", func() bool { return strings.Contains(p.get("/").body, "&lt;script&gt;alert(1)&lt;") })
	if text := p.get("/").body; strings.Contains(text, "<script>alert") {
		t.Error("its name is run as a script")
	}
	checkEqual(t, "the icon of nothing", p.get("/icon/%3Cscript%3E.svg").code, 404)
}

// TestServeUse: of each lease that has ended there is a line with what it used, also after a kill, and history adds up.
func TestServeUse(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.env = append(r.env, "TIMES=10", "XDG_STATE_HOME="+quietDir(t))
	r.SetValue(1, "utilization", "40")
	p := r.startServe()
	job := r.cmd("run", "-q", "--device", "1", "--name", "train", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60")
	lease := startToFirstLine(t, job)
	waitUntil(t, "it is measured", func() bool { return p.readMeasuredSeconds(lease) > 0 })
	_, _ = p.cmd.Process.Kill(), p.cmd.Wait()
	p = r.startServe()
	waitUntil(t, "it is measured again", func() bool { return p.readMeasuredSeconds(lease) > 0 })
	_ = job.Process.Kill()
	var answer struct {
		Use []struct {
			Name                string
			Jobs                int
			Granted, Used, Idle float64
		}
	}
	waitUntil(t, "it has ended", func() bool {
		got := runCommand(t, r.cmd("history", "--by", "command", "--json"))
		if err := json.Unmarshal([]byte(got.out), &answer); err != nil {
			t.Fatal(err, got.out, got.err)
		}
		return len(answer.Use) > 0
	})
	u := answer.Use[0]
	if granted := u.Granted * 3600; u.Name != "train" || u.Jobs != 1 || granted <= 0 || granted > 120 {
		t.Errorf("%+v, %.1f s granted", u, granted)
	}
	if measured := u.Used + u.Idle; u.Used <= 0 || measured > u.Granted || math.Abs(u.Used/measured-0.4) > 0.01 {
		t.Errorf("%+v, want 40 %% of what was measured", u)
	}
	waitUntil(t, "it is on the page", func() bool { return strings.Contains(p.get("/api/history").body, `"train"`) })
	checkEqual(t, "of an hour ago", strings.Contains(runCommand(t, r.cmd("history", "--by", "user", "--since", "1ms", "--json")).out, `"use": []`), true)
}

// readMeasuredSeconds reads for how long gpuard serve has measured the GPUs of a lease; 0 for none that it has.
func (p *website) readMeasuredSeconds(lease string) (seconds float64) {
	for line := range strings.Lines(p.get("/metrics").body) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		measured := strings.HasPrefix(name, "gpuard_lease_busy_seconds_total{") || strings.HasPrefix(name, "gpuard_lease_idle_seconds_total{")
		if measured && strings.Contains(name, `lease="`+lease+`"`) {
			seconds += must(strconv.ParseFloat(value, 64))
		}
	}
	return seconds
}

// TestServeDCGM: the names of dcgm-exporter, and the files that it reads.
func TestServeDCGM(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	jobs := t.TempDir()
	p := r.startServe("--dcgm-jobs", jobs)
	lease := startToFirstLine(t, r.cmd("run", "-q", "--device", "1", "--name", "train", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60"))
	file := filepath.Join(jobs, "1")
	waitUntil(t, "its file is there", func() bool { text, _ := os.ReadFile(file); return strings.HasPrefix(string(text), "train "+lease+" (") })
	checkContains(t, p.get("/metrics/dcgm").body, `DCGM_FI_DEV_GPU_UTIL{DCGM_FI_DRIVER_VERSION="550.54.15"`, `UUID="`+string(p.readStatus().Devices[1].UUID)+`"`, `modelName="NVIDIA A100-SXM4-80GB"`, "DCGM_FI_DEV_FB_USED{", "DCGM_FI_DEV_FB_FREE{", "DCGM_FI_DEV_GPU_TEMP{", "DCGM_FI_DEV_POWER_USAGE{")
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	_ = p.cmd.Wait()
	checkEqual(t, "files after the end", len(must(os.ReadDir(jobs))), 0)
	if got := runCommand(t, r.viewCommand("serve", "--dcgm-jobs", filepath.Join(jobs, "none"))); got.code != 2 || !strings.Contains(got.err, "make the folder first") {
		t.Errorf("%+v", got)
	}
}
