package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPolicyOfProject: the rules and defaults of a gpuard.yaml count for its services and for nothing else, together
// with those of the machine, which they cannot widen; a refusal names the file and its line, and what is wrong in it
// stops all of it.
func TestPolicyOfProject(t *testing.T) {
	t.Parallel()
	g := newPolicyMachine(t, "rules:\n- name: machine\n  users: [root]\n  devices: [0, 1]\n  gpus: 2\n")
	dir, home := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "gpuard.yaml")
	in := func(args ...string) *exec.Cmd {
		cmd := g.commandAs(0, args...)
		cmd.Dir, cmd.Env = dir, append(cmd.Env, "XDG_CONFIG_HOME="+home)
		return cmd
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runAtCleanup(t, in("down"))
	const service = "services:\n  one:\n    command: [sleep, '1014']\n"
	for _, c := range []struct {
		policy, keys string
		code         int
		want         []string
	}{
		{"rules: [{name: ours, devices: [1, 2], gpus: 9}]\n", "", 0, []string{"one started on GPU 1 "}},
		{"rules:\n- name: ours\n  users: [root]\n  devices: [1, 2]\n", "    device: 0\n", 1, []string{`rule "ours" (` + file + ":2) gives GPU 1 and 2"}},
		{"rules:\n- {name: ours, users: [root], devices: [2, 3]}\n", "    device: 2\n", 1, []string{`rule "machine" (` + g.policyFile() + ":2) gives GPU 0 and 1"}},
		{"rules:\n- {name: ours, users: [root], gpus: 4}\n", "    gpus: 3\n", 1, []string{`rule "machine" (` + g.policyFile() + ":2) gives at most 2 at the same time"}},
		{"rules:\n- {name: ours, users: [root], gpus: 1}\n", "    gpus: 2\n", 1, []string{`rule "ours" (` + file + ":2) gives at most 1 at the same time"}},
		{"defaults: {exclude: [0]}\n", "", 0, []string{"one started on GPU 1 "}},
		{"rules:\n- gpsu: 1\n", "", 2, []string{"cannot read gpuard.yaml:2:3: unknown key \"gpsu\" of rule 1; did you mean gpus?"}},
		{"defaults: {fallback: [gpu]}\n", "", 2, []string{"cannot read gpuard.yaml:1:", "in defaults: fallback"}},
		{"tolerate: {memory: 1G}\n", "", 2, []string{"unknown key \"tolerate\"; there are name, services, rules, defaults"}},
	} {
		write(strings.Replace(c.policy, "name: ours, devices", "name: ours, users: [root], devices", 1) + service + c.keys)
		g.checkRun(in("up", "-d"), c.code, c.want...)
	}
	write("rules: [{users: [root], gpus: 0}]\n" + service)
	g.checkRun(in("run", "-q", "--", "true"), 0) // in the folder, and no service of it
	g.checkRun(in("up", "-d"), 1, "policy: the rule at "+file+":1 gives no GPU")
	g.checkRun(in("down"), 0)
}

// runAtCleanup runs a command at the end of the test, when the test's context is over.
func runAtCleanup(t *testing.T, cmd *exec.Cmd) {
	t.Cleanup(func() { _ = (&exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir}).Run() })
}

