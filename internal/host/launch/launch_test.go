package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/test/apart"
)

const roleVar = "GPUARD_LAUNCH_ROLE"

// The tests need processes that fork, execute and die: this binary again, as a holder or in a role.
func TestMain(m *testing.M) {
	apart.RunIfWatcher()
	if len(os.Args) > 1 && os.Args[1] == HolderFlag {
		beHolder(os.Args[2:])
		return
	}
	role := os.Getenv(roleVar)
	if role == "" {
		os.Exit(apart.Run(m))
	}
	roles := map[string]func([]string) error{
		"start": roleStart, "many": roleMany, "reaper": roleReaper, "can": roleCan, "late": roleLate, "heard": roleHeard, "exec": roleExec, "low": roleLow, "run": roleRun,
		"signal": roleSignal, "beside": roleBeside, "deaf": roleDeaf, "spare": roleSpare,
	}
	if err := roles[role](os.Args[1:]); err != nil {
		fmt.Println("error:", err)
		os.Exit(3)
	}
}

// actor is a process that plays a role and ends when its standard input does.
type actor struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func play(t *testing.T, extra []*os.File, role string, args ...string) *actor {
	t.Helper()
	cmd := exec.Command(self(t), args...)
	cmd.Env = append(os.Environ(), roleVar+"="+role)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = extra
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := &actor{t, cmd, in, bufio.NewReader(out)}
	t.Cleanup(a.kill)
	return a
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (a *actor) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

func (a *actor) expect(want string) string {
	a.t.Helper()
	got, _ := a.out.ReadString('\n')
	rest, ok := strings.CutPrefix(got, want)
	if !ok {
		a.t.Fatalf("the other process says %q, want %q", got, want)
	}
	return strings.TrimSpace(rest)
}

func untilEOF() { _, _ = io.Copy(io.Discard, os.Stdin) }

func TestFind(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	write("one/tool", 0o644)
	write("two/tool", 0o755)
	write("one/plain", 0o644)
	write("here", 0o755)
	if err := errors.Join(os.Mkdir(dir+"/one/folder", 0o755), os.Symlink("nowhere", dir+"/one/dangling")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+"/one:"+dir+"/two")
	t.Chdir(dir)
	tests := []struct {
		command, want string
		missing, not  bool // 127, 126
	}{
		{command: "tool", want: dir + "/two/tool"},
		{command: dir + "/two/tool", want: dir + "/two/tool"},
		{command: "./here", want: "./here"},
		{command: "two/tool", want: "two/tool"},
		{command: "here", missing: true},
		{command: "nothing", missing: true},
		{command: "", missing: true},
		{command: "./nothing", missing: true},
		{command: "one/dangling", missing: true},
		{command: "dangling", missing: true},
		{command: "folder", missing: true},
		{command: "plain", not: true},
		{command: "one/plain", not: true},
		{command: dir + "/one", not: true},
		{command: "one/folder", not: true},
		{command: "here/below", not: true},
	}
	for _, tt := range tests {
		got, err := FindCommand(tt.command)
		var missing *NotFoundError
		var not *NotExecutableError
		if got != tt.want || errors.As(err, &missing) != tt.missing || errors.As(err, &not) != tt.not || (err == nil) != (tt.want != "") {
			t.Errorf("Find(%q) = %q, %v; want %q, 127 %v, 126 %v", tt.command, got, err, tt.want, tt.missing, tt.not)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "cannot run ") {
			t.Errorf("Find(%q): %v", tt.command, err)
		}
	}
	t.Setenv("PATH", ":"+dir+"/one")
	if got, err := FindCommand("here"); got != dir+"/here" || err != nil {
		t.Errorf("with the current folder in PATH: %q, %v", got, err)
	}
}

func TestInherit(t *testing.T) {
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // read only
	one, err := DupInheritable(file)
	if err != nil {
		t.Fatal(err)
	}
	two, err := DupInheritable(file)
	if err != nil || one < lowestFD || two <= one {
		t.Errorf("%d, %d, %v; want two numbers from %d on", one, two, err, lowestFD)
	}
	for _, fd := range []int{one, two} {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			t.Errorf("descriptor %d has flags %d, %v: it would not survive exec", fd, flags, err)
		}
		_ = unix.Close(fd)
	}
}

// roleLow: a process that may not have as many descriptors as that.
func roleLow([]string) error {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}); err != nil {
		return err
	}
	fd, err := DupInheritable(os.Stdin)
	fmt.Println("got", fd, err)
	return nil
}

func TestInheritUnderALowLimit(t *testing.T) {
	if got := play(t, nil, "low").expect("got "); got != "32 <nil>" {
		t.Errorf("with 64 descriptors: %s", got)
	}
}

func TestOpenDescriptors(t *testing.T) {
	open := OpenDescriptors()
	if !open[0] || !open[1] || !open[2] {
		t.Errorf("standard streams are missing in %v", open)
	}
	for fd := range open {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			t.Errorf("%d is not open: a library that gets this number would pass it on", fd)
		}
	}
}

// roleCan: whether a holder may run, with and without a subreaper mark.
func roleCan([]string) error {
	before := CanHold()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	fmt.Println("can", before, CanHold())
	return nil
}

func TestCanHold(t *testing.T) {
	if got := play(t, nil, "can").expect("can "); got != "true false" {
		t.Errorf("without and with the mark: %s, want true false", got)
	}
}
