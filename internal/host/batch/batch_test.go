package batch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/host/sys"

	"golang.org/x/sys/unix"
)

func begin(t *testing.T, script string) (pid int, log string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // the child has its own
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close() //nolint:errcheck // the child has its own
	pid, err = StartCommand(Command{Path: "/bin/sh", Dir: "/", Argv: []string{"sh", "-c", script}, Env: []string{"A=b"}, Log: file, Lease: file}, null)
	if err != nil {
		t.Fatal(err)
	}
	return pid, file.Name()
}

// TestStart: a command has its streams, its folder, the lease at 200 and no other descriptor; its PID is not used again
// before Bury.
func TestStart(t *testing.T) {
	leaked, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer leaked.Close() //nolint:errcheck // read only
	if _, err := unix.FcntlInt(leaked.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	pid, log := begin(t, `pwd; echo $A >&2; cat; ls /proc/$$/fd; cut -d" " -f6 /proc/$$/stat; echo $$; exit 7`)
	ended, err := AwaitChild(pid)
	if err != nil || ended != (ExitStatus{Code: 7}) {
		t.Errorf("%+v, %v", ended, err)
	}
	if again, err := AwaitChild(pid); err != nil || again != ended {
		t.Errorf("the second time: %+v, %v", again, err)
	}
	text, _ := os.ReadFile(log)
	if want := fmt.Sprintf("/\nb\n0\n1\n2\n200\n%d\n%d\n", pid, pid); string(text) != want {
		t.Errorf("%q, want %q", text, want)
	}
	ReapChild(pid)
	if _, err := AwaitChild(pid); !errors.Is(err, unix.ECHILD) {
		t.Errorf("after it was buried: %v", err)
	}
	pid, _ = begin(t, "kill -9 $$")
	if ended, err := AwaitChild(pid); err != nil || ended != (ExitStatus{-1, "SIGKILL"}) {
		t.Errorf("%+v, %v", ended, err)
	}
	ReapChild(pid)
}

// TestStartFails: a file that cannot be executed is an error, and a script without "#!" is run by the shell.
func TestStartFails(t *testing.T) {
	dir := t.TempDir()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close() //nolint:errcheck // nothing was written
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("exit $1"), 0o755); err != nil { //nolint:gosec // a program is executable
		t.Fatal(err)
	}
	pid, err := StartCommand(Command{Path: script, Dir: dir, Argv: []string{script, "5"}, Log: null}, null)
	if err != nil {
		t.Fatal(err)
	}
	if ended, err := AwaitChild(pid); err != nil || ended.Code != 5 {
		t.Errorf("%+v, %v", ended, err)
	}
	ReapChild(pid)
	if _, err := StartCommand(Command{Path: dir, Dir: dir, Argv: []string{dir}, Log: null}, null); !errors.Is(err, unix.EACCES) {
		t.Errorf("a folder was started: %v", err)
	}
}

// TestAwaitOther: the end of a process that is not a child is known if the kernel reports it, and a PID that is another
// process's by now is not waited for.
func TestAwaitOther(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go")
	// Its parent reaps it only when told to, so that its exit status can be read before Linux 6.15 too.
	cmd := exec.Command("sh", "-c", `sh -c 'while ! [ -e "$0" ]; do sleep 0.01; done; exit 3' "$0" & echo $!; read line; wait`, file)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	p, ok := sys.ReadProcess(pid)
	if !ok || p.IsDead() || p.Session == pid {
		t.Fatalf("%+v, %v", p, ok)
	}
	if _, known := AwaitProcess(pid, p.Start+1); known {
		t.Error("a process of another time was waited for")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if ended, known := AwaitProcess(pid, p.Start); !known || ended.Code != 3 {
		now, _ := sys.ReadProcess(pid)
		parent, _ := sys.ReadProcess(cmd.Process.Pid)
		t.Errorf("%+v, known %v; it was %+v, and is %+v; its parent is %+v", ended, known, p, now, parent)
	}
	_ = in.Close()
	_ = cmd.Wait()
}

// TestEnd: a signal reaches the process, its descendants and its session, and also a process with a session of its own
// that lost its parent at an earlier signal.
func TestEnd(t *testing.T) {
	pid, log := begin(t, `(sleep 60 & echo $!); setsid sh -c 'trap "" TERM; echo $$; sleep 60' & wait`)
	var pids []string
	for end := time.Now().Add(20 * time.Second); len(pids) != 2; time.Sleep(5 * time.Millisecond) {
		text, _ := os.ReadFile(log)
		if pids = strings.Fields(string(text)); time.Now().After(end) {
			t.Fatalf("%q", text)
		}
	}
	known := map[int]uint64{}
	if !SignalJob(pid, "SIGTERM", known) {
		t.Error("nobody was there")
	}
	_, _ = AwaitChild(pid)
	if !SignalJob(pid, "SIGKILL", known) {
		t.Error("what ignores SIGTERM was not found")
	}
	for _, text := range pids {
		var n int
		_, _ = fmt.Sscan(text, &n)
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if p, ok := sys.ReadProcess(n); !ok || p.IsDead() {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("process %d lives", n)
			}
		}
	}
	for end := time.Now().Add(20 * time.Second); SignalJob(pid, "SIGKILL", known); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("dead processes count as living")
		}
	}
	ReapChild(pid)
}

// TestKill: of a process whose children start others all the time nothing lives any more when Kill returns.
func TestKill(t *testing.T) {
	pid, log := begin(t, `for i in $(seq 60); do (trap "" TERM; while :; do sleep 0.001; done) & done; echo all; wait`)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if text, _ := os.ReadFile(log); string(text) == "all\n" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("they were not started")
		}
	}
	known := map[int]uint64{}
	SignalJob(pid, "SIGTERM", known)
	_, _ = AwaitChild(pid)
	KillJob(pid, known, 20*time.Second)
	for _, p := range ListProcesses() {
		if p.Session == pid && !p.IsDead() {
			t.Errorf("%d lives: %+v", p.PID, p)
		}
	}
	ReapChild(pid)
}
