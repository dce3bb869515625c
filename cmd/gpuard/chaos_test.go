package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

// chaosDuration is how long each chaos lasts.
func chaosDuration() time.Duration { return time.Duration(gate.SoakCount(300, 2)) * time.Second }

// chaosTest is many short runs of several users, while starters, commands and holders are killed, asked to end, and
// stopped. Each command checks that it alone has its device (occupy).
type chaosTest struct {
	t                                *testing.T
	state, folder                    string // of the machine, and of its leases
	program, job, parent             string
	devices, violations              string
	env                              []string
	machine                          []string // flags that name it
	users                            []uint32
	spaces                           bool                         // a third of the starters are in namespaces
	own                              string                       // a folder that is not the one of leases
	beside                           []func(stop <-chan struct{}) // what goes on at the same time
	enough                           func() bool                  // everything was met
	mu                               sync.Mutex
	n, holdersKilled, holdersStopped int
	runs, sent                       map[string]int
}

// newChaosTest gets places ready that all users can enter; state is the folder of its own that others cannot see in a
// private mount.
func newChaosTest(t *testing.T, state string) *chaosTest {
	t.Helper()
	c := &chaosTest{t: t, state: state, parent: filepath.Dir(state), devices: t.TempDir(), violations: t.TempDir(), users: []uint32{uint32(os.Geteuid())},
		runs: map[string]int{}, sent: map[string]int{}}
	if os.Geteuid() == 0 {
		c.users = []uint32{0, bobUID, 2, 3}
	}
	bin := t.TempDir()
	c.program = filepath.Join(bin, "gpuard")
	linkProgram(t, c.program)
	c.job = filepath.Join(bin, "occupy")
	if err := os.Symlink("gpuard", c.job); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]fs.FileMode{filepath.Dir(bin): 0o755, bin: 0o755, c.violations: 0o777 | fs.ModeSticky, c.parent: 0o755, c.devices: 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	c.env = []string{"DEVICES=" + c.devices, "VIOLATIONS=" + c.violations, "LC_ALL=C"}
	return c
}

// prepareMachine names the machine and its devices, and makes the folder of leases.
func (c *chaosTest) prepareMachine(folder func() string, flags []string, devices []string, env ...string) {
	c.t.Helper()
	c.machine, c.env = flags, append(c.env, env...)
	for _, d := range devices { // all users may lock it
		path := filepath.Join(c.devices, d)
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			c.t.Fatal(err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			c.t.Fatal(err)
		}
	}
	if got := runCommand(c.t, c.leaseCommand(c.users[0], "", "--", "true")); got.code != 0 {
		c.t.Fatalf("the first run ended with %d: %s", got.code, got.err)
	}
	c.folder = folder()
	c.env = append(c.env, "LEASES="+c.folder, "LINGER=60ms")
}

// expandWords are those of a line in which one may be quoted, with the places of this chaos.
func (c *chaosTest) expandWords(line string) []string {
	words := strings.Fields(line)
	if before, script, found := strings.Cut(line, "'"); found {
		script, after, _ := strings.Cut(script, "'")
		words = append(append(strings.Fields(before), script), strings.Fields(after)...)
	}
	places := strings.NewReplacer("$PARENT", c.parent, "$STATE", c.state, "$OWN", c.own)
	for i := range words {
		words[i] = places.Replace(words[i])
	}
	return words
}

// leaseCommand prepares a run of a user, in namespaces that words make.
func (c *chaosTest) leaseCommand(uid uint32, words string, command ...string) *exec.Cmd {
	return c.userCommand(uid, slices.Concat(c.expandWords(words), []string{c.program, "run", "-q"}, c.machine, command)...)
}

// userCommand prepares a command of a user.
func (c *chaosTest) userCommand(uid uint32, args ...string) *exec.Cmd {
	cmd := gpuardCommand(c.t, c.state, c.env)
	path, err := exec.LookPath(args[0])
	if err != nil {
		c.t.Error(err)
	}
	cmd.Path, cmd.Args, cmd.Dir, cmd.WaitDelay = path, args, "/", 20*time.Second
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	return cmd
}

