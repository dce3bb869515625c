package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/grid"
	"gpuard/internal/gate"
)

// sweepFixture is a place for sweeps of one test.
type sweepFixture struct {
	t              *testing.T
	state, machine string
	dir, work      string // of the sweep, and in which it is called
}

func newSweepFixture(t *testing.T, machine string) *sweepFixture {
	return &sweepFixture{t, stateFolder(t), machine, filepath.Join(t.TempDir(), "s"), t.TempDir()}
}

// sweepCommand is a sweep into the field's folder.
func (f *sweepFixture) sweepCommand(args ...string) *exec.Cmd {
	f.t.Helper()
	return f.plainSweepCommand(append([]string{"--dir", f.dir}, args...)...)
}

func (f *sweepFixture) plainSweepCommand(args ...string) *exec.Cmd {
	f.t.Helper()
	cmd := gpuardCommand(f.t, f.state, []string{"GPUARD_MACHINE=" + f.machine}, append([]string{"sweep"}, args...)...)
	cmd.Dir = f.work
	return cmd
}

// resumeSweep resumes the sweep, and reads its answer.
func (f *sweepFixture) resumeSweep(args ...string) (sweepAnswer, runResult) {
	f.t.Helper()
	return f.runForAnswer(f.plainSweepCommand(append([]string{"--json", "--resume", f.dir}, args...)...))
}

// sweepAnswer is what a sweep says with --json.
type sweepAnswer struct {
	Runs, OK, Failed int
	NotDone          int `json:"not_done"`
	Failures         []grid.Result
	Notes            []string
}

func (f *sweepFixture) runForAnswer(cmd *exec.Cmd) (a sweepAnswer, got runResult) {
	f.t.Helper()
	got = runCommand(f.t, cmd)
	if err := json.Unmarshal([]byte(got.out), &a); err != nil {
		f.t.Fatalf("%v: exit %d, %q, %s", err, got.code, got.out, got.err)
	}
	return a, got
}