// TestPolicyServices: as many services of one user run at the same time as the rule allows; the next waits, shows why,
// delays no other request, and starts when one has ended.
func TestPolicyServices(t *testing.T) {
	t.Parallel()
	g := newPolicyMachine(t, "rules:\n- name: one\n  users: [root]\n  gpus: 1\n")
	dir := t.TempDir()
	in := func(args ...string) *exec.Cmd {
		cmd := g.commandAs(0, args...)
		cmd.Dir = dir
		return cmd
	}
	text := "services:\n  first:\n    command: [sleep, '1015']\n  second:\n    command: [sleep, '1016']\n    depends_on: [first]\n"
	if err := os.WriteFile(filepath.Join(dir, "gpuard.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	runAtCleanup(t, in("down"))
	g.checkRun(in("up", "-d"), 0, "first started on GPU ", "second waits", `rule "one" (`+g.policyFile()+":2) gives at most 1 at the same time")
	g.checkRun(g.commandAs(bobUID, "run", "-q", "--no-wait", "--gpus", "3", "--", "true"), 0)
	again := runCommand(t, in("restart", "first")) // the second one may have its turn first
	checkEqual(t, "exit of restart", again.code, map[bool]int{true: 1, false: 0}[strings.Contains(again.out+again.err, "first waits")])
	g.checkRun(in("down", "first"), 0)
	waitUntil(t, "the second one runs", func() bool {
		return slices.ContainsFunc(strings.Split(runCommand(t, in("ps")).out, "\n"), func(line string) bool {
			words := strings.Fields(line)
			return len(words) > 2 && words[0] == "second" && words[1] == "running" && words[2] == "GPU"
		})
	})
	g.checkRun(in("down"), 0)
	if n := g.countLeases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// TestPolicyMove: a command with all the GPUs that a rule allows moves to another one all the same, even if a request
// waits for more than is free.
func TestPolicyMove(t *testing.T) {
	t.Parallel()
	r, home := newFakeDriverMachine(t, makeA100s(4)...), t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "gpuard"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "gpuard", "config.yaml"), []byte("rules: [{users: ["+strconv.Itoa(os.Geteuid())+"], gpus: 1}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.env = []string{"XDG_CONFIG_HOME=" + home, "COLUMNS=2000"}
	j := r.startDriftingJob("--drift")
	first := j.waitForStart(1)
	r.setFullLoad(first)
	got := runCommand(t, r.hastyCommand("run", "--no-wait", "--", "true"))
	if got.code != 120 {
		t.Errorf("another one: %+v", got)
	}
	checkContains(t, got.err, "gives at most 1 at the same time, and you have 1 (lease ")
	waiter := r.hastyCommand("run", "-q", "--", "true")
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	r.setThrottled(first)
	if second := j.waitForStart(2); second == first {
		t.Errorf("moved to the same GPU %d", first)
	}
	j.endWithCode(0)
	_ = j.cmd.Wait()
	if err := waiter.Wait(); err != nil {
		t.Errorf("the one that waited: %v\n%s", err, j.errorText())
	}
}

// TestPolicyForged: a user whose ticket claims falsely that no rule applies delays no other request.
func TestPolicyForged(t *testing.T) {
	t.Parallel()
	g := newPolicyMachine(t, "rules:\n- gpus: 1\n")
	begin := func(cmd *exec.Cmd) *exec.Cmd {
		t.Helper()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	one := begin(g.commandAs(aliceUID, "run", "-q", "--", "sh", "-c", `while ! test -e "$SITE/go"; do sleep 0.1; done`))
	waitUntil(t, "a lease", func() bool { return g.countLeases() == 1 })
	waiter := begin(g.commandAs(aliceUID, "run", "-q", "--", "sh", "-c", `test -e "$SITE/go"`)) // fails if it starts before its turn
	waitUntil(t, "a ticket waits", func() bool { return len(g.waitingTickets()) == 1 })
	if most := g.waitingTickets()[0].Max; most != 1 {
		t.Fatalf("the ticket has max %d", most)
	}
	g.checkRun(g.commandAs(bobUID, "status"), 0, "3 free, 1 leased", "1 waiting", ", a rule allows 1 at a time")
	files, _ := filepath.Glob(filepath.Join(g.leaseFolder(), "tickets", strconv.Itoa(aliceUID), "[0-9a-f]*-*"))
	if len(files) != 1 {
		t.Fatalf("%q", files)
	}
	text, err := os.ReadFile(files[0])
	if err == nil {
		var file *os.File
		if file, err = os.OpenFile(files[0], os.O_WRONLY, 0); err == nil { // in place: the lock on it stays
			_, err = file.WriteString(strings.Replace(string(text), `"max":1`, `"max":9`, 1))
			_ = file.Close()
		}
	}
	if err != nil || g.waitingTickets()[0].Max != 9 {
		t.Fatalf("%v %+v", err, g.waitingTickets())
	}
	g.checkRun(g.commandAs(bobUID, "run", "-q", "--wait=40s", "--", "true"), 0)
	waitUntil(t, "the one lease is left", func() bool { return g.countLeases() == 1 })
	if err := os.WriteFile(filepath.Join(g.site, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{one, waiter} {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
