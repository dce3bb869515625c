package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/space"
	"gpuard/internal/gate"
	"gpuard/internal/host/proc"
	"gpuard/test/fakegpu"
)

// namespaceCommand prepares a script of a user in namespaces that the words make: "unshare -r", say. gpuard is the program there.
func (r *fakeDriverMachine) namespaceCommand(uid uint32, words, script string) *exec.Cmd {
	r.t.Helper()
	if _, err := os.Stat(filepath.Join(r.Dir, "bin", "gpuard")); err != nil {
		r.installForAllUsers()
	}
	cmd := gpuardCommand(r.t, r.state, append(r.Env(), "LC_ALL=C"))
	if isContained() {
		cmd.Env = append(cmd.Env, "PRIVATE=--private-state")
	}
	args := append(strings.Fields(words), "sh", "-c", script)
	if os.Geteuid() == 0 && uid != 0 {
		args = append([]string{"setpriv", "--reuid", fmt.Sprint(uid), "--regid", fmt.Sprint(uid), "--clear-groups"}, args...)
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.Path, cmd.Args, cmd.Dir = path, args, "/"
	return cmd
}

// userNamespaceWords are the user namespaces in which a user has an id of their own.
func userNamespaceWords() []string {
	return []string{"unshare -c", "unshare -r", "unshare -r unshare -c", "unshare -r unshare --map-user=7"}
}

// namespaceUID is the user in the namespaces, if possible another one than outside.
func namespaceUID() uint32 {
	if os.Geteuid() == 0 {
		return bobUID
	}
	return uint32(os.Geteuid())
}

// TestSpacesHoldLeases: what is leased outside of a user namespace is not leased inside of it, and the other way round.
func TestSpacesHoldLeases(t *testing.T) {
	gate.Need(t, "userns")
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	first := r.cmd("run", "-q", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 300")
	outside := startToFirstLine(t, first)
	for _, words := range userNamespaceWords() {
		cmd := r.namespaceCommand(namespaceUID(), words, `exec gpuard run $PRIVATE -q --no-wait -- sh -c 'echo $GPUARD_LEASE; exec sleep 300'`)
		inside := startToFirstLine(t, cmd)
		got := runCommand(t, r.namespaceCommand(namespaceUID(), words, "gpuard run $PRIVATE --no-wait -- echo started"))
		checkEqual(t, words+": exit code inside", got.code, 120)
		checkContains(t, got.err, "leased as "+outside, "leased as "+inside)
		if os.Geteuid() == 0 {
			checkContains(t, got.err, "leased as "+outside+" by "+space.HiddenUser)
			got = runCommand(t, r.namespaceCommand(namespaceUID(), words, "gpuard release "+outside))
			checkEqual(t, words+": release of another's", []any{got.code, got.err}, []any{1, "gpuard: cannot release " + outside + ": it belongs to " + space.HiddenUser + "; ask them, or root\n"})
		}
		got = runCommand(t, withEnv(r.cmd("run", "--no-wait", "--", "echo", "started"), "LC_ALL=C"))
		checkEqual(t, words+": exit code outside", got.code, 120)
		checkContains(t, got.err, "leased as "+inside+" by "+proc.New("/proc").User(namespaceUID()))
		s, _ := r.readStatus()
		for _, note := range s.Notes {
			if strings.Contains(note, "ignored") || strings.Contains(note, "counts as nothing") {
				t.Errorf("%s: %s", words, note)
			}
		}
		_, _ = cmd.Process.Kill(), cmd.Wait()
		waitUntil(t, "the lease inside is over", func() bool { s, _ := r.readStatus(); return len(s.Devices[0].Leases)+len(s.Devices[1].Leases) == 1 })
	}
}

// TestSpacesWait: a request in a user namespace waits in the common queue, and gets the device at its end.
func TestSpacesWait(t *testing.T) {
	gate.Need(t, "userns")
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	for _, words := range userNamespaceWords() {
		first := r.cmd("run", "-q", "--", "sh", "-c", "echo started; exec sleep 300")
		startToFirstLine(t, first)
		next := r.namespaceCommand(namespaceUID(), words, "exec gpuard run $PRIVATE -q -- echo served")
		out, err := next.StdoutPipe()
		if err == nil {
			err = next.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "it waits", func() bool { s, _ := r.readStatus(); return len(s.Waiting) == 1 })
		s, _ := r.readStatus()
		checkEqual(t, words+": who waits", s.Waiting[0].User, proc.New("/proc").User(namespaceUID()))
		_, _ = first.Process.Kill(), first.Wait()
		line, _ := bufio.NewReader(out).ReadString('\n')
		checkEqual(t, words+": it says", line, "served\n")
		_ = next.Wait()
		waitUntil(t, "the lease inside is over", func() bool { s, _ := r.readStatus(); return len(s.Devices[0].Leases) == 0 })
	}
}

// TestSpacesWithoutAnID: if the kernel shows the caller with the uid of all others, nothing is leased, and commands
// without a lease work.
func TestSpacesWithoutAnID(t *testing.T) {
	gate.Need(t, "userns")
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	checkEqual(t, "makes the folder", r.run("run", "-q", "--", "true").code, 0)
	for _, words := range []string{"run -- echo started", "run --dry-run -- true", "run --private-state -- echo started", "run --machine demo -- echo started", "run --retry 1 -- echo started"} {
		got := runCommand(t, r.namespaceCommand(namespaceUID(), "unshare -U", "gpuard "+words))
		if got.code != 125 || strings.Contains(got.out, "started") {
			t.Errorf("%s: exit %d, %s%s", words, got.code, got.out, got.err)
		}
		checkContains(t, got.err, "cannot lease a GPU here: this user namespace has no place for your user id", "start gpuard outside of it", "unshare --map-current-user")
	}
	checkEqual(t, "hold", runCommand(t, r.namespaceCommand(namespaceUID(), "unshare -U", "gpuard reserve --pid $$")).code, 125)
	checkEqual(t, "a CPU job", runCommand(t, r.namespaceCommand(namespaceUID(), "unshare -U", "gpuard run -q --cpu -- sh -c 'exit 7'")).code, 7)
	checkEqual(t, "status", runCommand(t, r.namespaceCommand(namespaceUID(), "unshare -U", "gpuard status")).code, 0)
}

// TestSpacesRoot: uid 0 of a user namespace that a user made is not root.
func TestSpacesRoot(t *testing.T) {
	gate.Need(t, "root", "userns")
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	checkEqual(t, "makes the folder", r.run("run", "-q", "--", "true").code, 0)
	got := runCommand(t, r.namespaceCommand(bobUID, "unshare -r", "gpuard drain 0"))
	checkEqual(t, "drain", got.code, 1)
	checkContains(t, got.err, "only root")
	if _, err := os.Lstat(filepath.Join(r.state, "drained")); err == nil {
		t.Error("it has made the folder of root's marks")
	}
	victim := startSleep(t)
	got = runCommand(t, r.namespaceCommand(bobUID, "unshare -r", fmt.Sprint("gpuard reserve $PRIVATE --pid ", victim.Process.Pid)))
	checkEqual(t, "hold for a process of another", got.code, 125)
	checkContains(t, got.err, "it belongs to "+space.HiddenUser+", not to you")
	checkEqual(t, "drain by root", r.run("drain", "0", "--reason", "broken fan").code, 0)
	for _, words := range userNamespaceWords() {
		got = runCommand(t, r.namespaceCommand(bobUID, words, "gpuard run $PRIVATE --no-wait -- echo started"))
		checkEqual(t, words+": a drained device", got.code, 120)
		checkContains(t, got.err, "broken fan")
	}
}
