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

// hook is a webhook that keeps what it gets.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	hold   chan struct{} // while it is open, no post is answered; nil: each is
	code   int
}

func newHook(t *testing.T) *hook {
	h := &hook{code: http.StatusOK}
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

// count is how many posts have all the parts.
func (h *hook) count(parts ...string) (n int) {
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

// policed is a rack whose machine has a file of rules, and the terminals of this computer.
type policed struct {
	*rack
	site, program string
}

func police(t *testing.T, gpus int) *policed {
	t.Helper()
	gate.Need(t, "root")
	r := newRack(t, a100s(gpus)...)
	p := &policed{r, t.TempDir(), r.forEverybody()}
	r.given() // makes the folder of the leases
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

func (p *policed) write(text string) {
	p.t.Helper()
	path := filepath.Join(p.site, "etc", "gpuard", "config.yaml")
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		p.t.Fatal(err)
	}
}

// lease begins a lease of a user on a device.
func (p *policed) lease(uid uint32, device string) string {
	p.t.Helper()
	cmd := p.cmd("run", "-q", "--device", device, "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 100")
	if uid != 0 {
		cmd = as(uid, cmd)
		cmd.Path = p.program
	}
	return begin(p.t, cmd)
}

// process starts a program of a user under a name, and puts it on device 0.
func (p *policed) process(uid uint32, name, kind string, script string) int {
	p.t.Helper()
	cmd := exec.Command("setpriv", p.words(uid, name, script)...)
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = cmd.Wait() // at once, so that it is no zombie when it is ended
	}()
	p.t.Cleanup(func() { _ = cmd.Process.Kill(); <-over })
	p.runs(cmd.Process.Pid, name)
	p.TrackProcess(0, cmd.Process.Pid, 1<<30, kind)
	return cmd.Process.Pid
}

// words start a script of a user under a name; it has GPU 0 open.
func (p *policed) words(uid uint32, name, script string) []string {
	link := filepath.Join(p.site, name)
	_ = os.Symlink(must(exec.LookPath("sh")), link)
	id := fmt.Sprint(uid)
	return []string{"--reuid", id, "--regid", id, "--clear-groups", link, "-c", "exec 9<" + p.DeviceFile(0) + "; " + script}
}

// runs waits until a process has its name.
func (p *policed) runs(pid int, name string) {
	p.t.Helper()
	eventually(p.t, name+" runs", func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return strings.HasPrefix(string(text), filepath.Join(p.site, name)+"\x00")
	})
}

