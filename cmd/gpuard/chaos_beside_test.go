package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/userqueue"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/proc"
)

// misreportedProcesses are processes, one of each user, that the driver lists for a device which they have not opened: by their
// numbers it may mean others.
type misreportedProcesses struct {
	*chaosTest
	r       *fakeDriverMachine
	device  int
	pids    map[uint32]int // of whom
	answers map[string]int
}

func startMisreportedProcesses(c *chaosTest, r *fakeDriverMachine, device int) *misreportedProcesses {
	c.t.Helper()
	b := &misreportedProcesses{c, r, device, map[uint32]int{}, map[string]int{}}
	for _, uid := range c.users {
		cmd := c.userCommand(uid, "sleep", "100000")
		if err := cmd.Start(); err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		b.pids[uid] = cmd.Process.Pid
		r.TrackProcess(device, cmd.Process.Pid, 1<<30, "C")
	}
	return b
}

// refusalReasons are what evict says why it ends nothing. The first three are always met.
func (b *misreportedProcesses) refusalReasons() []string {
	return []string{fmt.Sprintf("it has not opened GPU %d", b.device), "ask them, or root", "outside of this PID namespace",
		"whose it is cannot be read", "cannot read which files", "it is not known to have slept"}
}

// requestEvictions asks for the end of bystanders, as each user, from outside and from namespaces, until stop. A namespace has a
// bystander of its own, if possible of the same number, so that the driver means it, too.
func (b *misreportedProcesses) requestEvictions(stop <-chan struct{}) {
	const inside = `echo $(($1 - 1)) >/proc/sys/kernel/ns_last_pid
sleep 300 & own=$!
test -e "$FAKEGPU_DIR/gpus/$2/procs.d/$own" || echo "1G C" >"$FAKEGPU_DIR/gpus/$2/procs.d/$own"
shift 2
"$0" evict "$@" $own
kill -0 $own && echo the one inside lives`
	forms := [][]string{{"--force"}, {"--grace", "10ms"}, {"--json", "--force"}, {"--idle", "1ms", "--force"}}
	spaces := []string{"", "unshare -r", "unshare -c --mount", "unshare -r --pid --fork --kill-child --mount-proc", "unshare -r --pid --fork --kill-child"}
	for n := 0; sleepUnlessStopped(stop, 100*time.Millisecond); n++ {
		uid, form, space := b.users[rand.IntN(len(b.users))], forms[rand.IntN(len(forms))], spaces[n%len(spaces)]
		whose := b.users[rand.IntN(len(b.users))]
		if rand.IntN(2) == 0 {
			whose = uid
		}
		if n < 2 { // root and a user, each for a process of the other
			uid, whose, form, space = b.users[n], b.users[1-n], forms[0], ""
		}

		pid := strconv.Itoa(b.pids[whose])
		args := slices.Concat(b.expandWords(space), []string{b.program, "evict"}, form, []string{pid})
		if strings.Contains(space, "--pid") {
			args = slices.Concat(b.expandWords(space), []string{"sh", "-c", inside, b.program, pid, strconv.Itoa(b.device)}, form)
		}
		b.countAnswer(uid, runCommand(b.t, b.userCommand(uid, args...)), args)
	}
}

// countAnswer counts an answer.
func (b *misreportedProcesses) countAnswer(uid uint32, got runResult, args []string) {
	apart := slices.Contains(args, "--pid")
	reasons := b.refusalReasons()
	why := slices.IndexFunc(reasons, func(words string) bool { return strings.Contains(got.out+got.err, words) })
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case strings.Contains(got.out+got.err, "ended process"), strings.Contains(got.out, `"gone": true`), apart && !strings.Contains(got.out, "the one inside lives"), !apart && got.code == 0:
		b.t.Errorf("uid %d, %q: exit %d, %s%s", uid, args, got.code, got.out, got.err)
	case why < 0:
		b.answers["other: "+got.out+got.err]++
	default:
		b.answers[reasons[why]]++
	}
}

// hasMetReasons: the reasons were given. The caller has the lock.
func (b *misreportedProcesses) hasMetReasons() bool {
	return !slices.ContainsFunc(b.refusalReasons()[:3], func(words string) bool { return b.answers[words] == 0 })
}

