package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
	"gpuard/internal/host/proc"
	"gpuard/test/fakegpu"
)

// webhookServer is a webhook that keeps what it gets.
type webhookServer struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	hold   chan struct{} // while it is open, no post is answered; nil: each is
	code   int
}

func newWebhookServer(t *testing.T) *webhookServer {
	h := &webhookServer{code: http.StatusOK}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var one struct{ What, Text, Schema string }
		if err := json.NewDecoder(r.Body).Decode(&one); err != nil || one.Schema != "gpuard.trouble/1" || r.Method != http.MethodPost {
			t.Errorf("%s %+v: %v", r.Method, one, err)
		}
		h.mu.Lock()
		h.bodies = append(h.bodies, one.What+": "+one.Text)
		hold, code := h.hold, h.code
		h.mu.Unlock()
		if hold != nil {
			<-hold
		}
		w.WriteHeader(code)
	}))
	t.Cleanup(h.Close)
	return h
}

// countPosts is how many posts have all the parts.
func (h *webhookServer) countPosts(parts ...string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
posts:
	for _, body := range h.bodies {
		for _, part := range parts {
			if !strings.Contains(body, part) {
				continue posts
			}
		}
		n++
	}
	return n
}

// watchPolicyMachine is a rack whose machine has a file of rules, and the terminals of this computer.
type watchPolicyMachine struct {
	*fakeDriverMachine
	site, program string
}

func newWatchPolicyMachine(t *testing.T, gpus int) *watchPolicyMachine {
	t.Helper()
	gate.Need(t, "root")
	r := newFakeDriverMachine(t, makeA100s(gpus)...)
	p := &watchPolicyMachine{r, t.TempDir(), r.installForAllUsers()}
	r.givenDevices() // makes the folder of the leases
	for _, dir := range []string{filepath.Dir(p.site), p.site, filepath.Join(p.site, "etc"), filepath.Join(p.site, "etc", "gpuard"), filepath.Join(p.site, "dev")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/pts", filepath.Join(p.site, "dev", "pts")); err != nil {
		t.Fatal(err)
	}
	r.env = append(r.env, "SITE="+p.site, "TIMES=10")
	return p
}

func (p *watchPolicyMachine) writePolicy(text string) {
	p.t.Helper()
	path := filepath.Join(p.site, "etc", "gpuard", "config.yaml")
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		p.t.Fatal(err)
	}
}

// startLease begins a lease of a user on a device.
func (p *watchPolicyMachine) startLease(uid uint32, device string) string {
	p.t.Helper()
	cmd := p.cmd("run", "-q", "--device", device, "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 100")
	if uid != 0 {
		cmd = asUser(uid, cmd)
		cmd.Path = p.program
	}
	return startToFirstLine(p.t, cmd)
}

// startProcess starts a program of a user under a name, and puts it on device 0.
func (p *watchPolicyMachine) startProcess(uid uint32, name, kind string, script string) int {
	p.t.Helper()
	cmd := exec.Command("setpriv", p.processWords(uid, name, script)...)
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = cmd.Wait() // at once, so that it is no zombie when it is ended
	}()
	p.t.Cleanup(func() { _ = cmd.Process.Kill(); <-over })
	p.waitForProcessName(cmd.Process.Pid, name)
	p.TrackProcess(0, cmd.Process.Pid, 1<<30, kind)
	return cmd.Process.Pid
}

// processWords start a script of a user under a name; it has GPU 0 open.
func (p *watchPolicyMachine) processWords(uid uint32, name, script string) []string {
	link := filepath.Join(p.site, name)
	_ = os.Symlink(must(exec.LookPath("sh")), link)
	id := fmt.Sprint(uid)
	return []string{"--reuid", id, "--regid", id, "--clear-groups", link, "-c", "exec 9<" + p.DeviceFile(0) + "; " + script}
}

// waitForProcessName waits until a process has its name.
func (p *watchPolicyMachine) waitForProcessName(pid int, name string) {
	p.t.Helper()
	waitUntil(p.t, name+" runs", func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return strings.HasPrefix(string(text), filepath.Join(p.site, name)+"\x00")
	})
}

