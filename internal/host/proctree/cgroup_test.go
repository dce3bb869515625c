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
	"gpuard/internal/host/cgroupfs"
)

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
	left := filepath.Join(parent, cgroupfs.Prefix+"2147483647.1") // more than a PID can be
	if err := os.MkdirAll(filepath.Join(left, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := time.Now().Add(-time.Minute)
	if err := os.Chtimes(left, before, before); err != nil {
		t.Fatal(err)
	}
	young := filepath.Join(parent, cgroupfs.Prefix+"2147483645.1") // as one that a process of another PID namespace is just making
	if err := os.MkdirAll(young, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(young) })
	inUse := filepath.Join(parent, cgroupfs.Prefix+"2147483646.1")
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
		eventually(t, "it is removed", func() bool { return cgroupfs.Prune(inUse) })
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
	dir := cgroupfs.Find(string(own), string(mounts), "")
	if err := errors.Join(err1, err2); err != nil || dir == "" {
		t.Fatal(dir, err)
	}
	return dir
}