func (b *misreportedProcesses) checkNoneEnded() {
	b.t.Helper()
	b.t.Logf("evicted nothing: %s", countsText(b.answers))
	for uid, pid := range b.pids {
		if !isProcessAlive(pid) {
			b.t.Errorf("the bystander %d of uid %d has ended", pid, uid)
		}
	}
}

// sharedHome is one of a user, which two hosts share. Each runs the jobs that were handed in there.
type sharedHome struct {
	*chaosTest
	owner        uint32
	hosts        map[string]*sharedHomeHost // by a letter
	folder       string
	marks        string // a job writes a line into its mark
	jobs, kills  int
	acknowledged map[string]map[int]string // of a host: a job's number to its name
}

func newSharedHome(c *chaosTest) *sharedHome {
	c.t.Helper()
	h := &sharedHome{chaosTest: c, owner: c.users[len(c.users)-1], folder: quietDir(c.t), marks: c.t.TempDir(), hosts: map[string]*sharedHomeHost{}, acknowledged: map[string]map[int]string{}}
	for _, letter := range []string{"a", "b"} {
		p := newSharedHomeHost(c.t, h.folder, letter)
		h.hosts[letter], h.acknowledged[letter] = p, map[int]string{}
		if err := errors.Join(os.Chmod(filepath.Dir(p.site), 0o755), os.Chmod(filepath.Join(p.site, "etc/machine-id"), 0o644)); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, path := range []string{h.folder, h.marks} {
		if err := os.Chown(path, int(h.owner), int(h.owner)); err != nil {
			c.t.Fatal(err)
		}
	}
	return h
}

// hostCommand prepares the program of the home's owner on one of the hosts.
func (h *sharedHome) hostCommand(letter string, args ...string) *exec.Cmd {
	cmd := h.userCommand(h.owner, append([]string{h.program}, args...)...)
	cmd.Args[0] = "hasty"
	cmd.Env = h.hosts[letter].cmd().Env
	return cmd
}

// runAloneScript is a job: it writes its number into its mark, and complains of every other one there that lives. A lock instead would
// be kept for a moment by a child of a job that was killed; the command line of a process is gone before anybody hears of its end.
const runAloneScript = `echo $$ >>"$1"
while read -r other; do
	test $other = $$ || ! grep -qs "$1" /proc/$other/cmdline || grep -hE "^(Pid|PPid|State)" /proc/$other/status /proc/$$/status >>"$1-twice"
done <"$1"
sleep $2`

// submitJobs hands in jobs on both hosts until stop, some by a process that is killed meanwhile, and some that may be started
// again.
func (h *sharedHome) submitJobs(stop <-chan struct{}) {
	for sleepUnlessStopped(stop, 100*time.Millisecond) {
		h.mu.Lock()
		h.jobs++
		letter := string("ab"[h.jobs%2])
		name := fmt.Sprint(letter, h.jobs)
		kind := "once"
		words := []string{"submit", "-q", "--cpu", "--name", name}
		if rand.IntN(2) == 0 {
			kind, words = "again", append(words, "--retry", "3:any")
		}
		h.mu.Unlock()
		cmd := h.hostCommand(letter, append(words, "--", "sh", "-c", runAloneScript, "sh", filepath.Join(h.marks, name+"-"+kind), fmt.Sprintf("0.%02d", rand.IntN(20)))...)
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			h.t.Error(err)
			return
		}
		attacked := rand.IntN(5) == 0
		if attacked {
			_ = sleepUnlessStopped(nil, 20*time.Millisecond)
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait()
		number, err := strconv.Atoi(strings.TrimSpace(out.String()))
		h.mu.Lock()
		switch before, twice := h.acknowledged[letter][number]; {
		case err == nil && twice:
			h.t.Errorf("the number %d of host %s was given to %s and to %s", number, letter, before, name)
		case err == nil:
			h.acknowledged[letter][number] = name
		case !attacked:
			h.t.Errorf("submit on host %s: %v, %s", letter, cmd.ProcessState, errs.String())
		}
		h.mu.Unlock()
	}
}

// queueProcesses are those of the queues and of their jobs, of both hosts.
func (h *sharedHome) queueProcesses() map[string][]int {
	found := map[string][]int{}
	for _, p := range batch.ListProcesses() {
		words := proc.New("/proc").Arguments(p.PID)
		switch {
		case p.IsDead() || len(words) < 3:
		case (words[1] == userqueue.Flag || words[1] == userqueue.RunnerFlag) && strings.HasPrefix(words[2], h.folder+"/"):
			found[words[1]] = append(found[words[1]], p.PID)
		case len(words) > 4 && words[0] == "sh" && strings.HasPrefix(words[4], h.marks+"/"):
			found["job"] = append(found["job"], p.PID)
		}
	}
	return found
}

// killProcesses kills keepers, runners, both, or a job, until stop.
func (h *sharedHome) killProcesses(stop <-chan struct{}) {
	kinds := [][]string{{userqueue.Flag}, {userqueue.RunnerFlag}, {userqueue.Flag, userqueue.RunnerFlag}, {"job"}}
	for sleepUnlessStopped(stop, 200*time.Millisecond) {
		found := h.queueProcesses()
		for _, kind := range kinds[rand.IntN(len(kinds))] {
			for _, pid := range found[kind] {
				if rand.IntN(4) > 0 && unix.Kill(pid, unix.SIGKILL) == nil {
					h.mu.Lock()
					h.kills++
					h.mu.Unlock()
				}
			}
		}
	}
}

// hasMetBothHosts: jobs of both hosts were handed in, and processes were killed. The caller has the lock.
func (h *sharedHome) hasMetBothHosts() bool {
	return len(h.acknowledged["a"]) > 5 && len(h.acknowledged["b"]) > 5 && h.kills > 5
}

// listJobs returns the jobs that a host lists.
func (h *sharedHome) listJobs(letter, list string) []userqueue.Entry {
	var a struct{ Jobs []userqueue.Entry }
	got := runCommand(h.t, h.hostCommand(letter, list, "--json"))
	if err := json.Unmarshal([]byte(got.out), &a); err != nil {
		h.t.Errorf("%s on host %s: %+v", list, letter, got)
	}
	return a.Jobs
}

// checkAllJobs waits until both hosts have done everything. Each look starts the queue of its host again, if it has ended.
func (h *sharedHome) checkAllJobs() {
	h.t.Helper()
	states := map[string]int{}
	for letter := range h.hosts {
		waitUntil(h.t, "all jobs of host "+letter+" have ended", func() bool { return len(h.listJobs(letter, "queue")) == 0 })
		known := map[int]bool{}
		for _, e := range h.listJobs(letter, "history") {
			known[e.Number] = true
			states[string(e.State)]++
			h.checkJob(letter, e)
		}
		for number, name := range h.acknowledged[letter] {
			if !known[number] {
				h.t.Errorf("job %d of host %s (%s) was acknowledged and is lost", number, letter, name)
			}
		}
	}
	twice, _ := filepath.Glob(filepath.Join(h.marks, "*-twice"))
	for _, path := range twice {
		text, _ := os.ReadFile(path)
		h.t.Errorf("%s ran twice at the same time:\n%s", filepath.Base(path), text)
	}
	h.t.Logf("%d jobs of one home on two hosts: %s; %d of their processes were killed", h.jobs, countsText(states), h.kills)
	waitUntil(h.t, "no process of the queues is left", func() bool { return len(h.queueProcesses()) == 0 })
}

// checkJob compares what the history of a host says of a job with its mark.
func (h *sharedHome) checkJob(letter string, e userqueue.Entry) {
	name := h.acknowledged[letter][e.Number]
	marks, _ := filepath.Glob(filepath.Join(h.marks, e.Name+"-*"))
	times := 0
	for _, path := range marks {
		text, _ := os.ReadFile(path) // of one that ran twice there is a second file
		times += strings.Count(string(text), "\n")
	}
	switch once := slices.Contains(marks, filepath.Join(h.marks, e.Name+"-once")); {
	case !strings.HasPrefix(e.Name, letter), name != "" && name != e.Name:
		h.t.Errorf("host %s has job %d as %s, and not %q", letter, e.Number, e.Name, name)
	case once && times > 1:
		h.t.Errorf("job %d of host %s ran %d times: %+v", e.Number, letter, times, e)
	case times == 0 && e.State == userqueue.Done:
		h.t.Errorf("job %d of host %s is done and never ran", e.Number, letter)
	case e.State == userqueue.Lost && e.Why == "":
		h.t.Errorf("job %d of host %s is lost without a word", e.Number, letter)
	}
}
