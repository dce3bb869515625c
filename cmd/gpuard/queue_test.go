package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/gate"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/proc"
	"gpuard/test/apart"
)

// queueFixture is the queue of a user on a machine with fake GPUs.
type queueFixture struct {
	*fakeDriverMachine
	marks   string // folder in which jobs leave what they have done
	program string // that keeps them
}

func newQueueFixture(t *testing.T, n int) *queueFixture {
	l := &queueFixture{newFakeDriverMachine(t, makeA100s(n)...), t.TempDir(), "hasty"}
	t.Cleanup(func() {
		for rest := 2; rest > 0; rest-- { // the keeper may just start a runner, and that one a job
			if left := apart.ProcessesNaming(l.queueFolder()); len(left) > 0 {
				apart.KillProcesses(left)
				rest = 2
			}
		}
	})
	return l
}

func (l *queueFixture) queueFolder() string { return durablePath(l.state, os.Geteuid(), "queue") }

// queueProcesses are those with this first argument that keep this queue.
func (l *queueFixture) queueProcesses(flag string) (pids []int) {
	dir := l.queueFolder()
	for _, p := range batch.ListProcesses() {
		if words := proc.New("/proc").Arguments(p.PID); len(words) > 2 && words[1] == flag && strings.TrimSuffix(words[2], "/journal") == dir && !p.IsDead() && p.Session == p.PID {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

func (l *queueFixture) submitCommand(args ...string) *exec.Cmd {
	words := []string{"submit", "-q"}
	if isContained() {
		words = append(words, "--private-state")
	}
	return l.cmd(append(words, args...)...)
}

func (l *queueFixture) queuedJobs() []userqueue.Entry {
	var a struct{ Jobs []userqueue.Entry }
	got := runCommand(l.t, l.cmd("queue", "--json"))
	if err := json.Unmarshal([]byte(got.out), &a); err != nil {
		l.t.Errorf("queue: %+v", got)
	}
	return a.Jobs
}

func (l *queueFixture) endedJobs() []userqueue.Entry {
	l.t.Helper()
	var a struct{ Jobs []userqueue.Entry }
	got := runCommand(l.t, l.cmd("history", "--json"))
	if err := json.Unmarshal([]byte(got.out), &a); err != nil {
		l.t.Fatalf("history: %+v", got)
	}
	return a.Jobs
}

// waitUntilAllEnded waits until nothing runs or waits. Every look revives the queue.
func (l *queueFixture) waitUntilAllEnded() {
	l.t.Helper()
	waitUntil(l.t, "all jobs have ended", func() bool { return len(l.queuedJobs()) == 0 })
}

// TestQueuePath is the way of a person: hand in five jobs, log out, log in again, look, follow, cancel, and see how they
// ended.
func TestQueuePath(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	gate := filepath.Join(l.marks, "gate")
	login := l.cmd() // a shell that hands in the jobs, and everything that it started, gets SIGHUP at the logout
	login.Path, login.Args = "/bin/sh", []string{"sh", "-c", `
gpuard submit $PRIVATE --name first -- sh -c "echo begun; while ! test -e $1; do sleep 0.1; done; echo over"
for n in 2 3 4; do gpuard submit $PRIVATE -- sh -c "echo job $n on \$GPUARD_GPUS"; done
gpuard submit $PRIVATE --name bad --note "to be seen" -- sh -c "exit 7"
kill -HUP 0`, "sh", gate}
	login.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	got := runCommand(t, login)
	if strings.Count(got.out, " is queued; its output: ") != 5 {
		t.Fatalf("%+v", got)
	}
	waitUntil(t, "the first runs", func() bool { q := l.queuedJobs(); return len(q) == 5 && q[0].State == userqueue.Running })
	shown := l.run("queue").out
	checkContains(t, shown, "1  running", "first", "2  waiting", "to be seen")
	follow := l.cmd("logs", "-f", "1")
	heard := &outputBuffer{}
	follow.Stdout = heard
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "logs -f shows the output", func() bool { return strings.Contains(heard.String(), "begun") })
	checkEqual(t, "cancel", l.run("cancel", "3").out, "job 3 is cancelled\n")
	writeFile(t, gate, "", 0)
	if err := follow.Wait(); err != nil || heard.String() != "begun\nover\n" {
		t.Errorf("logs -f: %v, %q", err, heard.String())
	}
	checkEqual(t, "wait", l.run("wait", "1", "2", "4", "5").code, 7)
	inLease := runCommand(t, l.cmd("run", "-q", "--", "gpuard", "submit", "-q", "--hold", "--cpu", "--", "env"))
	checkEqual(t, "a job that is handed in inside of a lease: "+inLease.err, inLease.out, "6\n")
	checkEqual(t, "unhold", l.run("queue", "unhold", "6").code, 0)
	checkEqual(t, "wait", l.run("wait", "6").code, 0)
	if got := l.run("logs", "6").out; strings.Contains(got, "GPUARD_LEASE=") || strings.Contains(got, "GPUARD_GPUS="+fakeUUID(0)) || !strings.Contains(got, "GPUARD_JOB=6\n") {
		t.Errorf("it has the lease's environment:\n%s", got)
	}
	l.waitUntilAllEnded()
	var ended []string
	for _, e := range l.endedJobs() {
		ended = append(ended, string(e.State))
		if e.State == userqueue.Done && e.Number < 6 && (e.Exit == nil || *e.Exit != 0 || len(e.Devices) != 1 || e.Started == nil || e.Ended == nil) {
			t.Errorf("%+v", e)
		}
	}
	checkEqual(t, "history", strings.Join(ended, " "), "done done cancelled done failed done")
	checkContains(t, l.run("history").out, "exit 7", "cancelled", "GPU 0")
	checkEqual(t, "what a job wrote", l.run("logs", "2").out, "job 2 on "+fakeUUID(0)+"\n")
	waitUntil(t, "nothing is left", func() bool {
		return len(l.queueProcesses(userqueue.Flag))+len(l.queueProcesses(userqueue.RunnerFlag)) == 0
	})
}

// TestQueueReboot: after a boot of the machine what waited runs, and what ran is lost, by name and time, and started
// again only if that was asked for.
func TestQueueReboot(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	jobs := [][]string{{"--name", "ran", "--", "sleep", "300"}, {"--", "true"}, {"--hold", "--", "true"}, {"--after", "1:any", "--", "true"}}
	for _, words := range jobs {
		checkEqual(t, "submit", runCommand(t, l.submitCommand(words...)).code, 0)
	}
	waitUntil(t, "the first runs", func() bool {
		q := l.queuedJobs()
		return len(q) == 4 && q[0].State == userqueue.Running && q[0].PID > 0
	})
	running := l.queuedJobs()[0].PID
	for _, pid := range append(append(l.queueProcesses(userqueue.Flag), l.queueProcesses(userqueue.RunnerFlag)...), running) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	waitUntil(t, "all are dead", func() bool {
		return len(l.queueProcesses(userqueue.Flag))+len(l.queueProcesses(userqueue.RunnerFlag)) == 0
	})
	path := filepath.Join(l.queueFolder(), "journal")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	const before = "00000000-0000-4000-8000-000000000000"
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), strings.TrimSpace(string(boot)), before)), 0o600); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "what waited has run", func() bool { q := l.queuedJobs(); return len(q) == 1 && q[0].State == userqueue.Held })
	var ended []string
	for _, e := range l.endedJobs() {
		ended = append(ended, string(e.State))
	}
	checkEqual(t, "history", strings.Join(ended, " "), "lost done done")
	checkContains(t, l.run("history").out, "1  lost", "ran", "the machine, or both processes of the queue, went down while it ran")
	checkEqual(t, "requeue", l.run("queue", "requeue", "1").code, 0)
	waitUntil(t, "it runs again", func() bool {
		q := l.queuedJobs()
		return len(q) == 2 && q[0].State == userqueue.Running && q[0].Starts == 2
	})
	checkEqual(t, "cancel", l.run("cancel", "1", "3").code, 0)
	l.waitUntilAllEnded()
}