// readResults reads the table.
func (f *sweepFixture) readResults() (rows []map[string]string) {
	f.t.Helper()
	file, err := os.Open(filepath.Join(f.dir, "results.csv"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // read only
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func (f *sweepFixture) readRunLog(i int) string {
	text, _ := os.ReadFile(filepath.Join(f.dir, batchlog.RunFolder(i, 100), "log"))
	return string(text)
}

// TestSweep: every run has its parameters, a device of its own, a log and a line in the table; those that fail are
// named and can be asked for again.
func TestSweep(t *testing.T) {
	t.Parallel()
	f := newSweepFixture(t, "demo:4xL4")
	once := filepath.Join(t.TempDir(), "once")
	script := `echo "$1 on $CUDA_VISIBLE_DEVICES as $GPUARD_SWEEP_RUN of $GPUARD_LEASE"; echo bad >&2; test -e "$2" || test "$1" != "a b"`
	cmd := f.sweepCommand("--over", "x=1..3,a b", "--", "sh", "-c", script, "sh", "{{.x}}", once)
	got := runCommand(t, cmd)
	checkEqual(t, "exit", got.code, 1)
	checkContains(t, got.err, "4 runs in "+f.dir)
	checkContains(t, got.out, "3 of 4 runs ok, 1 failed", "run 3 (x=a b): exit 1; "+f.dir+"/runs/0003/log", "gpuard sweep --resume "+f.dir+" --failed")
	for i, row := range f.readResults() {
		checkEqual(t, "number", row["run"], fmt.Sprint(i))
		want := fmt.Sprintf("%s on %s as %d of ", row["x"], row["devices"], i)
		if text := f.readRunLog(i); !strings.HasPrefix(text, want) || !strings.HasSuffix(text, "\nbad\n") {
			t.Errorf("the log of run %d is %q, want %q", i, text, want)
		}
		checkEqual(t, "state", row["state"], []string{"ok", "ok", "ok", "failed"}[i])
	}
	for _, path := range []string{f.dir, filepath.Join(f.dir, "journal"), filepath.Join(f.dir, "runs", "0000", "log")} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if a, got := f.resumeSweep(); got.code != 1 || a.OK != 3 || a.Failed != 1 || a.Failures[0].Parameters["x"] != "a b" {
		t.Errorf("resumed: exit %d, %+v", got.code, a)
	}
	if err := os.WriteFile(once, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if a, got := f.resumeSweep("--failed"); got.code != 0 || a.OK != 4 || strings.Count(f.readRunLog(0), "bad") != 1 || strings.Count(f.readRunLog(3), "bad") != 2 {
		t.Errorf("with --failed: exit %d, %+v", got.code, a)
	}
	checkEqual(t, "leases", (&demoMachine{t: t, state: f.state}).countLeases(), 0)
}

// TestSweepInFolderOfOthers: a sweep's commands are read from its folder, so it is neither begun nor resumed where
// another user could put another folder in its place; nothing is left there.
func TestSweepInFolderOfOthers(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	f := newSweepFixture(t, "demo")
	if got := runCommand(t, f.sweepCommand("--over", "x=1", "--", "true")); got.code != 0 {
		t.Fatal(got.err)
	}
	above := filepath.Dir(f.dir)
	for name, spoil := range map[string]func() error{
		"belongs to uid 1":    func() error { return os.Chown(above, bobUID, bobUID) },
		"all users may write": func() error { return errors.Join(os.Chown(above, 0, 0), os.Chmod(above, 0o777)) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(above, "other")
		here := f.plainSweepCommand("--over", "x=1", "--", "true") // in a folder with a number
		here.Dir = above
		for _, cmd := range []*exec.Cmd{f.plainSweepCommand("--resume", f.dir), f.sweepCommand("--over", "x=1", "--", "true"), f.plainSweepCommand("--dir", other, "--over", "x=1", "--", "true"), here} {
			got := runCommand(t, cmd)
			checkEqual(t, name, got.code, 125)
			checkContains(t, got.err, "gpuard: cannot use "+above, " for a sweep: ", name, "; name a folder of your own: --dir DIR\n")
		}
		if made, _ := filepath.Glob(filepath.Join(above, "gpuard-sweep-*")); len(made) > 0 {
			t.Errorf("%s: made %v", name, made)
		}
		if _, err := os.Lstat(other); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a folder was made: %v", name, err)
		}
	}
}

// TestSweepOther: another question in the same folder is refused, and the same one resumes.
func TestSweepOther(t *testing.T) {
	t.Parallel()
	f := newSweepFixture(t, "demo")
	in := func(args ...string) runResult { return runCommand(t, f.sweepCommand(args...)) }
	checkEqual(t, "exit", in("-q", "--over", "x=1..3", "--", "sh", "-c", "echo {{.x}}").code, 0)
	got := in("--over", "x=1..4", "--", "sh", "-c", "echo {{.x}}")
	checkEqual(t, "exit", got.code, 125)
	checkContains(t, got.err, "it is of another sweep (3 runs of sh -c echo {{.x}}", "gpuard sweep --resume "+f.dir)
	got = in("--jobs", "1", "--over", "x=1..3", "--", "sh", "-c", "echo {{.x}}")
	checkEqual(t, "exit", got.code, 0)
	checkContains(t, got.err, "3 done before")
	checkEqual(t, "log", f.readRunLog(0), "1\n")
}

// TestSweepShares: runs that share a GPU have shares of it, and at most that many run at the same time.
func TestSweepShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags []string
		most  int
	}{{[]string{"--jobs-per-gpu", "3"}, 6}, {[]string{"--share", "10G"}, 4}, {nil, 2}, {[]string{"--jobs-per-gpu", "3", "--jobs", "4"}, 4}} {
		t.Run(strings.Join(c.flags, " "), func(t *testing.T) {
			t.Parallel()
			f := newSweepFixture(t, "demo:2xL4")
			here := t.TempDir()
			// Each waits until so many are there, and a little, and says how many there are.
			script := fmt.Sprintf(`touch $1/$2; n=0; while [ $(ls $1 | wc -l) -lt %d ] && [ $n -lt 500 ]; do sleep 0.02; n=$((n+1)); done
sleep 0.3; ls $1 | wc -l; [ $n -lt 500 ] && sleep 0.2; mv $1/$2 $1/.$2`, c.most)
			cmd := f.sweepCommand(append(append([]string{"-q", "--over", "x=1.." + fmt.Sprint(2*c.most)}, c.flags...), "--", "sh", "-c", script, "sh", here, "{{.x}}")...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			held := 0
			waitUntil(t, "all are there", func() bool {
				entries, _ := filepath.Glob(here + "/*")
				held = max(held, len(entries))
				return len(entries) == c.most
			})
			status := runCommand(t, gpuardCommand(t, f.state, nil, "status", "--machine", f.machine, "--json")).out
			if want := c.most > 2; strings.Contains(status, `"share"`) != want {
				t.Errorf("shares in the status: want %v\n%s", want, status)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			for i := range 2 * c.most {
				if n := strings.TrimSpace(f.readRunLog(i)); n > fmt.Sprint(c.most) {
					t.Errorf("run %d saw %s at once, and %d are the most", i, n, c.most)
				}
			}
		})
	}
}

// TestSweepRetry: what fails is started again as often as asked, and only then.
func TestSweepRetry(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{"--retry 2:any": "3", "--retry 2": "1", "": "1", "--timeout 1m --retry 1:any": "2"} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			f := newSweepFixture(t, "demo")
			cmd := f.sweepCommand(append(strings.Fields(flags), "-q", "--over", "x=1..2", "--", "sh", "-c", "echo on; exit 4")...)
			checkEqual(t, "exit", runCommand(t, cmd).code, 1)
			for i, row := range f.readResults() {
				checkEqual(t, "starts", row["starts"]+row["exit"]+row["state"], want+"4failed")
				checkEqual(t, "starts in the log", fmt.Sprint(strings.Count(f.readRunLog(i), "on")), want)
			}
		})
	}
}

// TestSweepTimeout: a run that takes too long is ended with all that it started; the others are not.
func TestSweepTimeout(t *testing.T) {
	t.Parallel()
	f := newSweepFixture(t, "demo")
	pids := filepath.Join(t.TempDir(), "pids")
	script := `[ $1 = 1 ] && exit 0; trap "" TERM; (setsid sleep 1000 & echo $! >>"$2"); sleep 1001 & echo $! >>"$2"; wait; while :; do sleep 1; done`
	got := runCommand(t, f.sweepCommand("--timeout", "4s", "--grace", "200ms", "--over", "x=1,2", "--", "sh", "-c", script, "sh", "{{.x}}", pids))
	checkEqual(t, "exit", got.code, 1)
	checkContains(t, got.out, "1 of 2 runs ok, 1 failed", "exit 124, ended after its time was over (--timeout 4s)")
	text, _ := os.ReadFile(pids)
	words := strings.Fields(string(text))
	if len(words) != 2 {
		t.Fatalf("%q started", words)
	}
	waitUntil(t, "what was in its session is gone", func() bool { return strings.Contains("XZ", processState(parseNumber(t, words[1]))) })
	_ = unix.Kill(parseNumber(t, words[0]), unix.SIGKILL) // it left the session, and its parent
}

func parseNumber(t *testing.T, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSweepEnded: ending a sweep ends its runs with all their processes; they count as not done, and the rest can be
// resumed. It dies by the signal.
func TestSweepEnded(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			f := newSweepFixture(t, "demo:2xL4")
			pids, go2 := filepath.Join(t.TempDir(), "pids"), filepath.Join(t.TempDir(), "go")
			script := `[ -e "$2" ] && exit 0; (setsid sleep 1000 & echo $! >>"$1"); trap "" TERM; echo $$ >>"$1"; while :; do sleep 0.1; done`
			cmd := f.sweepCommand("--grace", "300ms", "--over", "x=1..5", "--", "sh", "-c", script, "sh", pids, go2)
			var errs strings.Builder
			cmd.Stderr = &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var started []string
			waitUntil(t, "two run", func() bool {
				text, _ := os.ReadFile(pids)
				started = strings.Fields(string(text))
				return len(started) == 4 && strings.HasSuffix(string(text), "\n")
			})
			_ = cmd.Process.Signal(sig)
			_ = cmd.Wait()
			if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != sig {
				t.Errorf("it ended as %v: %s", cmd.ProcessState, errs.String())
			}
			checkContains(t, errs.String(), "0 of 5 runs ok, 5 not done", "to continue: gpuard sweep --resume "+f.dir)
			for _, pid := range started {
				waitUntil(t, "process "+pid+" is gone", func() bool { return strings.Contains("XZ", processState(parseNumber(t, pid))) })
			}
			if err := os.WriteFile(go2, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if a, got := f.resumeSweep(); got.code != 0 || a.OK != 5 {
				t.Errorf("resumed: exit %d, %+v", got.code, a)
			}
		})
	}
}

