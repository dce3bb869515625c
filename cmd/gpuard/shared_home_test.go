package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/userqueue"
	"gpuard/internal/gate"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/proc"
)

// sharedHomeHost is a host with a home that it shares with others. Its machine id alone tells it from them.
type sharedHomeHost struct {
	t          *testing.T
	home, site string
}

func newSharedHomeHost(t *testing.T, home, id string) *sharedHomeHost {
	t.Helper()
	site := t.TempDir()
	err := errors.Join(os.Mkdir(filepath.Join(site, "etc"), 0o755), os.WriteFile(filepath.Join(site, "etc/machine-id"), []byte(strings.Repeat(id, 32)), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return &sharedHomeHost{t, home, site}
}

func (p *sharedHomeHost) cmd(args ...string) *exec.Cmd {
	p.t.Helper()
	cmd := gpuardCommand(p.t, "", []string{"SITE=" + p.site, "XDG_STATE_HOME=" + p.home, "GPUARD_MACHINE=demo:1xL4"}, args...)
	cmd.Args[0] = "hasty"
	return cmd
}

func (p *sharedHomeHost) run(args ...string) runResult { return runCommand(p.t, p.cmd(args...)) }

// TestSharedHome: a job that one host has is none of another's that shares the home, also when both processes of its
// queue are gone while it runs: it is not called lost there, and not started a second time.
func TestSharedHome(t *testing.T) {
	t.Parallel()
	home := quietDir(t)
	a, b := newSharedHomeHost(t, home, "a"), newSharedHomeHost(t, home, "b")
	ran, end, over := filepath.Join(home, "ran"), filepath.Join(home, "end"), filepath.Join(home, "over")
	if err := unix.Mkfifo(end, 0o600); err != nil {
		t.Fatal(err)
	}
	begun := func() int { text, _ := os.ReadFile(ran); return strings.Count(string(text), "\n") }
	checkEqual(t, "submit", a.run("submit", "-q", "--cpu", "--retry", "3", "--", "sh", "-c", "echo >> "+ran+"; test -e "+over+" || read line <"+end).out, "1\n")
	waitUntil(t, "it runs", func() bool { return begun() == 1 })
	for _, p := range batch.ListProcesses() {
		if words := proc.New("/proc").Arguments(p.PID); len(words) > 2 && (words[1] == userqueue.Flag || words[1] == userqueue.RunnerFlag) && strings.HasPrefix(words[2], home+"/") {
			_ = unix.Kill(p.PID, unix.SIGKILL)
		}
	}
	got := b.run("queue")
	name, _ := os.Hostname()
	checkEqual(t, "queue on the other host", got.code, 0)
	checkContains(t, got.out, "no job of yours runs or waits", "1 job of yours on "+name+", which shares this home: gpuard queue there")
	checkEqual(t, "a job of the other host", b.run("submit", "-q", "--cpu", "--", "true").out, "1\n")
	checkEqual(t, "it ends there", b.run("wait", "1").code, 0)
	var answer struct{ Jobs, Hosts []map[string]any }
	if err := json.Unmarshal([]byte(b.run("queue", "--json").out), &answer); err != nil || len(answer.Jobs) != 0 || len(answer.Hosts) != 1 || answer.Hosts[0]["jobs"] != 1.0 {
		t.Errorf("%+v, %v", answer, err)
	}
	if n := begun(); n != 1 {
		t.Errorf("it was started %d times", n)
	}
	writeFile(t, over, "", 0) // its own host may do it again, where the kernel does not tell how it ended
	checkEqual(t, "queue on its own host, which keeps it again", a.run("queue", "--json").code, 0)
	writeFile(t, end, "over\n", 0)
	waitUntil(t, "it has ended", func() bool { return strings.Contains(a.run("queue").out, "no job of yours") })
}

// TestQueueInFolderOfAGroup: where a member of a group could put another queue in the place of a user's, none is kept,
// and what the member planted is not run.
func TestQueueInFolderOfAGroup(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	const ann, bob, group = 41021, 41022, 41020
	top, stolen := quietDir(t), filepath.Join(t.TempDir(), "stolen")
	home := filepath.Join(top, "home")
	err := errors.Join(os.Chmod(filepath.Dir(top), 0o755), os.Chmod(top, 0o755), os.Mkdir(home, 0o755), os.Chown(home, ann, group))
	if err != nil {
		t.Fatal(err)
	}
	p := newSharedHomeHost(t, home, "a")
	gpuard := func(args ...string) runResult {
		cmd := asUser(ann, p.cmd(args...))
		cmd.SysProcAttr.Credential.Groups = []uint32{group}
		cmd.Env = append(cmd.Env, "SITE=/") // the other belongs to root
		return runCommand(t, cmd)
	}
	checkEqual(t, "submit", gpuard("submit", "-q", "--cpu", "--hold", "--", "true").out, "1\n")
	if err := os.Chmod(home, 0o770|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	plant := exec.Command("sh", "-c", `cd "$1" && mv gpuard kept && mkdir -p gpuard/hosts && printf '%s\n' "$2" > gpuard/journal`, "sh", home, "touch "+stolen)
	plant.SysProcAttr = asUser(bob, exec.Command("true")).SysProcAttr
	plant.SysProcAttr.Credential.Groups = []uint32{group}
	if out, err := plant.CombinedOutput(); err != nil {
		t.Fatalf("bob cannot exchange it: %v, %s", err, out)
	}
	for _, words := range []string{"queue", "submit -q --cpu -- true", "queue unhold 1", "sweep --dir " + home + "/s --over x=1 -- true"} {
		got := gpuard(strings.Fields(words)...)
		if got.code == 0 || !strings.Contains(got.err, fmt.Sprintf("the group %d may write in %s, and could put another folder in its place; chmod g-w %[2]s", group, home)) {
			t.Errorf("%s: %+v", words, got)
		}
	}
	if _, err := os.Stat(stolen); err == nil {
		t.Error("what bob has planted was run")
	}
	if err := errors.Join(os.RemoveAll(home+"/gpuard"), os.Rename(home+"/kept", home+"/gpuard"), os.Chmod(home, 0o750)); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "as the message says", gpuard("cancel", "1").code, 0)
}
