package proctree

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

// TestOwnGroup: the folder of the cgroup of version 2, from texts of the kernel on different machines.
func TestOwnGroup(t *testing.T) {
	const (
		unified = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid  = "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		bound   = "41 31 0:38 /docker/12ab /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
		spaced  = "41 31 0:38 / /a\\040b rw - cgroup2 cgroup rw\n"
	)
	for _, c := range []struct{ self, mounts, want string }{
		{"0::/user.slice/run-1.scope\n", unified, "/sys/fs/cgroup/user.slice/run-1.scope"},
		{"0::/\n", unified, "/sys/fs/cgroup"},
		{"4:memory:/job\n0::/\n", hybrid, "/sys/fs/cgroup/unified"},
		{"4:memory:/job\n0::/in\n", hybrid, "/sys/fs/cgroup/unified/in"},
		{"0::/docker/12ab/in\n", bound, "/sys/fs/cgroup/in"},
		{"0::/docker/12abc\n", bound, ""},
		{"0::/../other\n", unified, ""},
		{"0::/a/../../b\n", unified, ""},
		{"0::/gone (deleted)\n", unified, "/sys/fs/cgroup/gone (deleted)"}, // that folder does not exist
		{"4:memory:/job\n", hybrid, ""},
		{"0::/in\n", "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", ""},
		{"0::/in\n", spaced, ""},
		{"0::/in\n", spaced + unified, "/sys/fs/cgroup/in"},
		{"0::/in\n", "x\n - cgroup2 \n", ""},
		{"", unified, ""},
	} {
		if got := ownGroup(c.self, c.mounts); got != c.want {
			t.Errorf("%q in %q is %q, want %q", c.self, c.mounts, got, c.want)
		}
	}
}

// TestGroup: processes that left the tree are found and ended, spared ones are moved out, and the cgroup is removed.
func TestGroup(t *testing.T) {
	gate.Need(t, "cgroup2", "pidns")
	other := exec.Command("sleep", "1400") // process 1 of a PID namespace; its children are not below us
	other.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	})
	file := filepath.Join(t.TempDir(), "spared")
	tell := ask(t, "spared-one", fmt.Sprintf(`nsenter --pid --target %d sh -c "(setsid sleep 1401 &)"
(sh -c 'sleep 1402 & echo $! >%s; wait' spared-one &)
sleep 1403`, other.Process.Pid, file))
	// sh, 1401, 1403
	eventually(t, "all are there", func() bool {
		b, _ := os.ReadFile(file)
		return tell("members") == "3" && len(b) > 0
	})
	b, _ := os.ReadFile(file)
	spared, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(spared, unix.SIGKILL) })
	group := groupOf(t, spared)
	if group == groupOf(t, os.Getpid()) {
		t.Fatalf("the command is in %s, as we are", group)
	}
	if got := tell("kill"); got != "<nil>" {
		t.Error(got)
	}
	if got := tell("members"); got != "0" {
		t.Errorf("%s live", got)
	}
	if now := groupOf(t, spared); now != groupOf(t, os.Getpid()) {
		t.Errorf("what is spared is in %s", now)
	}
	tell("leave")
	if _, err := os.Stat(group); err == nil {
		t.Errorf("%s is left", group)
	}
}

// TestGroupLeft: remaining processes are moved out at the end, and a cgroup of a killed process is removed by the next
// one.
func TestGroupLeft(t *testing.T) {
	gate.Need(t, "cgroup2")
	parent := groupOf(t, os.Getpid())
	left := filepath.Join(parent, groupPrefix+"2147483647.1") // more than a PID can be
	if err := os.MkdirAll(filepath.Join(left, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := time.Now().Add(-time.Minute)
	if err := os.Chtimes(left, before, before); err != nil {
		t.Fatal(err)
	}
	young := filepath.Join(parent, groupPrefix+"2147483645.1") // as one that a process of another PID namespace is just making
	if err := os.MkdirAll(young, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(young) })
	inUse := filepath.Join(parent, groupPrefix+"2147483646.1")
	if err := os.MkdirAll(filepath.Join(inUse, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1404")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		eventually(t, "it is removed", (&cgroup{dir: inUse}).prune)
	})
	if err := os.WriteFile(filepath.Join(inUse, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pid")
	tell := ask(t, "nobody", "(setsid sleep 1405 & echo $! >"+file+")")
	var pid int
	eventually(t, "it lives on", func() bool {
		b, _ := os.ReadFile(file)
		_, err := fmt.Sscan(string(b), &pid)
		return err == nil && groupOf(t, pid) != parent
	})
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	group := groupOf(t, pid)
	tell("leave")
	if now := groupOf(t, pid); now != parent {
		t.Errorf("it is in %s", now)
	}
	for _, dir := range []string{group, left} {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("one that is being made is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Join(inUse, "below")); err != nil {
		t.Errorf("a part of a cgroup with somebody in it is gone: %v", err)
	}
}

// groupOf returns the folder of a process's cgroup.
func groupOf(t *testing.T, pid int) string {
	t.Helper()
	own, err1 := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	mounts, err2 := os.ReadFile("/proc/self/mountinfo")
	dir := ownGroup(string(own), string(mounts))
	if err := errors.Join(err1, err2); err != nil || dir == "" {
		t.Fatal(dir, err)
	}
	return dir
}