// TestSweepTurns: between two runs waiting requests get their turn.
func TestSweepTurns(t *testing.T) {
	t.Parallel()
	f := newSweepFixture(t, "demo:1xL4")
	order := filepath.Join(t.TempDir(), "order")
	go2 := filepath.Join(t.TempDir(), "go")
	cmd := f.sweepCommand("-q", "--over", "x=1..3", "--", "sh", "-c", `echo {{.x}} >>"$0"; while ! [ -e "$1" ]; do sleep 0.1; done; sleep 0.2`, order, go2)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the first runs", func() bool { _, err := os.Stat(order); return err == nil })
	other := gpuardCommand(t, f.state, []string{"GPUARD_MACHINE=" + f.machine}, "run", "-q", "--", "sh", "-c", `echo other >>"$0"`, order)
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "both wait", func() bool { // a name with a dot is of a ticket that is being written
		found, _ := filepath.Glob(filepath.Join(f.state, "machines", "*", "tickets", "*", "[^.]*.ticket"))
		return len(found) >= 2
	})
	if err := os.WriteFile(go2, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
	text, _ := os.ReadFile(order)
	words := strings.Fields(string(text))
	slices.Sort(words)
	checkEqual(t, "all", strings.Join(words, " "), "1 2 3 other")
	if strings.HasSuffix(string(text), "other\n") {
		t.Errorf("the other one came last: %q", text)
	}
}

