package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/userqueue"
)

// TestQueueGoesOnWithoutItsKeeper: a job that is handed in after the keeper was killed, while the runner still has its
// lock, runs at once; when the runner has nothing left to do, it starts another keeper for what was just handed in.
func TestQueueGoesOnWithoutItsKeeper(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 2)
	long := filepath.Join(l.marks, "long")
	l.mustSubmit(fmt.Sprintf("until test -e %s; do sleep 0.1; done", long))
	waitUntil(t, "the first runs", func() bool { q := l.queuedJobs(); return len(q) == 1 && q[0].State == userqueue.Running })
	for _, pid := range l.queueProcesses(userqueue.Flag) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	waitUntil(t, "the keeper is dead", func() bool { return len(l.queueProcesses(userqueue.Flag)) == 0 })
	for n := range 3 {
		l.submitAndWait(n)
	}
	writeFile(t, long, "", 0)
	waitUntil(t, "the first has ended", func() bool { return len(l.queueProcesses(userqueue.RunnerFlag)) == 0 })
	l.submitAndWait(3)
	for _, e := range l.endedJobs() {
		checkEqual(t, fmt.Sprint("job ", e.Number), e.State, userqueue.Done)
	}
}

// TestQueueGoesOnAfterAKill: of a killed keeper and runner the lock stays until the kernel has closed their files. What is
// handed in then runs all the same.
func TestQueueGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 2)
	l.mustSubmit("sleep 300")
	waitUntil(t, "the first runs", func() bool {
		q := l.queuedJobs()
		return len(q) == 1 && q[0].State == userqueue.Running && q[0].PID > 0
	})
	for n := range soakCount(300, 8) {
		for _, pid := range append(l.queueProcesses(userqueue.Flag), l.queueProcesses(userqueue.RunnerFlag)...) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		waitUntil(t, "both are dead", func() bool {
			return len(l.queueProcesses(userqueue.Flag))+len(l.queueProcesses(userqueue.RunnerFlag)) == 0
		})
		l.submitAndWait(n)
	}
	checkEqual(t, "cancel", runCommand(t, l.cmd("cancel", "1")).code, 0)
}

func (l *queueFixture) mustSubmit(script string) {
	l.t.Helper()
	if got := runCommand(l.t, l.submitCommand("--", "sh", "-c", script)); got.code != 0 {
		l.t.Fatalf("submit: %+v", got)
	}
}

// submitAndWait hands in a job, and waits for it without any other call of gpuard, which might start the queue.
func (l *queueFixture) submitAndWait(n int) {
	l.t.Helper()
	mark := filepath.Join(l.marks, fmt.Sprint("ran-", n))
	l.mustSubmit("touch " + mark)
	waitUntil(l.t, fmt.Sprint("job ", n, " has run"), func() bool { _, err := os.Stat(mark); return err == nil })
}