// screen is a terminal of a user that takes messages.
func (p *policed) screen(uid uint32, cmd *exec.Cmd) *terminal {
	p.t.Helper()
	s := onTerminal(p.t, cmd)
	var number uint32
	control(p.t, s.master, func(fd int) (err error) {
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

func (s *terminal) shows(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.screen.String(), text)
}

func nameOf(uid uint32) string { return proc.New("/proc").User(uid) }

func lives(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

const forever = "while :; do sleep 1; done"

// TestServeOutsiders: a process without a lease on a GPU of another user is told, warned and ended by level; what is
// excepted stays; and each trouble is posted once.
func TestServeOutsiders(t *testing.T) {
	t.Parallel()
	p := police(t, 2)
	h := newHook(t)
	config := "watch:\n  webhook: " + h.URL + "/secret\n  grace: 2s\n  except: [allowed]\n"
	p.write(config)
	lease := p.lease(alice, "0")
	cmd := exec.Command("setpriv", p.words(bob, "mine", forever)...)
	theirs := p.screen(bob, cmd)
	mine := cmd.Process.Pid
	p.runs(mine, "mine")
	owner := p.screen(0, exec.Command("sleep", "100"))
	spared := map[string]int{
		"allowed":       p.process(bob, "allowed", fakegpu.Compute, forever),
		"nv-hostengine": p.process(0, "nv-hostengine", fakegpu.Compute, forever),
		"Xorg":          p.process(0, "Xorg", fakegpu.Graphics, forever),
	}
	stubborn := p.process(bob, "stubborn", fakegpu.Compute, `trap "" TERM; `+forever)
	p.TrackProcess(0, mine, 1<<30, fakegpu.Compute)
	page := p.serve()

	intrudes := fmt.Sprintf("process %d of %s (mine) uses GPU 0 without a lease, which %s has leased", mine, nameOf(bob), nameOf(alice))
	yours := fmt.Sprintf("your process %d (mine) uses GPU 0, which %s has leased. Please end it, and start it with: gpuard run", mine, nameOf(alice))
	const threat = ". It is ended in 2s"
	eventually(t, "off: it is in the log", func() bool { return strings.Contains(page.said.String(), intrudes) })
	contains(t, page.get("/api/status").body, `"foreign": true`, lease)
	time.Sleep(500 * time.Millisecond)
	same(t, "posts while it is off", h.count(), 0)
	same(t, "the owner's terminal while it is off", owner.shows(intrudes), 0)

	p.write(config + "  outsiders: report\n")
	eventually(t, "report: the webhook has it", func() bool { return h.count("intruder", intrudes) == 1 })
	eventually(t, "report: the owner's terminal has it", func() bool { return owner.shows(intrudes) == 1 })
	same(t, "the terminal of the process", theirs.shows(yours), 0)

	p.write(config + "  outsiders: warn\n")
	eventually(t, "warn: its user is told", func() bool {
		return theirs.shows(yours) == 1
	})
	same(t, "a threat without an end", theirs.shows(yours+threat), 0)
	time.Sleep(3 * time.Second)
	same(t, "it lives", lives(mine) && lives(stubborn), true)

	p.write(config + "  outsiders: end\n")
	eventually(t, "end: its user is told", func() bool { return theirs.shows(yours+threat) == 1 })
	same(t, "it lives through the grace", lives(mine), true)
	eventually(t, "end: it is gone", func() bool { return !lives(mine) }) // at the second try, if the driver did not answer at the first
	eventually(t, "end: one that ignores the request is gone too", func() bool { return !lives(stubborn) })
	for _, pid := range []int{mine, stubborn} {
		eventually(t, "the end is posted", func() bool {
			return h.count("evicted", fmt.Sprintf("process %d of %s", pid, nameOf(bob)), "was ended") == 1
		})
	}
	for name, pid := range spared {
		if !lives(pid) || h.count(fmt.Sprintf("process %d ", pid)) > 0 || strings.Contains(page.said.String(), fmt.Sprintf("process %d ", pid)) {
			t.Errorf("%s was not spared: %s", name, page.said.String())
		}
	}
	same(t, "the lease", page.status().Devices[0].Leases[0].ID, lease)
	same(t, "posts", h.count(), 2*3+2) // each level is one, and the end
	if strings.Contains(page.said.String(), "secret") {
		t.Error("the path of the webhook is in the log")
	}
}

// TestServeOutsidersApart: a process of another PID namespace is never ended.
func TestServeOutsidersApart(t *testing.T) {
	gate.Need(t, "pidns")
	t.Parallel()
	p := police(t, 1)
	p.write("watch: {outsiders: end, grace: 1s}\n")
	p.lease(alice, "0")
	cmd := exec.Command("unshare", append([]string{"--pid", "--fork", "--kill-child", "setpriv"}, p.words(bob, "apart", forever)...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	var pid int
	eventually(t, "it has begun", func() bool {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		_, err := fmt.Sscan(string(children), &pid)
		return err == nil
	})
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) }) // setpriv has cleared what --kill-child asks the kernel for
	p.runs(pid, "apart")
	p.TrackProcess(0, pid, 1<<30, fakegpu.Compute)
	page := p.serve()
	eventually(t, "it is said", func() bool {
		return strings.Contains(page.said.String(), fmt.Sprintf("cannot end process %d: it runs in another PID namespace", pid))
	})
	same(t, "it lives", lives(pid), true)
}

// TestServeOutsidersOfUsers: gpuard serve of a user who is not root ends nothing, warns nobody and posts nothing.
func TestServeOutsidersOfUsers(t *testing.T) {
	t.Parallel()
	p := police(t, 1)
	h := newHook(t)
	p.write("watch: {webhook: '" + h.URL + "', outsiders: end, grace: 1s}\n")
	p.lease(0, "0")
	pid := p.process(alice, "own", fakegpu.Compute, forever)
	cmd := as(alice, p.view("serve", "--listen", "127.0.0.1:0"))
	cmd.Path = p.program
	page := servePage(t, cmd)
	eventually(t, "it is in the log", func() bool {
		return strings.Contains(page.said.String(), fmt.Sprintf("process %d of %s (own) uses GPU 0 without a lease", pid, nameOf(alice)))
	})
	time.Sleep(3 * time.Second)
	same(t, "it lives", lives(pid), true)
	same(t, "posts", h.count(), 0)
}

// TestServeWebhook: a webhook that hangs or fails does not delay the page, and is complained about once.
func TestServeWebhook(t *testing.T) {
	t.Parallel()
	p := police(t, 2)
	h := newHook(t)
	h.hold = make(chan struct{})
	release := sync.OnceFunc(func() { close(h.hold) })
	t.Cleanup(release) // before the server is closed
	p.write("watch: {webhook: '" + h.URL + "'}\n")
	page := p.serve()
	p.Set(0, "margin", "1")
	eventually(t, "it has the post", func() bool { return h.count("hot", "GPU 0") == 1 })
	before := page.status().Taken
	for range 20 {
		began := time.Now()
		page.get("/")
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the page took %v", took)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if !page.status().Taken.After(before) {
		t.Error("nothing was read meanwhile")
	}
	p.Set(1, "margin", "1")
	eventually(t, "the next trouble is posted too", func() bool { return h.count("hot", "GPU 1") == 1 })
	h.mu.Lock()
	h.code = http.StatusInternalServerError
	h.mu.Unlock()
	p.Set(0, "recovery", "1")
	eventually(t, "the third trouble is posted", func() bool { return h.count("unhealthy", "GPU 0") == 1 })
	release()
	eventually(t, "the failure is said", func() bool { return strings.Contains(page.said.String(), "cannot post to the webhook at 127.0.0.1") })
	time.Sleep(500 * time.Millisecond)
	same(t, "complaints", strings.Count(page.said.String(), "cannot post"), 1)
	same(t, "posts", h.count(), 3)
}

// TestServeWrongDevice: a job on a GPU that its lease does not have is told, and so is one that computes beside its GPU.
func TestServeWrongDevice(t *testing.T) {
	t.Parallel()
	r := newRack(t, a100s(2)...)
	r.env = append(r.env, "TIMES=10", "MINUTES=120")
	page := r.serve()
	nested := r.cmd("run", "-q", "--gpus", "2", "--", "sh", "-c", `gpuard run $PRIVATE -q --device 1 -- sh -c 'echo $GPUARD_LEASE; exec "$0" --gpu 0 --mem 1G' `+r.Job)
	nested.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	inner := begin(t, nested)
	end := func() { _ = unix.Kill(-nested.Process.Pid, unix.SIGKILL) }
	t.Cleanup(end)
	eventually(t, "a job of a lease within another one is told", func() bool {
		return strings.Contains(page.said.String(), "belongs to lease "+inner+" and uses GPU 0, which that lease does not have")
	})
	end()
	eventually(t, "that has ended", func() bool {
		s, _ := r.status()
		return len(s.Devices[0].Leases) == 0 && len(s.Devices[0].Processes) == 0
	})
	astray := r.cmd("run", "-q", "--device", "0", "--name", "astray", "--", "sh", "-c", "echo $GPUARD_LEASE; exec "+r.Job+" --gpu 1 --mem 1G")
	lease := begin(t, astray)
	eventually(t, "it is told", func() bool {
		return strings.Contains(page.said.String(), fmt.Sprintf("process %d of %s (%s) belongs to lease %s and uses GPU 1, which that lease does not have", astray.Process.Pid, nameOf(uint32(os.Geteuid())), filepath.Base(r.Job), lease))
	})
	_ = astray.Process.Kill()
	// What is told is a tenth of a processor. Four together get that where thirty others compute too, and take less than one where none does.
	const rests = "while :; do i=0; while [ $i -lt 8000 ]; do i=$((i+1)); done; sleep 0.05; done"
	spin := r.cmd("run", "-q", "--device", "0", "--name", "beside", "--", "sh", "-c", "echo $GPUARD_LEASE; for i in 1 2 3; do ("+rests+") & done; "+rests)
	spin.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	beside := begin(t, spin)
	t.Cleanup(func() { _ = unix.Kill(-spin.Process.Pid, unix.SIGKILL) })
	eventually(t, "it is told", func() bool {
		return strings.Contains(page.said.String(), fmt.Sprintf("(lease %s) computes on the processor", beside))
	})
	if text := page.said.String(); strings.Contains(text, lease+") computes") {
		t.Errorf("%s", text)
	}
}
