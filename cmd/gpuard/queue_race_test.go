package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/batchlog"
)

// countOddLines is how many lines of the journal are impossible after those before them.
func (l *queueFixture) countOddLines() int {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join(l.queueFolder(), "journal"))
	if err != nil {
		l.t.Fatal(err)
	}
	state := batchlog.NewQueue()
	for line := range bytes.Lines(text) {
		if err := state.ReadLine(bytes.TrimSpace(line), 0); err != nil {
			l.t.Fatal(err)
		}
	}
	return state.Odd
}

// TestQueueAsked: jobs are cancelled, held, let go and asked for again by several processes at the moment at which they
// start and end. The journal stays possible line by line, no job runs twice at the same time, and the queue goes on.
func TestQueueAsked(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 2)
	var group sync.WaitGroup
	for i := range soakCount(400, 10) {
		mark := filepath.Join(l.marks, fmt.Sprint("live-", i))
		script := fmt.Sprintf(`exec 9>%s; flock -n 9 || { date +%%T.%%N; echo "$$ is not alone"; for p in /proc/[0-9]*; do test $p/fd/9 -ef %[1]s && cat $p/stat; done; } >%[1]s-twice 2>&1; sleep 0.0%d 9>&-; :`, mark, i%5)
		words := []string{"--retry", "3:any", "--", "sh", "-c", script}
		if i%3 == 0 {
			words = append([]string{"--cpu"}, words...)
		}
		out := runCommand(t, l.submitCommand(words...)).out
		number := strings.TrimSpace(out)
		for _, ask := range [][]string{{"cancel", number}, {"queue", "requeue", number}, {"queue", "requeue", number}, {"queue", "unhold", number}, {"queue", "hold", number}, {"queue", "unhold", number}} {
			group.Go(func() {
				time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
				if got := runCommand(t, l.cmd(ask...)); got.code != 0 && got.code != 2 {
					t.Errorf("%q: exit %d\n%s", ask, got.code, got.err)
				}
			})
		}
		group.Wait()
	}
	n := len(l.queuedJobs())
	for _, e := range l.queuedJobs() {
		if e.State == userqueue.Held {
			checkEqual(t, "unhold", l.run("queue", "unhold", strconv.Itoa(e.Number)).code, 0)
		}
	}
	l.waitUntilAllEnded()
	checkEqual(t, "impossible lines", l.countOddLines(), 0)
	list, _ := filepath.Glob(filepath.Join(l.marks, "*-twice"))
	for _, path := range list {
		who, _ := os.ReadFile(path)
		journal, _ := os.ReadFile(filepath.Join(l.queueFolder(), "journal"))
		t.Errorf("ran twice at the same time: %s (%d were left at the end)\n%s\n%s", path, n, who, journal)
	}
	checkEqual(t, "one more job", runCommand(t, l.submitCommand("--", "true")).code, 0)
	l.waitUntilAllEnded()
}

// TestQueueUnheldOften: a job that waits has one place in the line, however often it is let go.
func TestQueueUnheldOften(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	stop := filepath.Join(l.marks, "stop")
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--", "sh", "-c", "while ! test -e "+stop+"; do sleep 0.1; done")).code, 0)
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--", "sh", "-c", "echo ran >>"+l.marks+"/ran")).code, 0)
	for range 6 {
		checkEqual(t, "unhold", l.run("queue", "unhold", "2").code, 0)
	}
	for _, word := range []string{"pause", "resume", "pause", "resume"} {
		checkEqual(t, word, l.run("queue", word).code, 0)
	}
	waitUntil(t, "it waits in the line", func() bool { s, _ := l.readStatus(); return len(s.Waiting) > 0 })
	time.Sleep(200 * time.Millisecond)
	if s, _ := l.readStatus(); len(s.Waiting) != 1 {
		t.Errorf("it has %d places", len(s.Waiting))
	}
	writeFile(t, stop, "", 0)
	l.waitUntilAllEnded()
	text, _ := os.ReadFile(l.marks + "/ran")
	checkEqual(t, "it ran", string(text), "ran\n")
}

// TestQueueClasses: jobs without a GPU do not hold up those with one, nor the other way round, however many wait.
func TestQueueClasses(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	forever := "trap 'exit 0' TERM; while :; do sleep 0.1; done"
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--cpu", "--array", "1-40", "--", "sh", "-c", forever)).code, 0)
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--array", "1-20", "--", "sh", "-c", forever)).code, 0)
	waitUntil(t, "one with a GPU runs", func() bool {
		for _, e := range l.queuedJobs() {
			if e.State == userqueue.Running && len(e.Devices) == 1 {
				return true
			}
		}
		return false
	})
	checkEqual(t, "cancel", l.run("cancel", "1-40").code, 0)
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--cpu", "--", "true")).code, 0)
	checkEqual(t, "the last one without a GPU", l.run("wait", "61").code, 0)
	checkEqual(t, "cancel", l.run("cancel", "41-61").code, 0)
	l.waitUntilAllEnded()
}

