package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
	"gpuard/internal/host/proc"
)

// Two uids of every Linux besides root.
const (
	aliceUID = nobodyUID
	bobUID   = 1
)

// keepFolderLock LOCK: takes the lock of a lease folder, as every claim does for a moment, and keeps it until standard input
// ends.
func keepFolderLock() {
	file, err := os.OpenFile(os.Args[1], os.O_RDWR, 0)
	if err == nil {
		err = unix.FcntlFlock(file.Fd(), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	fmt.Println("locked", err)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// newSharedDemoMachine is a rig with a root-owned lease folder that other users can enter, unlike those of t.TempDir.
func newSharedDemoMachine(t *testing.T, machine string) *demoMachine {
	t.Helper()
	gate.Need(t, "root")
	r := newDemoMachine(t, machine)
	if err := os.Chmod(filepath.Dir(filepath.Dir(r.state)), 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

// asUser lets another user start a command.
func asUser(uid uint32, cmd *exec.Cmd) *exec.Cmd {
	cmd.Path, cmd.Dir = "/proc/self/exe", "/" // the test binary lies in a folder of root's
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// releaseCommand asks for the end of a lease.
func (r *demoMachine) releaseCommand(id string) *exec.Cmd {
	return gpuardCommand(r.t, r.state, nil, "release", "--machine", r.machine, id)
}

// TestReleaseBySomebodyElse: only its owner and root can release a lease, while its command runs and after that.
func TestReleaseBySomebodyElse(t *testing.T) {
	t.Parallel()
	r := newSharedDemoMachine(t, "demo:1xL4")
	// The command leaves a child that keeps the lease's descriptor: then release would be allowed.
	cmd := asUser(aliceUID, r.jobCommand("sh", "-c", `sleep 60 >/dev/null 2>&1 & echo $GPUARD_LEASE; read line`))
	cmd.SysProcAttr.Setpgid = true
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	id := startToFirstLine(t, cmd)
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	name := proc.New("/proc").User(aliceUID)
	for _, when := range []string{"while its command runs", "after its command"} {
		got := runCommand(t, asUser(bobUID, r.releaseCommand(id)))
		if want := fmt.Sprintf("gpuard: cannot release %s: it belongs to %s; ask them, or root\n", id, name); got.code != 1 || got.err != want || got.out != "" {
			t.Errorf("%s: exit %d, %q%q, want %q", when, got.code, got.out, got.err, want)
		}
		if n := r.countLeases(); n != 1 {
			t.Errorf("%s: %d leases after bob's release", when, n)
		}
		if got := runCommand(t, asUser(bobUID, r.jobCommand("true"))); got.code != 120 || !strings.Contains(got.err, "leased as "+id+" by "+name) {
			t.Errorf("%s: bob's run ended with %d: %s", when, got.code, got.err)
		}
		_ = in.Close()
		_ = cmd.Wait()
	}
	if got := runCommand(t, asUser(aliceUID, r.releaseCommand(id))); got.code != 0 {
		t.Errorf("alice's own release: exit %d, %s", got.code, got.err)
	}
	if n := r.countLeases(); n != 0 {
		t.Errorf("%d leases after alice's release", n)
	}
}

// TestCancelBySomebodyElse: only its owner can cancel a run, and root only as the owner: another user can write any PID into a lease.
func TestCancelBySomebodyElse(t *testing.T) {
	t.Parallel()
	r := newSharedDemoMachine(t, "demo:1xL4")
	cmd := asUser(aliceUID, r.jobCommand("sh", "-c", "echo $GPUARD_LEASE; exec sleep 60"))
	id := startToFirstLine(t, cmd)
	cancel := func() *exec.Cmd { return gpuardCommand(t, r.state, nil, "cancel", "--machine", r.machine, id) }
	for who, one := range map[string]*exec.Cmd{"bob": asUser(bobUID, cancel()), "root": cancel()} {
		got := runCommand(t, one)
		if want := "cannot cancel " + id + ": it belongs to " + proc.New("/proc").User(aliceUID); got.code != 1 || !strings.Contains(got.err, want) {
			t.Errorf("%s: exit %d, %s%s", who, got.code, got.out, got.err)
		}
	}
	if cmd.Process.Signal(syscall.Signal(0)) != nil || r.countLeases() != 1 {
		t.Error("the run has ended")
	}
	checkEqual(t, "alice", runCommand(t, asUser(aliceUID, cancel())).out, id+": the run has ended\n")
	_ = cmd.Wait()
	waitUntil(t, "the lease is given back", func() bool { return r.countLeases() == 0 })
}

// TestLockKept: a user who delays other users' claims for longer than the deadline is named.
func TestLockKept(t *testing.T) {
	t.Parallel()
	r := newSharedDemoMachine(t, "demo:1xL4")
	lock := filepath.Join(r.leaseFolder(), "lock")
	keeper := asUser(bobUID, gpuardCommand(t, r.state, nil, lock))
	keeper.Args[0] = "keeplock"
	in, err := keeper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if said := startToFirstLine(t, keeper); said != "locked <nil>" {
		t.Fatal(said)
	}
	mark := filepath.Join(r.devices, "started")
	before := r.listStateFiles()
	for uid, user := range map[uint32]string{0: "root", aliceUID: "alice"} {
		cmd := r.jobCommand("touch", mark)
		if uid != 0 {
			asUser(uid, cmd)
		}
		cmd.Args[0] = "hasty"
		got := runCommand(t, cmd)
		if got.code != 125 || !strings.HasPrefix(got.err, "gpuard: cannot claim: ") {
			t.Errorf("%s's run ended with %d and says %s", user, got.code, got.err)
		}
		pid := keeper.Process.Pid
		checkContains(t, got.err, fmt.Sprintf("process %d ", pid), lock, proc.New("/proc").User(bobUID)+"'s keeplock", fmt.Sprintf("kill %d", pid), "300ms")
		if _, err := os.Lstat(mark); err == nil {
			t.Errorf("%s's command was started without a lease", user)
		}
	}
	if after := r.listStateFiles(); after != before {
		t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
	waitUntil(t, "no holder is left", func() bool { return len(holdersOf(r.leaseFolder())) == 0 })
	_ = in.Close()
	_ = keeper.Wait()
	if got := runCommand(t, asUser(aliceUID, r.jobCommand("true"))); got.code != 0 {
		t.Errorf("after bob let go alice's run ended with %d: %s", got.code, got.err)
	}
}

// listStateFiles lists everything in the state folder.
func (r *demoMachine) listStateFiles() string {
	r.t.Helper()
	var all []string
	err := filepath.WalkDir(r.state, func(path string, _ os.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.Join(all, "\n")
}
