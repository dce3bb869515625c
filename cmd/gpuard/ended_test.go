package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/trend"
	"gpuard/internal/gate"
	"gpuard/test/apart"
)

// historyFixture is a user of an invented machine whose leases leave lines.
type historyFixture struct {
	t     *testing.T
	state string
	work  string
}

func newHistoryFixture(t *testing.T) *historyFixture {
	t.Helper()
	return &historyFixture{t, stateFolder(t), t.TempDir()}
}

func (l *historyFixture) cmd(args ...string) *exec.Cmd {
	cmd := gpuardCommand(l.t, l.state, []string{"GPUARD_MACHINE=demo:4xL4"}, args...)
	cmd.Dir = l.work
	return cmd
}

func (l *historyFixture) run(args ...string) runResult {
	l.t.Helper()
	return runCommand(l.t, l.cmd(args...))
}

func (l *historyFixture) historyFolder() string { return durablePath(l.state, os.Geteuid(), "history") }

// endedLeases are the lines that are there; each must be whole.
func (l *historyFixture) endedLeases() (list []trend.EndedLease) {
	l.t.Helper()
	for _, path := range must(filepath.Glob(filepath.Join(l.historyFolder(), "leases-ended*"))) {
		for text := range strings.Lines(string(must(os.ReadFile(path)))) {
			var e trend.EndedLease
			if err := json.Unmarshal([]byte(text), &e); err != nil || e.Lease == "" || !strings.HasSuffix(text, "\n") {
				l.t.Fatalf("a torn line: %q", text)
			}
			list = append(list, e)
		}
	}
	return list
}

// waitForEnded waits for so many lines, and for one too many.
func (l *historyFixture) waitForEnded(what string, n int) []trend.EndedLease {
	l.t.Helper()
	waitUntil(l.t, what, func() bool { return len(l.endedLeases()) >= n })
	time.Sleep(50 * time.Millisecond)
	list := l.endedLeases()
	known := map[string]bool{}
	for _, e := range list {
		if known[e.Lease+e.Since.String()] || e.UID == nil || int(*e.UID) != os.Geteuid() || len(e.Devices) == 0 || e.Until.Before(e.Since) {
			l.t.Errorf("%s: %+v", what, e)
		}
		known[e.Lease+e.Since.String()] = true
	}
	if len(list) != n {
		l.t.Fatalf("%s: %d lines, want %d: %+v", what, len(list), n, list)
	}
	return list
}

// leaseFiles are those that have files.
func (l *historyFixture) leaseFiles() []string {
	return must(filepath.Glob(filepath.Join(l.state, "machines", "*", "leases", "*", "*.lock")))
}