// runUntilMet starts runs from several sides until the time is over, and everything was met that the test is about.
func (c *chaosTest) runUntilMet(sides int) {
	places := slices.DeleteFunc(namespaceCases(), func(s namespaceCase) bool {
		return s.root && os.Geteuid() != 0 || s.gate != "" && !gate.Has(c.t, s.gate)
	})
	stop := make(chan struct{})
	var wg, others sync.WaitGroup
	for _, f := range append(c.beside, c.attackHolders) {
		others.Go(func() { f(stop) })
	}
	end := time.Now().Add(chaosDuration())
	const patience = time.Minute // only a broken program, or a machine with far too much to do, needs it
	var turn atomic.Int64
	for range sides {
		wg.Go(func() {
			for !c.t.Failed() && (time.Now().Before(end) || !c.hasMetAll() && time.Now().Before(end.Add(patience))) {
				at, uid := namespaceCase{}, c.users[rand.IntN(len(c.users))]
				if c.spaces && rand.IntN(3) == 0 {
					if at = places[int(turn.Add(1))%len(places)]; at.root {
						uid = 0
					} else if at.user {
						uid = c.users[len(c.users)-1]
					}
				}
				c.makeRun(uid, at)
			}
		})
	}
	wg.Wait()
	close(stop)
	others.Wait()
	if !c.hasMetAll() {
		c.t.Errorf("this test has not met everything: %s", countsText(c.runs))
	}
}

// hasMetAll reports whether the runs have met what each chaos is about, and what this one is about.
func (c *chaosTest) hasMetAll() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs["leased: "] > 0 && c.runs["busy"] > 0 && c.runs["killed"] > 0 && c.holdersKilled > 0 && (c.enough == nil || c.enough())
}

// makeRun makes a run, and attacks every other one.
func (c *chaosTest) makeRun(uid uint32, at namespaceCase) {
	flags := []string{"--no-wait"}
	if rand.IntN(2) == 0 {
		flags = []string{"--wait", "20s"}
	}
	how, attacked := at.words, rand.IntN(2) == 0 && at.refused == ""
	cmd := c.leaseCommand(uid, at.words, append(flags, "--", c.job)...)
	if c.spaces && at.refused == "" && !at.below && rand.IntN(4) == 0 {
		how = "a container " + how
		cmd = c.containerCommand(uid, at.words, attacked, flags...)
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		c.t.Error(err)
		return
	}
	if attacked {
		c.signalRun(cmd.Process.Pid, at.below)
	}
	err := cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	code := cmd.ProcessState.ExitCode()
	switch {
	case at.refused != "":
		c.runs["refused: "+at.refused]++
		if code != 125 || !strings.Contains(said.String(), at.refused) {
			c.t.Errorf("%s: exit %d, %v, want a refusal that says %q: %s", how, code, err, at.refused, said.String())
		}
	case code == 0:
		c.runs["leased: "+how]++
	case code == 120 || code == 121:
		c.runs["busy"]++
	case attacked, code == 137 && strings.HasPrefix(how, "a container"): // by a signal, or its parent reports one
		c.runs["killed"]++
	default:
		c.t.Errorf("%s of uid %d ended with %v: %s", how, uid, cmd.ProcessState, said.String())
	}
}