// TestQueueLog: a file that a job cannot write to is refused at once, or is that job's failure, not the queue's.
func TestQueueLog(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	for path, want := range map[string]string{l.marks: "it is no file", filepath.Join(l.marks, "none", "x"): "there is no folder"} {
		got := runCommand(t, l.submitCommand("--log", path, "--", "true"))
		if got.code != 125 || !strings.Contains(got.err, want) {
			t.Errorf("--log %s: exit %d\n%s", path, got.code, got.err)
		}
	}
	folder, fifo := filepath.Join(l.marks, "folder", "folder"), filepath.Join(l.marks, "fifo")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--hold", "--notify", "echo told >>"+l.marks+"/told", "--log", filepath.Join(folder, "out"), "--", "true")).code, 0)
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--hold", "--cpu", "--log", fifo, "--", "true")).code, 0)
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--hold", "--log", "/dev/null", "--", "true")).code, 0)
	if err := os.RemoveAll(filepath.Dir(folder)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "unhold", l.run("queue", "unhold", "1-3").code, 0)
	checkEqual(t, "the good one", l.run("wait", "3").code, 0)
	l.waitUntilAllEnded()
	checkContains(t, l.run("history").out, "1  not run", "2  not run", "cannot make the log")
	waitUntil(t, "its end is told", func() bool { text, _ := os.ReadFile(l.marks + "/told"); return string(text) == "told\n" })
}

// TestQueueShortOnes: of many jobs in the line the shortest is next, and the device does not stay idle meanwhile.
func TestQueueShortOnes(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	l.program = "orderly"
	order := filepath.Join(l.marks, "order")
	note := func(name string) []string {
		return []string{"--", "sh", "-c", "echo " + name + " >>" + order + "; sleep 0.05"}
	}
	stop := filepath.Join(l.marks, "stop")
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--", "sh", "-c", "while ! test -e "+stop+"; do sleep 0.1; done")).code, 0)
	waitUntil(t, "it runs", func() bool { q := l.queuedJobs(); return len(q) == 1 && q[0].State == userqueue.Running })
	checkEqual(t, "submit", runCommand(t, l.submitCommand(append([]string{"--expect", "10h", "--array", "1-12"}, note("long")...)...)).code, 0)
	waitUntil(t, "they wait in the line", func() bool { s, _ := l.readStatus(); return len(s.Waiting) == 12 })
	checkEqual(t, "submit", runCommand(t, l.submitCommand(append([]string{"--expect", "1s"}, note("short")...)...)).code, 0)
	waitUntil(t, "it waits in the line", func() bool { s, _ := l.readStatus(); return len(s.Waiting) == 13 })
	writeFile(t, stop, "", 0)
	l.waitUntilAllEnded()
	text, _ := os.ReadFile(order)
	if first, _, _ := strings.Cut(string(text), "\n"); first != "short" {
		t.Errorf("the order is %q", text)
	}
}

// TestQueueWaits: gpuard wait goes on while a job is held or the queue is paused, and says why; what can never run is
// refused when it is handed in.
func TestQueueWaits(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	got := runCommand(t, l.submitCommand("--gpus", "2", "--", "true"))
	if got.code != 122 || !strings.Contains(got.err, "cannot give 2 GPUs") {
		t.Errorf("2 of 1 GPUs: exit %d\n%s", got.code, got.err)
	}
	checkEqual(t, "submit", runCommand(t, l.submitCommand("--hold", "--cpu", "--", "true")).code, 0)
	waits := l.cmd("wait", "1")
	heard := &outputBuffer{}
	waits.Stderr = heard
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	hears := func(text string) {
		t.Helper()
		waitUntil(t, text, func() bool { return strings.Contains(heard.String(), text) })
	}
	hears("job 1 is held; let it start with: gpuard queue unhold 1")
	checkEqual(t, "pause", l.run("queue", "pause").code, 0)
	checkEqual(t, "unhold", l.run("queue", "unhold", "1").code, 0)
	hears("the queue is paused; go on with: gpuard queue resume")
	checkEqual(t, "resume", l.run("queue", "resume").code, 0)
	if err := waits.Wait(); err != nil {
		t.Errorf("wait: %v\n%s", err, heard.String())
	}
	hears("job 1 (true): done")
	for _, words := range [][]string{{"--timeout", "0.1s", "--", "sleep", "60"}, {"--after", "2", "--", "true"}} {
		checkEqual(t, "submit", runCommand(t, l.submitCommand(append([]string{"--cpu"}, words...)...)).code, 0)
	}
	checkEqual(t, "ended by --timeout", l.run("wait", "2").code, 124)
	checkEqual(t, "not run", l.run("wait", "3").code, 1)
}
