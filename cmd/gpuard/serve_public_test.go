package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/userqueue"
	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
)

// servePageWithSecrets is a page of a user whose job, service, waiting job and process without a lease have a secret in their arguments, and its
// token.
func servePageWithSecrets(t *testing.T) (p *website, bearer string) {
	t.Helper()
	l := newQueueFixture(t, 1)
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--hold", "--name", "train", "--note", "swordfish", "--cpu", "--", "sleep", "--password=swordfish")).code, 0)
	intruder := exec.Command("bash", "-c", "sleep 300; true --password=swordfish")
	intruder.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := intruder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Kill(-intruder.Process.Pid, unix.SIGKILL), intruder.Wait() })
	l.AddProcess(0, intruder.Process.Pid, 30<<30, fakegpu.Compute)
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--device", "0", "--", "sleep", "--password=swordfish")).code, 0)
	dir := filepath.Join(t.TempDir(), "swordfish")
	text := "services:\n  web:\n    cpu: true\n    command: [sh, -c, \"sleep 300 # swordfish\"]\n"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gpuard.yaml"), []byte("name: shop\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	up := l.cmd("up", "-d")
	up.Dir = dir
	got := runCommand(t, up)
	checkEqual(t, "up: "+got.err, got.code, 0)
	down := l.cmd("down", "--now")
	t.Cleanup(func() {
		cmd := exec.Command(down.Path) // the test's context is over
		cmd.Args, cmd.Env, cmd.Dir = down.Args, down.Env, dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	file := filepath.Join(t.TempDir(), "token")
	p = l.startServe("--token-file", file)
	return p, "Bearer " + strings.TrimSpace(string(must(os.ReadFile(file))))
}

// TestServePublic: without the token nobody sees more than names of jobs, commands and services: not in JSON, not on the
// page, and not in what it is sent later.
func TestServePublic(t *testing.T) {
	t.Parallel()
	p, bearer := servePageWithSecrets(t)
	waitUntil(t, "all of it is there", func() bool {
		return strings.Contains(p.get("/api/queue").body, `"train"`) && strings.Contains(p.get("/api/status").body, `"why": "0 of 1 that it can use are free; GPU 0: in use by PID`) && strings.Contains(p.get("/api/services").body, `"web"`)
	})
	for _, path := range []string{"/api/queue", "/api/services", "/api/status", "/api/history", "/", "/metrics"} {
		if got := p.get(path); got.code != http.StatusOK || strings.Contains(got.body, "swordfish") {
			t.Errorf("%s: %d, %s", path, got.code, got.body)
		}
	}
	checkContains(t, p.get("/").body, "train", "shop", "web")
	checkContains(t, p.get("/api/queue").body, `"sleep"`, "cannot give GPU 0: in use by PID")
	checkContains(t, p.get("/api/status").body, "in use by PID", " (bash, 30 GiB)")
	for _, path := range []string{"/api/queue", "/api/services", "/api/status"} {
		checkContains(t, p.get(path, "Authorization", bearer).body, "swordfish")
		if strings.Contains(p.get(path, "Authorization", bearer+"x").body, "swordfish") {
			t.Errorf("%s with a wrong token", path)
		}
	}
	checkContains(t, p.get("/metrics").body, `gpuard_jobs{state="pending"} 2`, `gpuard_jobs{state="running"} 0`, `gpuard_job_wait_seconds{job="1",state="pending"}`)

	events, err := http.Get(p.base + "/events")
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Second, func() { _ = events.Body.Close() })
	seen := map[string]bool{}
	for s := bufio.NewScanner(events.Body); (!seen["queue"] || !seen["services"]) && s.Scan(); {
		for _, name := range []string{"queue", "services"} {
			seen[name] = seen[name] || strings.Contains(s.Text(), `"part":"`+name+`"`)
		}
		if strings.Contains(s.Text(), "swordfish") {
			t.Error(s.Text())
		}
	}
	if !seen["queue"] || !seen["services"] {
		t.Errorf("sent only %v", seen)
	}
}

// TestServePublicToOthers is the same for another user of the machine.
func TestServePublicToOthers(t *testing.T) {
	gate.Need(t, "root")
	t.Parallel()
	p, _ := servePageWithSecrets(t)
	host, port, err := net.SplitHostPort(strings.TrimPrefix(p.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/api/queue", "/api/services", "/"} {
		cmd := exec.Command("bash", "-c", `exec 3<>/dev/tcp/$0/$1; printf 'GET %s HTTP/1.0\r\nHost: %s\r\n\r\n' "$2" "$0" >&3; cat <&3`, host, port, path)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: aliceUID, Gid: aliceUID}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "200 OK") || strings.Contains(string(out), "swordfish") {
			t.Errorf("%s: %v, %s", path, err, out)
		}
	}
}

// TestServeRevives: a queue that the page has started again is a process of gpuard, so that it goes on without the page.
func TestServeRevives(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--", "sleep", "300")).code, 0)
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--hold", "--", "true")).code, 0)
	waitUntil(t, "the first runs", func() bool {
		q := l.queuedJobs()
		return len(q) == 2 && q[0].State == userqueue.Running && q[0].PID > 0
	})
	file := filepath.Join(t.TempDir(), "token")
	p := l.startServe("--token-file", file)
	for _, pid := range append(l.queueProcesses(userqueue.Flag), l.queueProcesses(userqueue.RunnerFlag)...) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	waitUntil(t, "its processes are dead", func() bool {
		return len(l.queueProcesses(userqueue.Flag))+len(l.queueProcesses(userqueue.RunnerFlag)) == 0
	})
	got := p.sendRequest(http.MethodPost, "/api/cancel", `{"arguments": ["2"]}`, "Content-Type", "application/json", "Authorization", "Bearer "+strings.TrimSpace(string(must(os.ReadFile(file)))))
	checkEqual(t, "cancel: "+got.body, got.code, http.StatusOK)
	waitUntil(t, "the queue is kept again", func() bool { return len(l.queueProcesses(userqueue.Flag)) > 0 })
	for _, pid := range l.queueProcesses(userqueue.Flag) {
		if path := must(os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))); strings.HasPrefix(filepath.Base(path), "gpuard-view") {
			t.Errorf("the queue is kept by %s", path)
		}
	}
	_, _ = p.cmd.Process.Kill(), p.cmd.Wait()
	time.Sleep(100 * time.Millisecond)
	if len(l.queueProcesses(userqueue.Flag)) == 0 {
		t.Error("the queue has ended with the page")
	}
	checkEqual(t, "cancel", runCommand(t, l.cmd("cancel", "1")).code, 0)
}
