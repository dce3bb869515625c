package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gpuard/internal/gate"
)

// explainAnswer is the part of the JSON answer that these tests need.
type explainAnswer struct {
	Schema  string
	Visible []struct {
		Logical, Index int
		UUID           string
	}
	Notes   []struct{ Code, Text string }
	Process struct {
		PID           int
		User, Command string
		Lease         string
		Matches       *bool `json:"matches_lease"`
		Variables     []string
	}
}

func (r *demoMachine) runExplain(what string) explainAnswer {
	r.t.Helper()
	got := runCommand(r.t, gpuardCommand(r.t, r.state, nil, "explain", "--machine", r.machine, "--json", what))
	var x explainAnswer
	if err := json.Unmarshal([]byte(got.out), &x); err != nil || got.code != 0 {
		r.t.Fatalf("explain %s: exit %d, %v\n%s%s", what, got.code, err, got.out, got.err)
	}
	return x
}

// shortText is "index… | lease matches | note codes".
func (x explainAnswer) shortText() string {
	var out []string
	for _, e := range x.Visible {
		out = append(out, strconv.Itoa(e.Index))
	}
	fits := "no lease"
	if x.Process.Matches != nil {
		fits = fmt.Sprintf("matches %v", *x.Process.Matches)
	}
	var codes []string
	for _, n := range x.Notes {
		codes = append(codes, n.Code)
	}
	return strings.Join(out, ",") + " | " + fits + " | " + strings.Join(codes, " ")
}