// openUserTerminal is a terminal of a user that takes messages.
func (p *watchPolicyMachine) openUserTerminal(uid uint32, cmd *exec.Cmd) *terminal {
	p.t.Helper()
	s := startOnTerminal(p.t, cmd)
	var number uint32
	controlFile(p.t, s.master, func(fd int) (err error) {
		number, err = unix.IoctlGetUint32(fd, unix.TIOCGPTN)
		return err
	})
	path := fmt.Sprintf("/dev/pts/%d", number)
	if err := os.Chown(path, int(uid), -1); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chmod(path, 0o620); err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (s *terminal) countShown(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.screen.String(), text)
}

func userNameOf(uid uint32) string { return proc.New("/proc").User(uid) }

func isProcessAlive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

const sleepForeverScript = "while :; do sleep 1; done"

// TestServeOutsiders: a process without a lease on a GPU of another user is told, warned and ended by level; what is
// excepted stays; and each trouble is posted once.
func TestServeOutsiders(t *testing.T) {
	t.Parallel()
	p := newWatchPolicyMachine(t, 2)
	h := newWebhookServer(t)
	config := "watch:\n  webhook: " + h.URL + "/secret\n  grace: 2s\n  except: [allowed]\n"
	p.writePolicy(config)
	lease := p.startLease(aliceUID, "0")
	cmd := exec.Command("setpriv", p.processWords(bobUID, "mine", sleepForeverScript)...)
	theirs := p.openUserTerminal(bobUID, cmd)
	mine := cmd.Process.Pid
	p.waitForProcessName(mine, "mine")
	owner := p.openUserTerminal(0, exec.Command("sleep", "100"))
	spared := map[string]int{
		"allowed":       p.startProcess(bobUID, "allowed", fakegpu.Compute, sleepForeverScript),
		"nv-hostengine": p.startProcess(0, "nv-hostengine", fakegpu.Compute, sleepForeverScript),
		"Xorg":          p.startProcess(0, "Xorg", fakegpu.Graphics, sleepForeverScript),
	}
	stubborn := p.startProcess(bobUID, "stubborn", fakegpu.Compute, `trap "" TERM; `+sleepForeverScript)
	p.TrackProcess(0, mine, 1<<30, fakegpu.Compute)
	page := p.startServe()

	intrudes := fmt.Sprintf("process %d of %s (mine) uses GPU 0 without a lease, which %s has leased", mine, userNameOf(bobUID), userNameOf(aliceUID))
	yours := fmt.Sprintf("your process %d (mine) uses GPU 0, which %s has leased. Please end it, and start it with: gpuard run", mine, userNameOf(aliceUID))
	const threat = ". It is ended in 2s"
	waitUntil(t, "off: it is in the log", func() bool { return strings.Contains(page.said.String(), intrudes) })
	checkContains(t, page.get("/api/status").body, `"foreign": true`, lease)
	time.Sleep(500 * time.Millisecond)
	checkEqual(t, "posts while it is off", h.countPosts(), 0)
	checkEqual(t, "the owner's terminal while it is off", owner.countShown(intrudes), 0)

	p.writePolicy(config + "  outsiders: report\n")
	waitUntil(t, "report: the webhook has it", func() bool { return h.countPosts("intruder", intrudes) == 1 })
	waitUntil(t, "report: the owner's terminal has it", func() bool { return owner.countShown(intrudes) == 1 })
	checkEqual(t, "the terminal of the process", theirs.countShown(yours), 0)

	p.writePolicy(config + "  outsiders: warn\n")
	waitUntil(t, "warn: its user is told", func() bool {
		return theirs.countShown(yours) == 1
	})
	checkEqual(t, "a threat without an end", theirs.countShown(yours+threat), 0)
	time.Sleep(3 * time.Second)
	checkEqual(t, "it lives", isProcessAlive(mine) && isProcessAlive(stubborn), true)

	p.writePolicy(config + "  outsiders: end\n")
	waitUntil(t, "end: its user is told", func() bool { return theirs.countShown(yours+threat) == 1 })
	checkEqual(t, "it lives through the grace", isProcessAlive(mine), true)
	waitUntil(t, "end: it is gone", func() bool { return !isProcessAlive(mine) }) // at the second try, if the driver did not answer at the first
	waitUntil(t, "end: one that ignores the request is gone too", func() bool { return !isProcessAlive(stubborn) })
	for _, pid := range []int{mine, stubborn} {
		waitUntil(t, "the end is posted", func() bool {
			return h.countPosts("evicted", fmt.Sprintf("process %d of %s", pid, userNameOf(bobUID)), "was ended") == 1
		})
	}
	for name, pid := range spared {
		if !isProcessAlive(pid) || h.countPosts(fmt.Sprintf("process %d ", pid)) > 0 || strings.Contains(page.said.String(), fmt.Sprintf("process %d ", pid)) {
			t.Errorf("%s was not spared: %s", name, page.said.String())
		}
	}
	checkEqual(t, "the lease", page.readStatus().Devices[0].Leases[0].ID, lease)
	checkEqual(t, "posts", h.countPosts(), 2*3+2) // each level is one, and the end
	if strings.Contains(page.said.String(), "secret") {
		t.Error("the path of the webhook is in the log")
	}
}

