package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// foregroundProject is a project in the foreground: web depends on db, and both say when they end.
type foregroundProject struct {
	*testing.T
	state, dir string
}

func newForegroundProject(t *testing.T) *foregroundProject {
	t.Helper()
	s := &foregroundProject{t, stateFolder(t), t.TempDir()}
	s.writeProjectFile(`services:
  db:
    command: [sh, -c, "trap 'echo db ends; exit 0' TERM; echo db runs; while :; do sleep 0.1; done"]
    ready: {log: db runs}
  web:
    cpu: true
    depends_on: [db]
    command: [sh, -c, "trap 'echo web ends; exit 0' TERM; echo web runs; while :; do sleep 0.1; done"]
    ready: {log: web runs}
`)
	ending := s.cmd("down", "--now")
	t.Cleanup(func() {
		cmd := exec.Command(ending.Path) // the test's context is over
		cmd.Args, cmd.Env, cmd.Dir = ending.Args, ending.Env, ending.Dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return s
}

func (s *foregroundProject) writeProjectFile(text string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "gpuard.yaml"), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

func (s *foregroundProject) cmd(args ...string) *exec.Cmd {
	cmd := gpuardCommand(s.T, s.state, []string{"GPUARD_MACHINE=demo:2xL4", "TERM=xterm", "LC_ALL=C.UTF-8"}, args...)
	cmd.Dir = s.dir
	return cmd
}

func (s *foregroundProject) run(args ...string) runResult {
	s.Helper()
	return runCommand(s.T, s.cmd(args...))
}

// waitUntilDown waits until nothing of the project is up any more, and its supervisor, which still writes into its folder, has
// left.
func (s *foregroundProject) waitUntilDown() {
	s.Helper()
	waitUntil(s, "nothing is up", func() bool {
		return strings.HasPrefix(s.run("ps").out, "nothing of ") && strings.Contains(s.run("ps", "--json").out, `"supervised": false`)
	})
}

// checkOrder fails unless shown has the texts in this order.
func (s *foregroundProject) checkOrder(shown string, texts ...string) {
	s.Helper()
	rest := shown
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			s.Fatalf("%q is not behind what comes before it in:\n%s", text, shown)
		}
		rest = after
	}
}

// endingSignal reports the signal that ended a command.
func endingSignal(err error) syscall.Signal {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return status.Signal()
		}
	}
	return 0
}

// Ctrl-C ends what depends on others first, and what they write is shown to the last line.
func TestUpCtrlC(t *testing.T) {
	t.Parallel()
	s := newForegroundProject(t)
	tty := startOnTerminal(t, s.cmd("up"))
	shown := tty.waitForScreen("db +\\|.*db runs", "web +\\|.*web runs", "gpuard: web (started without a GPU, and )?is ready")
	s.checkOrder(shown, "gpuard: db started", "is ready", "gpuard: web started")
	tty.typeKeys("\x03")
	// Lines of two logs, and of a log and gpuard, come in no promised order.
	shown = tty.waitForScreen("web +\\|.*web ends", "db +\\|.*db ends", "gpuard: db ended")
	s.checkOrder(shown, "ending all; Ctrl-C again kills immediately", "gpuard: web ended", "gpuard: db ended")
	if err := tty.cmd.Wait(); endingSignal(err) != unix.SIGINT {
		t.Errorf("ended with %v, want SIGINT", err)
	}
	s.waitUntilDown()
}

// A service that ignores SIGTERM is killed by the second Ctrl-C.
func TestUpCtrlCTwice(t *testing.T) {
	t.Parallel()
	s := newForegroundProject(t)
	s.writeProjectFile(`services:
  deaf:
    command: [sh, -c, "trap '' TERM; echo deaf runs; while :; do sleep 0.1; done"]
    grace: 10m
`)
	tty := startOnTerminal(t, s.cmd("up"))
	tty.waitForScreen("deaf runs")
	tty.typeKeys("\x03")
	tty.waitForScreen("ending all")
	tty.typeKeys("\x03")
	tty.waitForScreen("killing what has not ended", "gpuard: deaf ended")
	if err := tty.cmd.Wait(); endingSignal(err) != unix.SIGINT {
		t.Errorf("ended with %v, want SIGINT", err)
	}
	s.waitUntilDown()
}

// A terminal that is closed ends them, too; kill -9 does not, and a second up finds them.
func TestUpHangup(t *testing.T) {
	t.Parallel()
	s := newForegroundProject(t)
	tty := startOnTerminal(t, s.cmd("up"))
	tty.waitForScreen("gpuard: web (started without a GPU, and )?is ready")
	if err := tty.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	tty.hangUp()
	before := s.run("ps", "--json").out
	checkContains(t, before, `"name": "web"`, `"state": "running"`)
	tty = startOnTerminal(t, s.cmd("up"))
	tty.waitForScreen("gpuard: db runs already on GPU", "gpuard: web runs already without a GPU")
	_ = tty.master.Close()
	if err := tty.cmd.Wait(); endingSignal(err) != unix.SIGHUP {
		t.Errorf("ended with %v, want SIGHUP", err)
	}
	s.waitUntilDown()
}