// TestExplainLease: a job, its children, and what they made of their variables.
func TestExplainLease(t *testing.T) {
	r := newDemoMachine(t, "demo")
	// Three children: one as it should be, one that moved to another GPU, one that hides its GPU.
	const script = `
CUDA_VISIBLE_DEVICES=1 sleep 61 & moved=$!
CUDA_VISIBLE_DEVICES=-1 sleep 62 & blind=$!
sleep 63 & plain=$!
for p in $moved $blind $plain; do until tr -d '\0' </proc/$p/cmdline | grep -q ^sleep6; do :; done; done
echo $GPUARD_LEASE $$ $moved $blind $plain
trap 'kill $moved $blind $plain' EXIT
read line`
	cmd := gpuardCommand(t, r.state, nil, "run", "-q", "--machine", r.machine, "--device", "3", "--anyway", "--", "sh", "-c", script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(startToFirstLine(t, cmd))
	lease, shell, moved, blind, plain := words[0], words[1], words[2], words[3], words[4]
	const start = "environment-at-start"
	for what, want := range map[string]string{
		lease: "3 | matches true | " + start,
		// The shell's environment is the one that the command was given.
		shell: "3 | matches true | " + start,
		plain: "3 | matches true | " + start,
		moved: "1 | matches false | " + start + " outside-lease lease-unseen",
		blind: " | matches false | " + start + " lease-unseen",
	} {
		x := r.runExplain(what)
		if got := x.shortText(); got != want || x.Schema != "gpuard.explain/1" || x.Process.Lease != lease {
			t.Errorf("explain %s: %q, want %q\n%+v", what, got, want, x)
		}
	}
	if x := r.runExplain(moved); x.Process.Command != "sleep 61" || strconv.Itoa(x.Process.PID) != moved || x.Process.User == "" || x.Process.Variables[0] != "CUDA_VISIBLE_DEVICES=1" {
		t.Errorf("process %+v", x.Process)
	}
	text := runCommand(t, gpuardCommand(t, r.state, nil, "explain", "--machine", r.machine, moved))
	for _, want := range []string{"Process " + moved + " of ", ": sleep 61\n", "lease " + lease + ": what it sees is not what the lease holds", "decided by CUDA_VISIBLE_DEVICES=1 CUDA_DEVICE_ORDER=PCI_BUS_ID", "the process sees GPU 1, which its lease " + lease + " does not hold"} {
		if !strings.Contains(text.out, want) {
			t.Errorf("the text lacks %q:\n%s", want, text.out)
		}
	}
	_ = in.Close()
	_ = cmd.Wait()
	r.waitUntilFreed()
	if got := runCommand(t, gpuardCommand(t, r.state, nil, "explain", "--machine", r.machine, lease)); got.code != 2 || !strings.Contains(got.err, "cannot explain "+lease+": it is neither a process id nor a live lease") {
		t.Errorf("a lease that is over: exit %d, %s", got.code, got.err)
	}
}

// TestExplainHeld: the lease of a process that was not started by us is not in its environment.
func TestExplainHeld(t *testing.T) {
	r := newDemoMachine(t, "demo:1xL4")
	cmd := startSleep(t)
	if got := r.reserveForPID(cmd.Process.Pid); got.code != 0 {
		t.Fatal(got.err)
	}
	if got, want := r.runExplain(strconv.Itoa(cmd.Process.Pid)).shortText(), "0 | matches true | environment-at-start"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	r.waitUntilFreed()
}

// TestExplainEnded: a zombie has no environment any more, and says nothing about what it saw.
func TestExplainEnded(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	_ = cmd.Process.Kill()
	waitUntil(t, "the process is a zombie", func() bool {
		line, _ := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		return strings.Contains(string(line), ") Z ")
	})
	for _, want := range []string{"has ended, and has no environment any more", "there is no such process"} {
		got := runCommand(t, gpuardCommand(t, stateFolder(t), nil, "explain", "--machine", "demo", pid))
		if got.code != 2 || got.out != "" || !strings.Contains(got.err, "gpuard: cannot explain process "+pid+": ") || !strings.Contains(got.err, want) {
			t.Errorf("exit %d, %q, %q; want %q", got.code, got.out, got.err, want)
		}
		_ = cmd.Wait()
	}
}

// TestExplainOthers: only the owner and root may read an environment, and the message names them.
func TestExplainOthers(t *testing.T) {
	gate.Need(t, "privileged")
	cmd := exec.Command("sleep", "60")
	cmd.Env = []string{"CUDA_VISIBLE_DEVICES=2"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyUID, Gid: nobodyUID}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	pid := strconv.Itoa(cmd.Process.Pid)
	ask := func(uid uint32) runResult {
		c := gpuardCommand(t, "/nonexistent/state", nil, "explain", "--machine", "demo", pid)
		c.Path, c.Dir = "/proc/self/exe", "/" // the test binary lies in a folder of root's
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return runCommand(t, c)
	}
	for _, uid := range []uint32{0, nobodyUID} {
		if got := ask(uid); got.code != 0 || !strings.Contains(got.out, "Process "+pid+" of nobody: sleep 60") || !strings.Contains(got.out, "cuda:0     2") {
			t.Errorf("uid %d: exit %d\n%s%s", uid, got.code, got.out, got.err)
		}
	}
	got := ask(12345)
	want := fmt.Sprintf("gpuard: cannot explain process %s (sleep 60): it belongs to the user nobody, and only that user and root may read its environment: sudo gpuard explain %[1]s\n", pid)
	if got.code != 1 || got.out != "" || got.err != want {
		t.Errorf("somebody else: exit %d, %q, %q, want %q", got.code, got.out, got.err, want)
	}
}

// TestExplainWidens: a value that the driver ignores is an error, for people and for programs.
func TestExplainWidens(t *testing.T) {
	r := newDemoMachine(t, "demo")
	long := "CUDA_VISIBLE_DEVICES=0" + strings.Repeat(" ", 2625)
	got := runCommand(t, gpuardCommand(t, r.state, nil, "explain", "--machine", r.machine, long))
	checkEqual(t, "exit", got.code, 1)
	checkContains(t, got.out, "error: CUDA_VISIBLE_DEVICES=", "for unset")
	got = runCommand(t, gpuardCommand(t, r.state, nil, "explain", "--machine", r.machine, "--json", long))
	checkEqual(t, "exit", got.code, 1)
	checkContains(t, got.out, `"value-too-long"`)
	checkEqual(t, "a short one", runCommand(t, gpuardCommand(t, r.state, nil, "explain", "--machine", r.machine, long[:1000])).code, 0)
}