// TestSweepCPU: without a device nothing is leased, and the machine needs none.
func TestSweepCPU(t *testing.T) {
	t.Parallel()
	f := newSweepFixture(t, "demo:1xL4")
	a, got := f.runForAnswer(f.sweepCommand("--json", "--cpu", "--over", "x=1..4", "--jobs", "4", "--", "sh", "-c", `echo "$CUDA_VISIBLE_DEVICES"`))
	if got.code != 0 || a.OK != 4 || f.readRunLog(3) != "-1\n" {
		t.Errorf("exit %d, %+v, %q", got.code, a, f.readRunLog(3))
	}
}

// TestSweepFull: a disk without room ends the sweep with a clear word, and nothing of what was done is lost.
func TestSweepFull(t *testing.T) {
	t.Parallel()
	gate.Need(t, "privileged")
	mounted := t.TempDir()
	if err := unix.Mount("tmpfs", mounted, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) })
	f := newSweepFixture(t, "demo:2xL4")
	f.dir = filepath.Join(mounted, "s")
	ballast := filepath.Join(mounted, "ballast")
	done := filepath.Join(t.TempDir(), "done")
	script := fmt.Sprintf(`echo {{.x}} >>"$0"; [ {{.x}} -ne 20 ] || dd if=/dev/zero of=%s bs=4k 2>/dev/null; true`, ballast)
	got := runCommand(t, f.sweepCommand("--over", "x=1..150", "--", "sh", "-c", script, done))
	checkEqual(t, "exit", got.code, 125)
	checkContains(t, got.err, "no space left on device", "what was done is kept: gpuard sweep --resume "+f.dir)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", mounted, "", unix.MS_REMOUNT, "size=200m"); err != nil {
		t.Fatal(err)
	}
	if a, got := f.resumeSweep(); got.code != 0 || a.OK != 150 {
		t.Errorf("resumed: exit %d, %+v, %s", got.code, a, got.err)
	}
	checkExactlyOnce(t, done, 1, 150, 0)
}

// checkExactlyOnce checks that each number is there, at most so many of them twice.
func checkExactlyOnce(t *testing.T, path string, first, last, twice int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	total := 0
	for word := range strings.FieldsSeq(string(text)) {
		seen[word]++
		total++
	}
	for i := first; i <= last; i++ {
		if seen[fmt.Sprint(i)] == 0 {
			t.Errorf("%d was never done", i)
		}
	}
	if more := total - (last - first + 1); more > twice {
		t.Errorf("%d were done more than once, at most %d may be", more, twice)
	}
}
