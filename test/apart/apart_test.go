package apart

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childVariable is a variable of a child that does what a test program does: it starts a process that does not end, and then
// it ends in this way.
const childVariable = "GPUARD_UPDATE"

func TestMain(m *testing.M) {
	RunIfWatcher()
	if ending := os.Getenv(childVariable); ending == "leave" || ending == "panic" {
		runAsTests(ending)
	}
	os.Exit(m.Run())
}

func runAsTests(ending string) {
	leaveTimeout = 0
	place, err := Enter()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command("sleep", "1000") // in the environment of the tests
	cmd.Stdout = os.Stdout
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	fmt.Printf("%s\n%s\n", place.Root(), strings.Join(os.Environ(), "\n"))
	if ending == "panic" {
		panic("test timed out after 10m0s")
	}
	os.Exit(place.Leave(0))
}

// TestHeedIgnoredSignals: what the tests start gets a signal that their caller ignores.
func TestHeedIgnoredSignals(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	heedIgnoredSignals()
	if out, err := exec.Command("sh", "-c", "kill -HUP $$; echo lives").CombinedOutput(); err == nil || len(out) > 0 {
		t.Errorf("%q, %v", out, err)
	}
}

// TestLeftBehind: a process that the tests leave ends with them, and so does their folder, whether they come to their end
// or not; at their end it is a failure.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for ending, want := range map[string]struct {
		code  int
		words string
	}{
		"leave": {1, "the tests have left behind, and it is ended now: process "},
		"panic": {2, "panic: test timed out after 10m0s"},
	} {
		t.Run(ending, func(t *testing.T) {
			t.Parallel()
			checkLeftBehind(t, self, ending, want.code, want.words)
		})
	}
}

func checkLeftBehind(t *testing.T, self, ending string, code int, words string) {
	var errs strings.Builder
	cmd := exec.Command(self)
	cmd.Env = []string{childVariable + "=" + ending, "PATH=" + os.Getenv("PATH"), "HOME=/the/home/of/a/person", "TMPDIR=" + t.TempDir(),
		"DISPLAY=:7", "CONDA_PREFIX=/opt/conda", "SLURM_JOB_ID=7", "http_proxy=http://127.0.0.1:1", "CUDA_VISIBLE_DEVICES=7"}
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(out) // until the process that was left has ended
	err = cmd.Wait()
	lines := strings.Split(string(text), "\n")
	if cmd.ProcessState.ExitCode() != code || !strings.Contains(errs.String(), words) || len(lines) < 2 {
		t.Fatalf("%s: %v\n%s%s", ending, err, text, errs.String())
	}
	root := lines[0]
	for end := time.Now().Add(20 * time.Second); pathExists(root) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if pathExists(root) {
		t.Errorf("%s: %s is still there", ending, root)
	}
	for _, pair := range lines[1:] {
		name, value, _ := strings.Cut(pair, "=")
		if pair != "" && !slices.Contains(append(keptVariables(), "HOME", "PATH"), name) || name == "HOME" && !strings.HasPrefix(value, root) {
			t.Errorf("%s: the tests see %s", ending, pair)
		}
	}
}

// TestPath: it has what the system has, but of no folder the programs that change what gpuard does. Where the system has
// nothing, it is that of the caller.
func TestPath(t *testing.T) {
	t.Parallel()
	desktop, plain := t.TempDir(), t.TempDir()
	for _, path := range []string{desktop + "/train", plain + "/sleep"} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range hiddenPrograms() {
		if err := os.WriteFile(filepath.Join(desktop, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		folders []string
		callers string
		want    []string // programs
	}{
		{[]string{plain, desktop, plain + "/../" + filepath.Base(plain)}, "/the/home/of/a/person", []string{"bin/go", "sleep", "bin3/train"}},
		{[]string{desktop}, plain + ":bin", []string{"bin/go", "sleep"}},
	} {
		p := &TestFolder{root: t.TempDir()}
		path, err := p.makePath(c.folders, c.callers)
		if err != nil {
			t.Fatal(err)
		}
		folders := filepath.SplitList(path)
		if len(folders) != len(c.want) || slices.ContainsFunc(folders, hasHiddenProgram) {
			t.Errorf("PATH is %s", path)
		}
		for _, name := range c.want {
			if !pathExists(p.pathOf(name)) && !pathExists(filepath.Join(plain, name)) {
				t.Errorf("there is no %s in %s", name, path)
			}
		}
	}
}

// TestAddPrograms: this program is in PATH under each name, as one file, which other users can execute.
func TestAddPrograms(t *testing.T) {
	t.Parallel()
	p := &TestFolder{root: t.TempDir()}
	if err := os.Mkdir(p.pathOf("bin"), 0o755); err != nil { //nolint:gosec // tests act as other users
		t.Fatal(err)
	}
	if err := p.AddPrograms("one", "two", "three"); err != nil {
		t.Fatal(err)
	}
	first, err := os.Stat(p.pathOf("bin/one"))
	if err != nil || first.Mode().Perm()&0o005 != 0o005 {
		t.Fatal(first, err)
	}
	for _, name := range []string{"two", "three"} {
		if info, err := os.Stat(p.pathOf("bin/" + name)); err != nil || !os.SameFile(first, info) {
			t.Error(name, err)
		}
	}
	cmd := exec.Command(p.pathOf("bin/three"), "-test.run", "^$")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s, %v", out, err)
	}
}