// signalRun signals a run at some moment of its life, as starter or as command. A stopped one is continued or killed a
// little later. below says that the run is a child of pid.
func (c *chaosTest) signalRun(pid int, below bool) {
	time.Sleep(rand.N(120 * time.Millisecond))
	parent := pid
	if below {
		var child int
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
		if _, err := fmt.Sscan(string(text), &child); err != nil {
			return
		}
		pid = child
	}
	sig := []unix.Signal{unix.SIGKILL, unix.SIGKILL, unix.SIGTERM, unix.SIGSTOP}[rand.IntN(4)]
	_ = unix.Kill(pid, sig)
	if sig == unix.SIGSTOP {
		time.Sleep(rand.N(100 * time.Millisecond))
		_ = unix.Kill(pid, []unix.Signal{unix.SIGCONT, unix.SIGKILL}[rand.IntN(2)])
		_ = unix.Kill(pid, unix.SIGCONT)
		_ = unix.Kill(parent, unix.SIGCONT) // some stop with their child
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[sig.String()]++
}

// sleepUnlessStopped waits for a random time, and reports whether stop is still to come.
func sleepUnlessStopped(stop <-chan struct{}, most time.Duration) bool {
	select {
	case <-stop:
		return false
	case <-time.After(rand.N(most)):
		return true
	}
}

// attackHolders kills and stops holders until stop.
func (c *chaosTest) attackHolders(stop <-chan struct{}) {
	for sleepUnlessStopped(stop, 60*time.Millisecond) {
		found := holdersOf(c.folder)
		if len(found) == 0 {
			continue
		}
		pid := found[rand.IntN(len(found))]
		if rand.IntN(2) == 0 {
			if !hasNoClient(pid) && unix.Kill(pid, unix.SIGKILL) == nil {
				c.mu.Lock()
				c.holdersKilled++
				c.mu.Unlock()
			}
			continue
		}
		if unix.Kill(pid, unix.SIGSTOP) == nil {
			c.holdersStopped++
			time.Sleep(rand.N(50 * time.Millisecond))
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	}
}

// checkNothingLeft fails the test for every double lease, and for everything that is left after each user has run once more.
func (c *chaosTest) checkNothingLeft(devices int) {
	c.t.Helper()
	found, _ := filepath.Glob(filepath.Join(c.violations, "*"))
	for _, path := range found {
		text, _ := os.ReadFile(path)
		c.t.Errorf("process %s: %s", filepath.Base(path), text)
	}
	c.t.Logf("%d runs: %s; signals: %s; %d holders killed, %d stopped", c.n, countsText(c.runs), countsText(c.sent), c.holdersKilled, c.holdersStopped)
	waitUntil(c.t, "no holder is left", func() bool { return len(holdersOf(c.folder)) == 0 })
	all := c.leaseCommand(c.users[0], "", "--no-wait", "--gpus", fmt.Sprint(devices), "--", "sh", "-c", "echo all; exec sleep 300")
	checkEqual(c.t, "a run on every device", startToFirstLine(c.t, all), "all")
	for _, uid := range c.users { // a request that waits in vain: it removes what the user's killed ones left
		for _, words := range []string{"", "unshare -c"} {
			if c.spaces || words == "" {
				got := runCommand(c.t, c.leaseCommand(uid, words, "--wait", "50ms", "--", "true"))
				checkEqual(c.t, fmt.Sprintf("exit code of uid %d (%s): %s", uid, words, got.err), got.code, 121)
			}
		}
	}
	_, _ = all.Process.Kill(), all.Wait()
	waitUntil(c.t, "no holder is left", func() bool { return len(holdersOf(c.folder)) == 0 })
	_ = filepath.WalkDir(c.folder, func(path string, e fs.DirEntry, err error) error {
		name := e.Name()
		if err != nil || !e.IsDir() && !slices.Contains([]string{"last", "lock", "format", "leases-ended", "measure"}, name) && !strings.HasPrefix(name, "xids-") {
			c.t.Errorf("left behind: %s (%v)", path, err)
		}
		return nil
	})
}

func countsText(n map[string]int) string {
	var words []string
	for _, k := range slices.Sorted(maps.Keys(n)) {
		words = append(words, fmt.Sprintf("%d %s", n[k], strings.TrimSpace(k)))
	}
	return strings.Join(words, ", ")
}

// TestChaos: four users, and kills at every step of starters, commands, holders and waiters.
func TestChaos(t *testing.T) {
	r := newDemoMachine(t, "demo")
	c := newChaosTest(t, r.state)
	c.prepareMachine(r.leaseFolder, []string{"--machine", r.machine}, allDeviceUUIDs(t, r))
	c.runUntilMet(8)
	c.checkNothingLeft(4)
}

// allDeviceUUIDs are the UUIDs of the rig's machine.
func allDeviceUUIDs(t *testing.T, r *demoMachine) []string {
	t.Helper()
	cmd := r.jobCommand("sh", "-c", "echo $GPUARD_GPUS")
	cmd.Args = slices.Insert(cmd.Args, 2, "--gpus", "4")
	got := runCommand(t, cmd)
	if got.code != 0 {
		t.Fatal(got.err)
	}
	return strings.Split(strings.TrimSpace(got.out), ",")
}