// TestQueueUsers: three users hand in 60 jobs for 4 devices. The first job of each starts before the third of any, and
// nobody reads, changes or cancels what is another's.
func TestQueueUsers(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root", "cc")
	l := newQueueFixture(t, 4)
	for _, path := range []string{filepath.Dir(filepath.Dir(l.state)), filepath.Dir(l.marks)} {
		if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // other users read it
			t.Fatal(err)
		}
	}
	if err := os.Chmod(l.marks, 0o777); err != nil { //nolint:gosec // other users write there
		t.Fatal(err)
	}
	program := l.installForAllUsers()
	checkEqual(t, "root makes the folder of the leases", l.run("run", "-q", "--", "true").code, 0)
	users := []uint32{41001, 41002, 41003}
	each := gate.SoakCount(20, 8) // of which the first two last until one of everybody has begun: four GPUs suffice for that only in a fair order
	order := filepath.Join(l.marks, "order")
	if err := os.WriteFile(order, nil, 0o666); err != nil { //nolint:gosec // all write there
		t.Fatal(err)
	}
	if err := os.Chmod(order, 0o666); err != nil { //nolint:gosec // all write there
		t.Fatal(err)
	}
	stop := filepath.Join(l.marks, "stop") // all are handed in before one can start
	startToFirstLine(t, l.cmd("run", "-q", "--gpus", "4", "--", "sh", "-c", "echo leased; while ! test -e "+stop+"; do sleep 0.1; done"))
	var group sync.WaitGroup
	for _, uid := range users {
		group.Go(func() {
			for n := range each {
				job := fmt.Sprintf("echo %d %d >> %s; ", uid, n+1, order)
				if n < 2 {
					for _, other := range users {
						job += fmt.Sprintf(`until grep -q "^%d " %s; do sleep 0.1; done; `, other, order)
					}
				}
				got := runCommand(t, l.namespaceCommand(uid, "env", fmt.Sprintf("%s submit $PRIVATE -q -- sh -c '%s'", program, job)))
				if got.code != 0 || got.out != fmt.Sprintln(n+1) {
					t.Errorf("uid %d, job %d: %+v", uid, n+1, got)
				}
			}
		})
	}
	group.Wait()
	waitUntil(t, "the first of each waits in the line", func() bool {
		s, _ := l.readStatus()
		known := map[string]bool{}
		for _, w := range s.Waiting {
			known[w.User] = true
		}
		return len(known) == len(users)
	})
	writeFile(t, stop, "", 0)
	waitUntil(t, "all have run", func() bool {
		text, _ := os.ReadFile(order)
		return strings.Count(string(text), "\n") == each*len(users)
	})
	text, _ := os.ReadFile(order)
	begun, last := map[string]int{}, strings.Fields("")
	for line := range strings.Lines(string(text)) {
		last = strings.Fields(line)
		if begun[last[0]]++; begun[last[0]] == 3 && len(begun) < len(users) {
			t.Errorf("the third job of uid %s started before the first of another:\n%s", last[0], text)
		}
	}
	own := durablePath(l.state, int(users[0]), "queue")
	for _, script := range []string{"cat " + own + "/journal", "ls " + own, "echo x >> " + own + "/journal", "mv " + own + " " + own + "2", "cat " + own + "/env/*", "cat " + own + "/jobs/1/log"} {
		if got := runCommand(t, l.namespaceCommand(users[1], "env", script+" 2>/dev/null")); got.code == 0 || got.out != "" {
			t.Errorf("another user can %s: %q", script, got.out)
		}
	}
	checkEqual(t, "jobs of another", runCommand(t, l.namespaceCommand(users[1], "env", fmt.Sprint(program, " cancel ", each+1))).code, 2)
}

