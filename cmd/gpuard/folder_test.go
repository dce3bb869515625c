package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/gate"
)

// TestDemoBeforeHardware: a state folder in which an invented machine was tried first also serves the real one.
func TestDemoBeforeHardware(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	for range 2 {
		if got := r.run("run", "--machine", "demo", "--", "true"); got.code != 0 {
			t.Fatalf("demo: exit %d, %s", got.code, got.err)
		}
		checkEqual(t, "given", r.givenDevices(), fakeUUID(0))
	}
}

// TestFolderOfSomebodyElse: a user who may not enter the lease folder sees the GPUs, and gets no advice to use another
// folder.
func TestFolderOfSomebodyElse(t *testing.T) {
	gate.Need(t, "root")
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	path := r.installForAllUsers()
	r.givenDevices()
	if err := os.Chmod(r.state, 0o700); err != nil {
		t.Fatal(err)
	}
	theirs := func(args ...string) runResult {
		cmd := asUser(aliceUID, r.cmd(args...))
		cmd.Path = path
		return runCommand(t, cmd)
	}
	got := theirs("run", "--", "true")
	checkEqual(t, "run", got.code, 125)
	checkContains(t, got.err, "cannot use the state folder", "permission denied", "all leases of these GPUs must be in one folder", "ask ")
	if strings.Contains(got.err, "set GPUARD_STATE") {
		t.Errorf("sent to a folder that nobody else sees:\n%s", got.err)
	}
	got = theirs("status")
	checkEqual(t, "status", got.code, 0)
	checkContains(t, got.out, "A100", "the leases cannot be read")
	got = theirs("status", "--json")
	checkContains(t, got.out, fakeUUID(0), `"reason": "the leases cannot be read"`)
}

// TestShellThatIsMissing: SHELL is a wish; a shell that cannot be started is replaced, and that is said.
func TestShellThatIsMissing(t *testing.T) {
	t.Parallel()
	for shell, code := range map[string]int{"/nonexistent/shell": 0, "/": 0, "/bin/false": 1} {
		cmd := gpuardCommand(t, stateFolder(t), []string{"SHELL=" + shell}, "run", "--machine", "demo")
		cmd.Stdin = strings.NewReader("echo $0 has $CUDA_VISIBLE_DEVICES\n")
		got := runCommand(t, cmd)
		checkEqual(t, shell, got.code, code)
		if code == 0 {
			checkEqual(t, shell, got.out, "/bin/sh has 3\n")
			checkContains(t, got.err, filepath.Clean(shell), "which SHELL names; starting /bin/sh instead")
		}
	}
}
