package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sleeper is the environment variable that makes this test binary a program that only sleeps.
const sleeper = "PROC_TEST_SLEEP"

func TestMain(m *testing.M) {
	if os.Getenv(sleeper) != "" {
		time.Sleep(time.Minute)
		return
	}
	os.Exit(m.Run())
}

// tree builds a procfs below a temporary folder from paths and contents.
func tree(t testing.TB, files map[string]string) FS {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return FS{root: root, names: &userNames{}, passwd: filepath.Join(root, "passwd")}
}

// statLine is a /proc/PID/stat with the fields that matter here filled in.
func statLine(pid int, comm, state string, ppid int, start uint64) string {
	return fmt.Sprintf("%d (%s) %s %d %d %d 0 -1 4194304 90 0 0 0 1 2 0 0 20 0 1 0 %d 2703360 100 18446744073709551615\n",
		pid, comm, state, ppid, pid, pid, start)
}

func TestStatSurvivesAnyName(t *testing.T) {
	for name, want := range map[string]string{
		"python3":         "python3",
		"a) Z 1 (b":       "a) Z 1 (b",
		") R 0 0":         ") R 0 0",
		"":                "",
		"new\nline":       "new line",
		"\x1b[2Jcleared":  "[2Jcleared",
		"\xff\xfeinvalid": "invalid",
	} {
		got, ok := parseStat(statLine(42, name, "S", 7, 123456))
		if !ok || got != (Stat{Comm: want, State: "S", PPID: 7, Group: 42, Start: 123456, CPU: 30 * time.Millisecond}) {
			t.Errorf("name %q: got %+v, %v", name, got, ok)
		}
	}
	for _, bad := range []string{"", "1", "1 (x", "1 x) S 1", "1 (x) S 1 2 3", "1 (x) SS " + strings.Repeat("1 ", 30), "1 (x) \xd6 " + strings.Repeat("1 ", 30), "1 (x) S a " + strings.Repeat("1 ", 30)} {
		if got, ok := parseStat(bad); ok {
			t.Errorf("parseStat(%q) = %+v, want refusal", bad, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add(statLine(1, "x", "S", 0, 5))
	f.Fuzz(func(t *testing.T, line string) {
		if s, ok := parseStat(line); ok && len(s.State) != 1 {
			t.Errorf("accepted the state %q", s.State)
		}
	})
}

func TestAlive(t *testing.T) {
	f := tree(t, map[string]string{
		"10/stat": statLine(10, "run", "S", 1, 500),
		"11/stat": statLine(11, "zombie", "Z", 1, 500),
		"12/stat": statLine(12, "dead", "X", 1, 500),
		"13/stat": statLine(13, "stopped", "T", 1, 500),
		"14/stat": statLine(14, "stuck", "D", 1, 500),
	})
	for _, c := range []struct {
		pid   int
		start uint64
		want  bool
	}{{10, 500, true}, {10, 0, true}, {10, 501, false}, {11, 500, false}, {12, 500, false}, {13, 500, true}, {14, 500, true}, {15, 500, false}, {-1, 0, false}, {0, 0, false}} {
		if got := f.IsAlive(c.pid, c.start); got != c.want {
			t.Errorf("Alive(%d, %d) = %v, want %v", c.pid, c.start, got, c.want)
		}
	}
}

func TestRealProcesses(t *testing.T) {
	f := New("/proc")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(t.TempDir(), "o) Z 1 (d") // a program named like the rest of a stat line
	if err := os.Symlink(self, odd); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(odd)
	cmd.Env = []string{sleeper + "=1", "B=two words", "EMPTY="}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	pid := cmd.Process.Pid
	s := waitFor(t, f, pid, func(s Stat) bool { return strings.Contains(s.Comm, ")") })
	if s.PPID != os.Getpid() || s.Start == 0 || !f.IsAlive(pid, s.Start) || f.IsAlive(pid, s.Start+1) {
		t.Errorf("living child: %+v", s)
	}
	if env, err := f.Environ(pid); err != nil || !slices.Equal(env, cmd.Env) {
		t.Errorf("Environ = %q, %v", env, err)
	}
	if age, err := f.ProcessAge(pid); err != nil || age < 0 || age > time.Minute {
		t.Errorf("Age = %v, %v", age, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	zombie := waitFor(t, f, pid, func(s Stat) bool { return s.State == "Z" })
	if zombie.Start != s.Start || f.IsAlive(pid, s.Start) {
		t.Errorf("zombie: %+v, alive %v", zombie, f.IsAlive(pid, s.Start))
	}
	_ = cmd.Wait()
	if _, err := f.Stat(pid); !errors.Is(err, os.ErrNotExist) || f.IsAlive(pid, s.Start) {
		t.Errorf("reaped child: error %v, alive %v", err, f.IsAlive(pid, s.Start))
	}
}

// waitFor polls for a state that the kernel reaches soon.
func waitFor(t *testing.T, f FS, pid int, reached func(Stat) bool) Stat {
	t.Helper()
	for range 2000 {
		if s, err := f.Stat(pid); err == nil && reached(s) {
			return s
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("process %d does not reach the state", pid)
	return Stat{}
}

func TestMachineIdentity(t *testing.T) {
	f := New("/proc")
	id, err := f.BootID()
	if err != nil || strings.Count(id, "-") != 4 {
		t.Errorf("BootID = %q, %v", id, err)
	}
	own, err := os.Readlink("/proc/self/ns/pid")
	if initial, err2 := f.InitialPIDNamespace(); err != nil || err2 != nil || initial != (own == "pid:[4026531836]") {
		t.Errorf("InitialPIDNamespace = %v, %v for %s", initial, err2, own)
	}
	for link, want := range map[string]bool{"pid:[4026531836]": true, "pid:[4026532441]": false} {
		f := tree(t, map[string]string{"self/ns/x": ""})
		if err := os.Symlink(link, filepath.Join(f.root, "self/ns/pid")); err != nil {
			t.Fatal(err)
		}
		if got, err := f.InitialPIDNamespace(); got != want || err != nil {
			t.Errorf("%s: InitialPIDNamespace = %v, %v", link, got, err)
		}
	}
	empty := tree(t, map[string]string{"sys/kernel/random/boot_id": "not an id\n"})
	if _, err := empty.BootID(); err == nil || !strings.HasPrefix(err.Error(), "cannot read the boot id") {
		t.Errorf("broken boot id: %v", err)
	}
	if _, err := empty.InitialPIDNamespace(); err == nil {
		t.Error("a missing namespace link is an error, not an answer")
	}
}

func TestReadSlowGivesUp(t *testing.T) {
	f := tree(t, map[string]string{"7/stat": statLine(7, "stuck", "D", 1, 9)})
	// Reading a pipe without data blocks, like reading a process with a taken memory lock.
	if err := unix.Mkfifo(filepath.Join(f.root, "7/cmdline"), 0o644); err != nil {
		t.Fatal(err)
	}
	defer func() { // release the reader that is still blocked
		if w, err := os.OpenFile(filepath.Join(f.root, "7/cmdline"), os.O_RDWR|unix.O_NONBLOCK, 0); err == nil {
			w.Close()
		}
	}()
	if got := f.commandLine(7, "stuck"); got != "[stuck]" {
		t.Errorf("command of a stuck process = %q", got)
	}
}