// TestQueueKill kills both processes of a queue, those that hand in, and jobs, at random moments while jobs come and go.
// None that was acknowledged is lost or runs twice; those that nobody saw the end of are named.
func TestQueueKill(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 4)
	rounds := soakCount(1000, 15)
	var mu sync.Mutex
	acknowledged := map[int]int{} // number to its mark
	mark := 0
	hand := func() {
		mu.Lock()
		mark++
		own := mark
		mu.Unlock()
		file := filepath.Join(l.marks, strconv.Itoa(own))
		what := []string{"--", "sh", "-c", fmt.Sprintf("echo $$ >> %s; sleep 0.0%d", file, own%9)}
		if own%2 == 0 { // it has a keeper
			what = append([]string{"--grace", "5s"}, what...)
		}
		if own%3 == 0 {
			what = append([]string{"--cpu"}, what...)
		}
		cmd := l.submitCommand(what...)
		out := &strings.Builder{}
		cmd.Stdout = out
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		if own%5 == 0 {
			time.AfterFunc(time.Duration(rand.IntN(6000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		}
		_ = cmd.Wait()
		if n, err := strconv.Atoi(strings.TrimSpace(out.String())); err == nil {
			mu.Lock()
			acknowledged[n] = own
			mu.Unlock()
		}
	}
	kills := 0
	for range rounds {
		var group sync.WaitGroup
		for range 3 {
			group.Go(hand)
		}
		time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
		flags := []string{userqueue.Flag, userqueue.RunnerFlag}
		switch rand.IntN(5) {
		case 0:
			flags = flags[:1]
		case 1:
			flags = flags[1:]
		case 2:
			if jobs := l.queuedJobs(); len(jobs) > 0 && jobs[0].PID > 0 {
				_ = unix.Kill(jobs[0].PID, unix.SIGKILL)
			}
			flags = nil
		case 3:
			flags = []string{machine.KeeperFlag}
		}
		for _, flag := range flags {
			for _, pid := range l.queueProcesses(flag) {
				_ = unix.Kill(pid, unix.SIGKILL)
				kills++
			}
		}
		group.Wait()
	}
	l.waitUntilAllEnded()
	states := map[userqueue.State]int{}
	byNumber := map[int]userqueue.Entry{}
	for _, e := range l.endedJobs() {
		byNumber[e.Number] = e
		states[e.State]++
	}
	for number, own := range acknowledged {
		e, found := byNumber[number]
		text, _ := os.ReadFile(filepath.Join(l.marks, strconv.Itoa(own)))
		times := strings.Count(string(text), "\n")
		switch {
		case !found:
			t.Errorf("job %d was acknowledged and is lost", number)
		case times > 1:
			t.Errorf("job %d ran %d times: %+v", number, times, e)
		case times == 0 && e.State == userqueue.Done:
			t.Errorf("job %d is done and never ran", number)
		case e.State == userqueue.Lost && e.Why == "":
			t.Errorf("job %d is lost without a word", number)
		}
	}
	t.Logf("%d jobs, %d kills: %v", len(acknowledged), kills, states)
	if states[userqueue.Done] < rounds {
		t.Errorf("of %d jobs only %d are done", len(acknowledged), states[userqueue.Done])
	}
}