// TestEndedLine: each way in which a lease can end leaves one line.
func TestEndedLine(t *testing.T) {
	t.Parallel()
	l := newHistoryFixture(t)
	last := func(what string, n int) trend.EndedLease { t.Helper(); return l.waitForEnded(what, n)[n-1] }

	checkEqual(t, "run", l.run("run", "-q", "--gpus", "2", "--mem", "2G", "--expect", "1h", "--name", "train", "--", "sh", "-c", "sleep 0.3; exit 3").code, 3)
	e := last("in place", 1)
	if e.Command != "train" || e.Memory != 2<<30 || e.Time != time.Hour || len(e.Devices) != 2 || e.Devices[0].Granted < 0.3 || e.Devices[0].Index == e.Devices[1].Index || e.Unseen {
		t.Errorf("%+v", e)
	}
	if e.Exit != nil && *e.Exit != 3 || e.Peak != 0 || e.Devices[0].Busy+e.Devices[0].Idle != 0 {
		t.Errorf("%+v", e)
	}
	if info, err := os.Stat(l.historyFolder()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}

	checkEqual(t, "supervised", l.run("run", "-q", "--timeout", "20s", "--", "true").code, 0)
	last("by a supervisor", 2)
	known := e.Exit != nil // kernels before Linux 6.15 do not tell the holder
	checkEqual(t, "retried", l.run("run", "-q", "--retry", "2", "--", "false").code, 1)
	if e = last("one lease of three starts", 3); known && (e.Exit == nil || *e.Exit != 1) {
		t.Errorf("%+v", e)
	}

	outer := l.cmd("run", "-q", "--", must(os.Executable()), "run", "-q", "--", "true")
	outer.Args[len(outer.Args)-5] = filepath.Join(l.work, "gpuard")
	if err := os.Symlink(must(os.Executable()), outer.Args[len(outer.Args)-5]); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "inside", runCommand(t, outer).code, 0)
	last("a part of another lease leaves none", 4)

	checkEqual(t, "sweep", l.run("sweep", "-q", "--over", "n=1..5", "--", "true").code, 0)
	if e = last("of a sweep", 9); e.Exit == nil || *e.Exit != 0 {
		t.Errorf("%+v", e)
	}

	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	held := l.run("reserve", "--json", "--pid", fmt.Sprint(sleeper.Process.Pid))
	_, _ = sleeper.Process.Kill(), sleeper.Wait()
	checkEqual(t, "reserve", held.code, 0)
	if e = last("of a process that has ended", 10); e.Signal != "" && e.Signal != "SIGKILL" {
		t.Errorf("%+v", e)
	}

	var reserved struct{ Lease string }
	if err := json.Unmarshal([]byte(l.run("reserve", "--for", "1h", "--json").out), &reserved); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "release", l.run("release", reserved.Lease).code, 0)
	if e = last("that was given back", 11); e.Lease != reserved.Lease {
		t.Errorf("%+v", e)
	}
	checkEqual(t, "reserve", l.run("reserve", "--for", "100ms").code, 0)
	last("a reservation that is over", 12)

	checkEqual(t, "submit", l.run("submit", "-q", "--name", "job", "--", "true").code, 0)
	checkEqual(t, "wait", l.run("wait", "1").code, 0)
	if e = last("of the queue", 13); e.Command != "job" || e.Exit == nil {
		t.Errorf("%+v", e)
	}

	writeFile(t, filepath.Join(l.work, "gpuard.yaml"), "services:\n  one:\n    command: sleep 60\n", 0)
	checkEqual(t, "up", l.run("up", "-d").code, 0)
	waitUntil(t, "it runs", func() bool { return len(l.leaseFiles()) == 1 })
	checkEqual(t, "down", l.run("down").code, 0)
	last("of a service", 14)

	var a struct{ Use []trend.Use }
	if err := json.Unmarshal([]byte(l.run("history", "--by", "user", "--json").out), &a); err != nil || len(a.Use) != 1 || a.Use[0].Jobs != 14 {
		t.Errorf("%+v, %v", a, err)
	}
	checkEqual(t, "of another machine", runCommand(t, gpuardCommand(t, l.state, []string{"GPUARD_MACHINE=demo:1xL4"}, "history", "--by", "user")).out, "no lease has ended in that time\n")
}