// TestServeOutsidersApart: a process of another PID namespace is never ended.
func TestServeOutsidersApart(t *testing.T) {
	gate.Need(t, "pidns")
	t.Parallel()
	p := newWatchPolicyMachine(t, 1)
	p.writePolicy("watch: {outsiders: end, grace: 1s}\n")
	p.startLease(aliceUID, "0")
	cmd := exec.Command("unshare", append([]string{"--pid", "--fork", "--kill-child", "setpriv"}, p.processWords(bobUID, "apart", sleepForeverScript)...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	var pid int
	waitUntil(t, "it has begun", func() bool {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		_, err := fmt.Sscan(string(children), &pid)
		return err == nil
	})
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) }) // setpriv has cleared what --kill-child asks the kernel for
	p.waitForProcessName(pid, "apart")
	p.TrackProcess(0, pid, 1<<30, fakegpu.Compute)
	page := p.startServe()
	waitUntil(t, "it is said", func() bool {
		return strings.Contains(page.said.String(), fmt.Sprintf("cannot end process %d: it runs in another PID namespace", pid))
	})
	checkEqual(t, "it lives", isProcessAlive(pid), true)
}

// TestServeOutsidersOfUsers: gpuard serve of a user who is not root ends nothing, warns nobody and posts nothing.
func TestServeOutsidersOfUsers(t *testing.T) {
	t.Parallel()
	p := newWatchPolicyMachine(t, 1)
	h := newWebhookServer(t)
	p.writePolicy("watch: {webhook: '" + h.URL + "', outsiders: end, grace: 1s}\n")
	p.startLease(0, "0")
	pid := p.startProcess(aliceUID, "own", fakegpu.Compute, sleepForeverScript)
	cmd := asUser(aliceUID, p.viewCommand("serve", "--listen", "127.0.0.1:0"))
	cmd.Path = p.program
	page := servePage(t, cmd)
	waitUntil(t, "it is in the log", func() bool {
		return strings.Contains(page.said.String(), fmt.Sprintf("process %d of %s (own) uses GPU 0 without a lease", pid, userNameOf(aliceUID)))
	})
	time.Sleep(3 * time.Second)
	checkEqual(t, "it lives", isProcessAlive(pid), true)
	checkEqual(t, "posts", h.countPosts(), 0)
}

