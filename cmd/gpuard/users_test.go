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
	alice = nobody
	bob   = 1
)

// keeplock LOCK: takes the lock of a lease folder, as every claim does for a moment, and keeps it until standard input
// ends.
func keeplock() {
	file, err := os.OpenFile(os.Args[1], os.O_RDWR, 0)
	if err == nil {
		err = unix.FcntlFlock(file.Fd(), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	fmt.Println("locked", err)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// forUsers is a rig with a root-owned lease folder that other users can enter, unlike those of t.TempDir.
func forUsers(t *testing.T, machine string) *rig {
	t.Helper()
	gate.Need(t, "root")
	r := newRig(t, machine)
	if err := os.Chmod(filepath.Dir(filepath.Dir(r.state)), 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

// as lets another user start a command.
func as(uid uint32, cmd *exec.Cmd) *exec.Cmd {
	cmd.Path, cmd.Dir = "/proc/self/exe", "/" // the test binary lies in a folder of root's
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// release asks for the end of a lease.
func (r *rig) release(id string) *exec.Cmd {
	return program(r.t, r.state, nil, "release", "--machine", r.machine, id)
}

// TestReleaseBySomebodyElse: only its owner and root can release a lease, while its command runs and after that.
func TestReleaseBySomebodyElse(t *testing.T) {
	t.Parallel()
	r := forUsers(t, "demo:1xL4")
	// The command leaves a child that keeps the lease's descriptor: then release would be allowed.
	cmd := as(alice, r.job("sh", "-c", `sleep 60 >/dev/null 2>&1 & echo $GPUARD_LEASE; read line`))
	cmd.SysProcAttr.Setpgid = true
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	id := begin(t, cmd)
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	name := proc.New("/proc").User(alice)
	for _, when := range []string{"while its command runs", "after its command"} {
		got := run(t, as(bob, r.release(id)))
		if want := fmt.Sprintf("gpuard: cannot release %s: it belongs to %s; ask them, or root\n", id, name); got.code != 1 || got.err != want || got.out != "" {
			t.Errorf("%s: exit %d, %q%q, want %q", when, got.code, got.out, got.err, want)
		}
		if n := r.leases(); n != 1 {
			t.Errorf("%s: %d leases after bob's release", when, n)
		}
		if got := run(t, as(bob, r.job("true"))); got.code != 120 || !strings.Contains(got.err, "leased as "+id+" by "+name) {
			t.Errorf("%s: bob's run ended with %d: %s", when, got.code, got.err)
		}
		_ = in.Close()
		_ = cmd.Wait()
	}
	if got := run(t, as(alice, r.release(id))); got.code != 0 {
		t.Errorf("alice's own release: exit %d, %s", got.code, got.err)
	}
	if n := r.leases(); n != 0 {
		t.Errorf("%d leases after alice's release", n)
	}
}

// TestCancelBySomebodyElse: only its owner can cancel a run, and root only as the owner: another user can write any PID into a lease.
func TestCancelBySomebodyElse(t *testing.T) {
	t.Parallel()
	r := forUsers(t, "demo:1xL4")
	cmd := as(alice, r.job("sh", "-c", "echo $GPUARD_LEASE; exec sleep 60"))
	id := begin(t, cmd)
	cancel := func() *exec.Cmd { return program(t, r.state, nil, "cancel", "--machine", r.machine, id) }
	for who, one := range map[string]*exec.Cmd{"bob": as(bob, cancel()), "root": cancel()} {
		got := run(t, one)
		if want := "cannot cancel " + id + ": it belongs to " + proc.New("/proc").User(alice); got.code != 1 || !strings.Contains(got.err, want) {
			t.Errorf("%s: exit %d, %s%s", who, got.code, got.out, got.err)
		}
	}
	if cmd.Process.Signal(syscall.Signal(0)) != nil || r.leases() != 1 {
		t.Error("the run has ended")
	}
	same(t, "alice", run(t, as(alice, cancel())).out, id+": the run has ended\n")
	_ = cmd.Wait()
	eventually(t, "the lease is given back", func() bool { return r.leases() == 0 })
}

// TestLockKept: a user who delays other users' claims for longer than the deadline is named.
func TestLockKept(t *testing.T) {
	t.Parallel()
	r := forUsers(t, "demo:1xL4")
	lock := filepath.Join(r.folder(), "lock")
	keeper := as(bob, program(t, r.state, nil, lock))
	keeper.Args[0] = "keeplock"
	in, err := keeper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if said := begin(t, keeper); said != "locked <nil>" {
		t.Fatal(said)
	}
	mark := filepath.Join(r.devices, "started")
	before := r.files()
	for uid, user := range map[uint32]string{0: "root", alice: "alice"} {
		cmd := r.job("touch", mark)
		if uid != 0 {
			as(uid, cmd)
		}
		cmd.Args[0] = "hasty"
		got := run(t, cmd)
		if got.code != 125 || !strings.HasPrefix(got.err, "gpuard: cannot claim: ") {
			t.Errorf("%s's run ended with %d and says %s", user, got.code, got.err)
		}
		pid := keeper.Process.Pid
		contains(t, got.err, fmt.Sprintf("process %d ", pid), lock, proc.New("/proc").User(bob)+"'s keeplock", fmt.Sprintf("kill %d", pid), "300ms")
		if _, err := os.Lstat(mark); err == nil {
			t.Errorf("%s's command was started without a lease", user)
		}
	}
	if after := r.files(); after != before {
		t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
	eventually(t, "no holder is left", func() bool { return len(holdersOf(r.folder())) == 0 })
	_ = in.Close()
	_ = keeper.Wait()
	if got := run(t, as(alice, r.job("true"))); got.code != 0 {
		t.Errorf("after bob let go alice's run ended with %d: %s", got.code, got.err)
	}
}

// files lists everything in the state folder.
func (r *rig) files() string {
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
