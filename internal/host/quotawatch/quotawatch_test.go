package quotawatch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/quota"
)

// TestMain makes the test program the child of Start: it writes down its arguments, and whether it has the locks.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == MeasureFlag {
		locks, err := OpenLocks(os.Args[2])
		text := strings.Join(os.Args[1:], " ")
		if err != nil || !locks.TryLock("a") {
			text = "no locks"
		}
		_ = os.WriteFile(os.Args[3], []byte(text), 0o600)
		return
	}
	os.Exit(m.Run())
}

// open opens the locks in a file once more.
func open(t *testing.T, path string) *Locks {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	l := NewLocks(file)
	t.Cleanup(l.Close)
	return l
}

// command starts a shell script with its standard error in a file, and returns a descriptor of it.
func command(t *testing.T, script string, stderr *os.File) (pid, pidfd int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = cmd.Process.Kill(), cmd.Wait(), unix.Close(pidfd) })
	return cmd.Process.Pid, pidfd
}

// TestStart: the child has the locks that were taken before, as long as it lives.
func TestStart(t *testing.T) {
	path, said := filepath.Join(t.TempDir(), "measure"), filepath.Join(t.TempDir(), "said")
	locks, other := open(t, path), open(t, path)
	if !locks.TryLock("a") || other.TryLock("a") {
		t.Fatal("a lock is not one")
	}
	cmd, err := StartMeasuring(locks, said, "more")
	locks.Close()
	if err == nil {
		err = cmd.Wait()
	}
	text, _ := os.ReadFile(said)
	if want := strings.Join([]string{MeasureFlag, "3", said, "more"}, " "); err != nil || string(text) != want {
		t.Errorf("%q, %v, want %q", text, err, want)
	}
	if !other.TryLock("a") {
		t.Error("it has ended, and has its lock")
	}
	for _, number := range []string{"", "x", "2", "-1", "999"} {
		if _, err := OpenLocks(number); err == nil {
			t.Errorf("descriptor %q is taken", number)
		}
	}
}

// TestLocks: each name is a lock of its own, which ends with who has it, and what is left is read by the next one.
func TestLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "measure")
	one, two := open(t, path), open(t, path)
	again := one.TryLock("a")
	if !again || !one.TryLock("a") || !two.TryLock("b") || two.TryLock("a") || one.TryLock("b") {
		t.Error("they are not apart")
	}
	if !one.ChangeMembers(0, func(m Members) { m["some lease"], m["another"] = map[int]uint64{1: 2, 3: 4}, map[int]uint64{5: 6} }) ||
		!two.ChangeMembers(0, func(m Members) { delete(m, "some lease") }) {
		t.Error("the members cannot be changed")
	}
	three := open(t, path)
	defer three.Close()
	if !three.TryLock("members") || two.ChangeMembers(5*time.Millisecond, func(Members) {}) {
		t.Error("two change the members at the same time")
	}
	if !two.ChangeUsed(0, func(u Used) { u["another"] = quota.Measured{Peak: 7} }) { // where something else is changed
		t.Error("the use cannot be changed")
	}
	three.ReleaseLock("members")
	got := make(chan error)
	go func() { got <- two.WaitForLock("a") }()
	one.ReleaseLock("a")
	if err := <-got; err != nil || one.TryLock("a") {
		t.Errorf("it was not handed over: %v", err)
	}
	two.Close()
	if members, used := one.ReadMembers(), one.Used(); len(members) != 1 || members["another"][5] != 6 || used["another"].Peak != 7 || !one.TryLock("a") || !one.TryLock("b") {
		t.Errorf("%v and %v are left", members, used)
	}
	if err := os.WriteFile(path, []byte(`{"another": {"5": 6`), 0o600); err != nil {
		t.Fatal(err)
	}
	if members, used := one.ReadMembers(), one.Used(); len(members) != 0 || len(used) != 0 {
		t.Errorf("%v and %v are left of what was cut", members, used)
	}
}

// TestTellFile: the line is between the command's output before and after it.
func TestTellFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	further := filepath.Join(t.TempDir(), "go")
	pid, pidfd := command(t, "echo one >&2; while ! test -e "+further+"; do sleep 0.01; done; echo three >&2; exec sleep 60", file)
	lines := func(n int) []string {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			text, _ := os.ReadFile(path)
			list := strings.Fields(string(text))
			if len(list) >= n || time.Now().After(end) {
				return list
			}
		}
	}
	lines(1)
	if err := WriteToStderr(pidfd, pid, "two\n"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(further, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := lines(3); !slices.Equal(got, []string{"one", "two", "three"}) {
		t.Errorf("the file has %q", got)
	}
}

// TestTellPipe: Tell does not wait for a full pipe, and does not keep the pipe open.
func TestTellPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pid, pidfd := command(t, "exec sleep 60", w)
	_ = w.Close()
	if err := WriteToStderr(pidfd, pid, "hello\n"); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64)
	if n, err := r.Read(buffer); err != nil || string(buffer[:n]) != "hello\n" {
		t.Errorf("%q, %v", buffer[:n], err)
	}
	full := strings.Repeat("x", 4095) + "\n"
	began := time.Now()
	for range 64 {
		if err = WriteToStderr(pidfd, pid, full); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "no process reads its standard error") || time.Since(began) > 20*time.Second {
		t.Errorf("a full pipe: %v after %s", err, time.Since(began))
	}
	_ = unix.Kill(pid, unix.SIGKILL)
	over := make(chan struct{})
	go func() {
		for {
			if _, err := r.Read(buffer); err != nil {
				close(over)
				return
			}
		}
	}()
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		t.Error("somebody keeps the pipe open")
	}
}

func TestEnd(t *testing.T) {
	pid, pidfd := command(t, `trap "" TERM; exec sleep 60`, nil)
	if err := EndProcess(pid, true, func() bool { return false }); err == nil || !strings.Contains(err.Error(), "it is another one by now") {
		t.Errorf("another process: %v", err)
	}
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil {
		t.Fatal("it was ended all the same")
	}
	if err := EndProcess(pid, true, func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 10_000)
	if n != 1 || err != nil {
		t.Errorf("it lives on: %d, %v", n, err)
	}
	if err := EndProcess(1<<30, false, func() bool { return true }); err == nil {
		t.Error("no process was ended")
	}
}

// TestSpent: waiting costs nothing, and work does, also that of a child.
func TestSpent(t *testing.T) {
	before := CPUTime()
	if err := exec.Command("sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done").Run(); err != nil {
		t.Fatal(err)
	}
	if spent := CPUTime() - before; spent <= 0 || spent > time.Minute {
		t.Errorf("a child that counts cost %s", spent)
	}
}