// TestEndedBesideItsBeginner: a reservation that is over before gpuard reserve has printed its answer leaves its line all the same.
func TestEndedBesideItsBeginner(t *testing.T) {
	t.Parallel()
	l := newHistoryFixture(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	full := make([]byte, must(unix.FcntlInt(write.Fd(), unix.F_GETPIPE_SZ, 0)))
	if _, err := write.Write(full); err != nil {
		t.Fatal(err)
	}
	cmd := l.cmd("reserve", "--for", "100ms", "--json")
	cmd.Stdout = write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	waitUntil(t, "the reservation has a lease", func() bool { return len(l.leaseFiles()) == 1 })
	time.Sleep(time.Second) // longer than the reservation, whose beginner cannot print before somebody reads
	if _, err := io.Copy(io.Discard, read); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	l.waitForEnded("a reservation that was over at once", 1)
}

// TestEndedUnseen: a lease whose command and holder were killed leaves its line when the next claim finds it.
func TestEndedUnseen(t *testing.T) {
	t.Parallel()
	l := newHistoryFixture(t)
	job := l.cmd("run", "-q", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60")
	id := startToFirstLine(t, job)
	holder := waitForHolder(t, l.state)
	_ = unix.Kill(holder, unix.SIGKILL) // first, or it would see the end of the command
	waitUntil(t, "the holder is gone", func() bool { return unix.Kill(holder, 0) != nil })
	_, _ = job.Process.Kill(), job.Wait()
	checkEqual(t, "lines", len(l.endedLeases()), 0)
	for n := range 2 {
		checkEqual(t, "run", l.run("run", "-q", "--", "true").code, 0)
		list := l.waitForEnded("found, once", 2+n)
		if e := list[0]; e.Lease != id || !e.Unseen || e.Devices[0].Granted != 0 || e.Command != "sh" {
			t.Errorf("%+v", e)
		}
	}
	checkContains(t, l.run("history", "--by", "command").out, "ended while nobody looked")
}

// TestEndedHandOver: where one's next claim comes between the end of a command and the work of its holder, the end is
// seen all the same. Many end at the same moment.
func TestEndedHandOver(t *testing.T) {
	t.Parallel()
	l := newHistoryFixture(t)
	const jobs = 40
	var all sync.WaitGroup
	for i := range jobs {
		cmd := l.cmd("run", "-q", "--gpus", "4", "--", "true")
		if i%2 == 0 {
			cmd = l.cmd("run", "-q", "--", "true")
		}
		all.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	for _, e := range l.waitForEnded("all", jobs) {
		if e.Unseen {
			t.Errorf("%+v", e)
		}
	}
}

// TestEndedUnwritable: a line that cannot be written changes nothing for the lease.
func TestEndedUnwritable(t *testing.T) {
	t.Parallel()
	l := newHistoryFixture(t)
	if err := os.MkdirAll(l.state, 0o1777); err != nil {
		t.Fatal(err)
	}
	writeFile(t, l.historyFolder(), "in the way", 0)
	ok := func(what string) {
		t.Helper()
		got := l.run("run", "-q", "--", "sh", "-c", "exit 7")
		if got.code != 7 || got.err != "" {
			t.Errorf("%s: %+v", what, got)
		}
		waitUntil(t, what+": the lease is over", func() bool { return len(l.leaseFiles()) == 0 })
		got = l.run("sweep", "-q", "--dir", filepath.Join(l.work, what), "--over", "n=1..3", "--", "true")
		if got.code != 0 {
			t.Errorf("%s: %+v", what, got)
		}
	}
	ok("file")
	if err := os.Remove(l.historyFolder()); err != nil || os.Symlink(l.work, l.historyFolder()) != nil {
		t.Fatal(err)
	}
	file := filepath.Join(l.work, "leases-ended")
	for _, path := range must(filepath.Glob(filepath.Join(l.state, "machines", "*"))) {
		file += "-" + filepath.Base(path)
	}
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	ok("fifo")
}

// TestEndedFull: the same on a full disk, and nothing of a line is left that would harm the next one.
func TestEndedFull(t *testing.T) {
	gate.Need(t, "privileged")
	t.Parallel()
	l := newHistoryFixture(t)
	if err := os.MkdirAll(l.historyFolder(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", l.historyFolder(), "tmpfs", 0, "size=4k,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(l.historyFolder(), unix.MNT_DETACH) })
	filler := filepath.Join(l.historyFolder(), "filler")
	for free := 4096; free > 0; free /= 2 {
		f := must(os.OpenFile(filler, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600))
		_, _ = f.Write(make([]byte, free))
		_ = f.Close()
	}
	checkEqual(t, "run", l.run("run", "-q", "--", "sh", "-c", "exit 7").code, 7)
	waitUntil(t, "the lease is over, and its holder too, which writes last", func() bool { return len(l.leaseFiles()) == 0 && len(apart.ProcessesNaming(l.state)) == 0 })
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "run", l.run("run", "-q", "--", "true").code, 0)
	l.waitForEnded("there is room again", 1)
}
