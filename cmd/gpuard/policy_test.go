package main

import (
	"cmp"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gpuard/internal/gate"
	"gpuard/internal/host/proc"
)

// policyMachine is a rig on a machine with a policy, with a system folder of its own.
type policyMachine struct {
	*demoMachine
	site string
}

// newPolicyMachine makes the policy of a machine with four devices; only root can.
func newPolicyMachine(t *testing.T, text string) *policyMachine {
	t.Helper()
	g := &policyMachine{newSharedDemoMachine(t, "demo"), t.TempDir()}
	for dir := filepath.Join(g.site, "etc", "gpuard"); dir != filepath.Dir(filepath.Dir(g.site)); dir = filepath.Dir(dir) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	g.writePolicy(text)
	return g
}

func (g *policyMachine) policyFile() string {
	return filepath.Join(g.site, "etc", "gpuard", "config.yaml")
}

func (g *policyMachine) writePolicy(text string) {
	g.t.Helper()
	if err := os.WriteFile(g.policyFile(), []byte(text), 0o644); err != nil {
		g.t.Fatal(err)
	}
}

// commandAs is the program on that machine, started by a user.
func (g *policyMachine) commandAs(uid uint32, args ...string) *exec.Cmd {
	cmd := gpuardCommand(g.t, g.state, []string{"SITE=" + g.site, "GPUARD_MACHINE=demo", "COLUMNS=2000", "DEVICES=" + g.devices, "VIOLATIONS=" + g.violations, "LEASES=" + g.leaseFolder()}, args...)
	cmd.Args[0] = "surveyed"
	if uid != 0 {
		asUser(uid, cmd)
	}
	return cmd
}

// checkRun fails unless the program ends so and says that on standard error.
func (g *policyMachine) checkRun(cmd *exec.Cmd, code int, want ...string) runResult {
	g.t.Helper()
	got := runCommand(g.t, cmd)
	if got.code != code {
		g.t.Errorf("%q: exit %d, want %d: %s%s", cmd.Args, got.code, code, got.out, got.err)
	}
	checkContains(g.t, got.out+got.err, want...)
	return got
}