// TestServeWebhook: a webhook that hangs or fails does not delay the page, and is complained about once.
func TestServeWebhook(t *testing.T) {
	t.Parallel()
	p := newWatchPolicyMachine(t, 2)
	h := newWebhookServer(t)
	h.hold = make(chan struct{})
	release := sync.OnceFunc(func() { close(h.hold) })
	t.Cleanup(release) // before the server is closed
	p.writePolicy("watch: {webhook: '" + h.URL + "'}\n")
	page := p.startServe()
	p.SetValue(0, "margin", "1")
	waitUntil(t, "it has the post", func() bool { return h.countPosts("hot", "GPU 0") == 1 })
	before := page.readStatus().Taken
	for range 20 {
		began := time.Now()
		page.get("/")
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the page took %v", took)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if !page.readStatus().Taken.After(before) {
		t.Error("nothing was read meanwhile")
	}
	p.SetValue(1, "margin", "1")
	waitUntil(t, "the next trouble is posted too", func() bool { return h.countPosts("hot", "GPU 1") == 1 })
	h.mu.Lock()
	h.code = http.StatusInternalServerError
	h.mu.Unlock()
	p.SetValue(0, "recovery", "1")
	waitUntil(t, "the third trouble is posted", func() bool { return h.countPosts("unhealthy", "GPU 0") == 1 })
	release()
	waitUntil(t, "the failure is said", func() bool { return strings.Contains(page.said.String(), "cannot post to the webhook at 127.0.0.1") })
	time.Sleep(500 * time.Millisecond)
	checkEqual(t, "complaints", strings.Count(page.said.String(), "cannot post"), 1)
	checkEqual(t, "posts", h.countPosts(), 3)
}

// TestServeWrongDevice: a job on a GPU that its lease does not have is told, and so is one that computes beside its GPU.
func TestServeWrongDevice(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.env = append(r.env, "TIMES=10", "MINUTES=120")
	page := r.startServe()
	nested := r.cmd("run", "-q", "--gpus", "2", "--", "sh", "-c", `gpuard run $PRIVATE -q --device 1 -- sh -c 'echo $GPUARD_LEASE; exec "$0" --gpu 0 --mem 1G' `+r.Job)
	nested.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	inner := startToFirstLine(t, nested)
	end := func() { _ = unix.Kill(-nested.Process.Pid, unix.SIGKILL) }
	t.Cleanup(end)
	waitUntil(t, "a job of a lease within another one is told", func() bool {
		return strings.Contains(page.said.String(), "belongs to lease "+inner+" and uses GPU 0, which that lease does not have")
	})
	end()
	waitUntil(t, "that has ended", func() bool {
		s, _ := r.readStatus()
		return len(s.Devices[0].Leases) == 0 && len(s.Devices[0].Processes) == 0
	})
	astray := r.cmd("run", "-q", "--device", "0", "--name", "astray", "--", "sh", "-c", "echo $GPUARD_LEASE; exec "+r.Job+" --gpu 1 --mem 1G")
	lease := startToFirstLine(t, astray)
	waitUntil(t, "it is told", func() bool {
		return strings.Contains(page.said.String(), fmt.Sprintf("process %d of %s (%s) belongs to lease %s and uses GPU 1, which that lease does not have", astray.Process.Pid, userNameOf(uint32(os.Geteuid())), filepath.Base(r.Job), lease))
	})
	_ = astray.Process.Kill()
	// What is told is a tenth of a processor. Four together get that where thirty others compute too, and take less than one where none does.
	const rests = "while :; do i=0; while [ $i -lt 8000 ]; do i=$((i+1)); done; sleep 0.05; done"
	spin := r.cmd("run", "-q", "--device", "0", "--name", "beside", "--", "sh", "-c", "echo $GPUARD_LEASE; for i in 1 2 3; do ("+rests+") & done; "+rests)
	spin.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	beside := startToFirstLine(t, spin)
	t.Cleanup(func() { _ = unix.Kill(-spin.Process.Pid, unix.SIGKILL) })
	waitUntil(t, "it is told", func() bool {
		return strings.Contains(page.said.String(), fmt.Sprintf("(lease %s) computes on the processor", beside))
	})
	if text := page.said.String(); strings.Contains(text, lease+") computes") {
		t.Errorf("%s", text)
	}
}
