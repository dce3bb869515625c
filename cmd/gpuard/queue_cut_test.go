package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/app/userqueue"
)

// TestQueuePowerCut: the power fails after each write into the journal, and in the middle of each. What was acknowledged
// by then is run once after the boot; what ran is lost and named; what had ended is not run again.
func TestQueuePowerCut(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	for i, words := range [][]string{{"--", "sh", "-c", `echo ran >>"$GPUARD_JOB_DIR/ran"`}, {"--retry", "1:any", "--", "sh", "-c", `echo ran >>"$GPUARD_JOB_DIR/ran"; exit 3`},
		{"--after", "2:any", "--", "sh", "-c", `echo ran >>"$GPUARD_JOB_DIR/ran"`}} {
		checkEqual(t, fmt.Sprint("submit ", i+1), runCommand(t, l.submitCommand(append([]string{"--cpu"}, words...)...)).code, 0)
	}
	l.waitUntilAllEnded()
	waitUntil(t, "its processes are gone", func() bool { return len(l.queueProcesses("__queue"))+len(l.queueProcesses("__jobs")) == 0 })
	journal, err := os.ReadFile(filepath.Join(l.queueFolder(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	journal = bytes.ReplaceAll(journal, bytes.TrimSpace(boot), []byte("00000000-0000-4000-8000-000000000000"))
	at, cuts := 0, 0
	for _, line := range bytes.SplitAfter(journal, []byte("\n")) {
		for _, end := range []int{at + len(line)/2, at + len(line)} {
			if end > at {
				l.checkCutJournal(journal[:end])
				cuts++
			}
		}
		at += len(line)
	}
	if cuts < 20 {
		t.Errorf("only %d cuts: %s", cuts, journal)
	}
}

// checkCutJournal starts a copy of the queue with this journal on a machine that was started again, and checks how its jobs end.
func (l *queueFixture) checkCutJournal(journal []byte) {
	l.t.Helper()
	copied := &queueFixture{&fakeDriverMachine{Driver: l.Driver, t: l.t, state: quietDir(l.t), env: l.env}, l.marks, l.program}
	if err := os.CopyFS(copied.queueFolder(), os.DirFS(l.queueFolder())); err != nil {
		l.t.Fatal(err)
	}
	for _, path := range []string{copied.queueFolder(), filepath.Join(copied.queueFolder(), "env")} {
		if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // a folder
			l.t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(copied.queueFolder(), "jobs")); err != nil {
		l.t.Fatal(err)
	}
	writeFile(l.t, filepath.Join(copied.queueFolder(), "journal"), string(journal), 0)
	whole := string(journal[:bytes.LastIndexByte(journal, '\n')+1])
	copied.waitUntilAllEnded()
	ended := copied.endedJobs()
	if want := strings.Count(whole, `"is":"submit"`); len(ended) != want {
		l.t.Fatalf("%d jobs were acknowledged, and %d are there:\n%s", want, len(ended), whole)
	}
	for _, e := range ended {
		text, _ := os.ReadFile(filepath.Join(copied.queueFolder(), "jobs", fmt.Sprint(e.Number), "ran"))
		ran := strings.Count(string(text), "ran")
		of := func(kind string) int { return strings.Count(whole, fmt.Sprintf(`"is":%q,"run":%d,`, kind, e.Number-1)) }
		begun, over := of("begin"), of("end")
		tries := 1
		if e.Number == 2 {
			tries = 2
		}
		want := tries - begun
		if lost := begun > over && begun == tries; lost != (e.State == "lost") || ran != want {
			l.t.Errorf("job %d is %s and ran %d times after the cut, want %d:\n%s", e.Number, e.State, ran, want, whole)
		}
	}
}

// TestQueueDamagedLine: a line of the journal that is no record is named to who hands in a job and in the queue, and that
// job runs.
func TestQueueDamagedLine(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	checkEqual(t, "the first", runCommand(t, l.submitCommand("--cpu", "--", "true")).code, 0)
	l.waitUntilAllEnded()
	path := filepath.Join(l.queueFolder(), "journal")
	for i, bad := range []string{"half a li", `{"is":"submit","run":-4,"job":{"name":"x"}}`, `{"is":"submit","run":100000000,"job":{"name":"x"}}`} {
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = file.WriteString(bad + "\n")
		}
		if err = errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		got := runCommand(t, l.submitCommand("--cpu", "--", "true"))
		checkEqual(t, bad, got.out, fmt.Sprintln(i+2))
		checkContains(t, got.err, " of "+path+" is no record (", "), and is left out\n")
		l.waitUntilAllEnded()
		if ended := l.endedJobs(); len(ended) != i+2 || ended[0].State != userqueue.Done {
			t.Fatalf("after %q: %+v", bad, ended)
		}
	}
	checkContains(t, runCommand(t, l.cmd("queue")).out, " of "+path+" is no record")
}