// A reader that goes away (gpuard up | head) ends them.
func TestUpPipe(t *testing.T) {
	t.Parallel()
	s := newForegroundProject(t)
	s.writeProjectFile(`services:
  yes:
    command: [sh, -c, "while :; do echo yes; sleep 0.05; done"]
`)
	cmd := s.cmd("up")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("yes | yes\n"))); err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("ended with %v, want exit code 1", err)
	}
	checkContains(t, said.String(), "the reader of the output is gone: ending all", "gpuard: yes ended")
	s.waitUntilDown()
}

// A full pipe does not keep the services from ending.
func TestUpFullPipe(t *testing.T) {
	t.Parallel()
	s := newForegroundProject(t)
	s.writeProjectFile(`services:
  flood:
    command: [sh, -c, "while :; do echo 0123456789012345678901234567890123456789; done"]
`)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close() //nolint:errcheck // nothing is read
	cmd := s.cmd("up")
	cmd.Stdout = write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	waitUntil(t, "the pipe is full", func() bool {
		n, err := unix.IoctlGetInt(int(read.Fd()), unix.TIOCINQ)
		return err == nil && n > 60<<10
	})
	_ = cmd.Process.Signal(unix.SIGTERM)
	s.waitUntilDown()
	_ = cmd.Process.Signal(unix.SIGTERM) // it would wait for its reader
	if err := cmd.Wait(); endingSignal(err) != unix.SIGTERM {
		t.Errorf("ended with %v, want SIGTERM", err)
	}
}

// logs -f continues through a restart, and ends when nothing runs any more.
func TestLogsFollow(t *testing.T) {
	t.Parallel()
	s := newForegroundProject(t)
	if r := s.run("up", "-d"); r.code != 0 {
		t.Fatal(r)
	}
	tty := startOnTerminal(t, s.cmd("logs", "-f", "web"))
	tty.waitForScreen("web runs")
	if r := s.run("restart", "web"); r.code != 0 {
		t.Fatal(r)
	}
	tty.waitForScreen("web ends", "web runs")
	if r := s.run("down"); r.code != 0 {
		t.Fatal(r)
	}
	tty.waitForScreen("web ends")
	if err := tty.cmd.Wait(); err != nil {
		t.Error(fmt.Errorf("logs -f: %w", err))
	}
	s.waitUntilDown()
}

// TestUpRefuses: what no program can be given is refused with its place in the file, and a command that the kernel does not
// take is said: up waits for neither.
func TestUpRefuses(t *testing.T) {
	t.Parallel()
	s := newForegroundProject(t)
	s.writeProjectFile("services:\n  web:\n    cpu: true\n    command: [echo, \"a\\0b\"]\n")
	got := s.run("up")
	checkEqual(t, "exit", got.code, 2)
	checkContains(t, got.err, "cannot read gpuard.yaml:4:21: there is a zero byte")
	s.writeProjectFile("services:\n  web:\n    cpu: true\n    command: [echo, " + strings.Repeat("x", 140_000) + "]\n") // MAX_ARG_STRLEN of execve(2) is 128 KiB
	got = s.run("up")
	checkEqual(t, "exit", got.code, 1)
	checkContains(t, got.err, "web cannot be started: cannot run \"echo\": argument list too long")
	waitUntil(t, "its supervisor has left", func() bool { return strings.Contains(s.run("ps", "--json").out, `"supervised": false`) })
}

// TestUpAllWait: where nothing runs because all wait for a GPU, up -d and restart say so and end with 1: the next line of a script
// must not go on. One that runs is enough, and what waits starts by itself.
func TestUpAllWait(t *testing.T) {
	t.Parallel()
	s := newForegroundProject(t)
	s.writeProjectFile("services:\n  web:\n    gpus: 1\n    command: sleep 600\n  tool:\n    gpus: 1\n    command: sleep 600\n")
	held := s.run("reserve", "--for", "1h", "--gpus", "all", "--json")
	checkEqual(t, "reserve", held.code, 0)
	got := s.run("up", "-d")
	checkEqual(t, "exit while all wait", got.code, 1)
	checkContains(t, got.err, "cannot bring up web, tool yet: waiting; what waits starts by itself when it can, gpuard ps says for what it waits; to end that: gpuard down web tool")
	var lease struct{ Lease string }
	if err := json.Unmarshal([]byte(held.out), &lease); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "release", s.run("release", lease.Lease).code, 0)
	waitUntil(t, "one of them has started", func() bool { return strings.Contains(s.run("ps", "--json").out, `"state": "running"`) })
	checkEqual(t, "exit while one runs", s.run("up", "-d").code, 0)
	checkEqual(t, "down", s.run("down").code, 0)
	s.waitUntilDown()
}