// TestPolicy: the kernel's ids decide to whom a rule applies; a request that it forbids is refused for ever, with the
// place of the rule.
func TestPolicy(t *testing.T) {
	t.Parallel()
	name := proc.New("/proc").User(aliceUID)
	g := newPolicyMachine(t, "rules:\n- name: some\n  users: ["+name+"]\n  devices: [0, 1]\n  gpus: 2\n  mem: 80G\n  time: 2h\n- name: bobs\n  groups: ["+strconv.Itoa(bobUID)+"]\n  gpus: 0\n- name: roots\n  users: [root]\n  models: ['*H100*']\n  time: 2h\n")
	root := "rule \"roots\" (" + g.policyFile() + ":11) "
	at := "rule \"some\" (" + g.policyFile() + ":2) "
	g.checkRun(g.commandAs(aliceUID, "run", "--device", "3", "--", "true"), 122, "policy: "+at+"gives GPU 0 and 1", "have "+g.policyFile()+":2 changed")
	g.checkRun(g.commandAs(aliceUID, "run", "--gpus", "3", "--", "true"), 122, "cannot give 3 GPUs: policy: "+at+"gives at most 2 at the same time")
	g.checkRun(g.commandAs(aliceUID, "run", "--timeout", "3h", "--", "true"), 122, "policy: "+at+"gives it for at most 2h", "--timeout 2h")
	g.checkRun(g.commandAs(aliceUID, "run", "--share", "81G", "--", "true"), 122, "policy: "+at+"gives at most 80 GiB of a GPU")
	g.checkRun(g.commandAs(aliceUID, "run", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"), 0, "policy: "+at+"ends it after 2h", "GPU 1 ")
	if got := g.checkRun(g.commandAs(aliceUID, "run", "--cpu", "--", "true"), 0); strings.Contains(got.err, "policy") {
		t.Error(got.err) // no rule is about the processor
	}
	g.checkRun(g.commandAs(0, "reserve", "--for", "3h"), 122, root+"gives it for at most 2h", "ask for less time (--for 2h)")
	g.checkRun(g.commandAs(aliceUID, "env", "--device", "1"), 0, "CUDA_VISIBLE_DEVICES=1")
	g.checkRun(g.commandAs(bobUID, "run", "--", "true"), 122, `policy: rule "bobs" (`+g.policyFile()+":8) gives no GPU", "--cpu")
	g.checkRun(g.commandAs(0, "run", "--", "true"), 122, `(4 forbidden by rule "roots" (`)
	if n := g.countLeases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	// The variable USER does not count.
	cmd := g.commandAs(bobUID, "run", "--", "true")
	cmd.Env = append(cmd.Env, "USER="+name, "LOGNAME="+name)
	g.checkRun(cmd, 122, `rule "bobs"`)
}

// TestPolicyTrust: if another user could have written a file, or it has a mistake, no user can lease, and status still
// works.
func TestPolicyTrust(t *testing.T) {
	t.Parallel()
	g := newPolicyMachine(t, "rules:\n- gpus: 1\n  gpsu: 2\n")
	g.checkRun(g.commandAs(aliceUID, "run", "--", "true"), 125, "cannot read "+g.policyFile()+":3:3: unknown key \"gpsu\" of rule 1; did you mean gpus?; ask root to mend it")
	g.checkRun(g.commandAs(0, "sweep", "--over", "a=1,2", "--", "true"), 125, ":3:3: unknown key", "; mend it")
	for _, look := range [][]string{{"status"}, {"explain"}} {
		g.checkRun(g.commandAs(aliceUID, look...), 0, "GPU", "nothing is leased: cannot read "+g.policyFile()+":3:3")
	}
	g.writePolicy("rules:\n- gpus: 1\n")
	for mode, want := range map[os.FileMode]string{0o666: "others than its owner may write it", 0o664: "others than its owner may write it", 0o600: "permission denied"} {
		if err := os.Chmod(g.policyFile(), mode); err != nil {
			t.Fatal(err)
		}
		g.checkRun(g.commandAs(aliceUID, "run", "--", "true"), 125, g.policyFile(), want)
	}
	if err := os.Chmod(g.policyFile(), 0o644); err != nil {
		t.Fatal(err)
	}
	g.checkRun(g.commandAs(aliceUID, "run", "-q", "--", "true"), 0)
	far := filepath.Join(t.TempDir(), "far") // the home of another user, which sudo -E keeps
	if err := os.MkdirAll(filepath.Join(far, "gpuard"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := g.commandAs(aliceUID, "run", "-q", "--", "true")
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+far)
	g.checkRun(cmd, 0)
	if err := os.Chown(g.policyFile(), aliceUID, 0); err != nil {
		t.Fatal(err)
	}
	g.checkRun(g.commandAs(aliceUID, "run", "--", "true"), 125, "it belongs to "+proc.New("/proc").User(aliceUID), "sudo chown root "+g.policyFile())
	if err := os.Remove(g.policyFile()); err != nil {
		t.Fatal(err)
	}
	g.checkRun(g.commandAs(aliceUID, "run", "-q", "--", "true"), 0)
}

// TestPolicyAtOnce: of many runs of one user at the same moment as many start as the rule gives, whatever is free;
// others are not kept waiting by those; and the next one starts when one of them has ended.
func TestPolicyAtOnce(t *testing.T) {
	t.Parallel()
	g := newPolicyMachine(t, "rules:\n- name: two\n  gpus: 2\n")
	const runs = 24
	var refused atomic.Int32
	var wg sync.WaitGroup
	var mu sync.Mutex
	held := []string{}
	begun := make(chan struct{}, runs)
	for range runs {
		wg.Go(func() {
			cmd := g.commandAs(aliceUID, "run", "-q", "--no-wait", "--", "sh", "-c", `echo "$GPUARD_GPUS"; while ! test -e "$SITE/go"; do sleep 0.1; done`)
			got := runCommand(t, cmd)
			switch got.code {
			case 0:
				mu.Lock()
				held = append(held, strings.TrimSpace(got.out))
				mu.Unlock()
			case 120:
				refused.Add(1)
				checkContains(t, got.err, `rule "two" (`+g.policyFile()+":2) gives at most 2 at the same time, and you have 2 (lease ")
			default:
				t.Errorf("exit %d: %s", got.code, got.err)
			}
			begun <- struct{}{}
		})
	}
	for range runs - 2 {
		<-begun
	}
	if n := g.countLeases(); n != 2 {
		t.Errorf("%d leases of 2", n)
	}
	waiter := g.commandAs(aliceUID, "run", "-q", "--", "true")
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "a ticket waits", func() bool { return len(g.waitingTickets()) == 1 })
	g.checkRun(g.commandAs(bobUID, "run", "-q", "--no-wait", "--gpus", "2", "--", "true"), 0) // the waiting request is not ahead of bob
	if err := os.WriteFile(filepath.Join(g.site, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err := waiter.Wait(); err != nil {
		t.Errorf("the one that waited: %v", err)
	}
	if len(held) != 2 || refused.Load() != runs-2 || held[0] == held[1] {
		t.Errorf("%q started, %d refused", held, refused.Load())
	}
}

// TestPolicyWhileWaiting: a waiting request is subject to the files at the time it gets devices; a wrong file meanwhile
// does not end the wait.
func TestPolicyWhileWaiting(t *testing.T) {
	t.Parallel()
	g := newPolicyMachine(t, "rules:\n- name: early\n  gpus: 4\n")
	hold := func() (end func()) {
		cmd := g.commandAs(bobUID, "run", "-q", "--gpus", "4", "--", "sh", "-c", "echo; exec cat")
		in, err := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = out.Read(make([]byte, 1)) // it has all of them
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			_ = in.Close()
			_ = cmd.Wait()
		}
	}
	notes := t.TempDir() // where alice can write
	if err := cmp.Or(os.Chmod(filepath.Dir(notes), 0o755), os.Chmod(notes, 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		code int
		want string
	}{
		{"rules:\n- gpsu: 1\n", 0, ""},
		{"rules:\n- name: late\n  devices: [1]\n", 122, `rule "late" (` + g.policyFile() + ":2) gives GPU 1"},
	} {
		g.writePolicy("rules:\n- name: early\n  gpus: 4\n")
		waitUntil(t, "no request waits", func() bool { return len(g.waitingTickets()) == 0 })
		end := hold()
		waiter := make(chan runResult, 1)
		trace, waits := filepath.Join(notes, rand.Text()), g.commandAs(aliceUID, "run", "-q", "--device", "0", "--", "true")
		waits.Env = append(waits.Env, "GPUARD_TRACE="+trace)
		go func() { waiter <- runCommand(t, waits) }()
		waitUntil(t, "a ticket waits and has been refused by the rules before", func() bool {
			text, _ := os.ReadFile(trace)
			all := g.waitingTickets()
			return len(all) == 1 && strings.Contains(string(text), `"me":"`+all[0].ID+`"`)
		})
		g.writePolicy(c.text)
		end()
		if got := <-waiter; got.code != c.code || !strings.Contains(got.err, c.want) {
			t.Errorf("%q: %+v", c.text, got)
		}
	}
}

// TestPolicyOfUser: a user's own file gives defaults and narrows, and widens nothing. It needs no root.
func TestPolicyOfUser(t *testing.T) {
	t.Parallel()
	home, state := t.TempDir(), stateFolder(t)
	file := filepath.Join(home, "gpuard", "config.yaml")
	write := func(text string) {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	me := strconv.Itoa(os.Geteuid())
	say := func(code int, args []string, want ...string) string {
		t.Helper()
		got := runCommand(t, gpuardCommand(t, state, []string{"XDG_CONFIG_HOME=" + home, "GPUARD_MACHINE=demo", "COLUMNS=2000"}, args...))
		if got.code != code {
			t.Errorf("%q: exit %d, want %d: %s%s", args, got.code, code, got.out, got.err)
		}
		checkContains(t, got.out+got.err, want...)
		return got.out + got.err
	}
	write("rules:\n- name: mine\n  users: [" + me + "]\n  devices: [0]\ndefaults:\n  mem: 8G\n  gpus: 1\n  place: packed\n  wait: 10m\n  grace: 3s\n  quota: watch\n  expect: 3h\n")
	say(0, []string{"run", "--dry-run"}, "--mem 8G is the default of "+file+":6", "--place packed is the default of", "GPU 0 ")
	if text := say(0, []string{"run", "--dry-run", "--share", "4G"}, "--quota watch is the default"); strings.Contains(text, "--mem") || strings.Contains(text, "--grace") || strings.Contains(text, "--wait") {
		t.Errorf("what contradicts a flag was not left out: %s", text)
	}
	for _, args := range [][]string{{"run", "--cpu", "--", "true"}, {"run", "--no-wait", "--", "true"}, {"run", "--device", "0", "--", "true"}, {"run", "--fallback", "cpu", "--", "true"}, {"env"}, {"env", "--cpu"}, {"run", "--timeout", "1m", "--", "true"}} {
		say(0, args)
	}
	say(122, []string{"run", "--device", "1", "--", "true"}, `policy: rule "mine" (`+file+":2) gives GPU 0")
	say(122, []string{"run", "--dry-run", "--device", "1", "--share", "4G"}, `policy: rule "mine" (`+file+":2) gives GPU 0", "--quota watch is the default of "+file)
	say(122, []string{"sweep", "--dir", filepath.Join(home, "s"), "--over", "a=1,2", "--device", "1", "--", "true", "{{.a}}"}, `policy: rule "mine" (`+file+":2) gives GPU 0")
	write("defaults:\n  fallback: [gpu]\n")
	say(125, []string{"run", "--", "true"}, "cannot read "+file+":2:13: in defaults: ", "fallback", "write a list of other, cpu and wait")
	write("defaults:\n  model: 'A[12]00'\n")
	say(125, []string{"reserve", "--pid", "1"}, "cannot read "+file+":2:10: in defaults: ", "only * and ? are wildcards")
	if os.Geteuid() == 0 && gate.Has(t, "root") {
		if err := os.Chown(file, aliceUID, aliceUID); err != nil {
			t.Fatal(err)
		}
		say(125, []string{"run", "--", "true"}, "cannot use "+file+": it belongs to ")
	}
}
