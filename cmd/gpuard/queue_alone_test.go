package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/queue"
)

// TestQueueGoesOnWithoutItsKeeper: a job that is handed in after the keeper was killed, while the runner still has its
// lock, runs at once; when the runner has nothing left to do, it starts another keeper for what was just handed in.
func TestQueueGoesOnWithoutItsKeeper(t *testing.T) {
	t.Parallel()
	l := newJobLine(t, 2)
	long := filepath.Join(l.marks, "long")
	l.submits(fmt.Sprintf("until test -e %s; do sleep 0.1; done", long))
	eventually(t, "the first runs", func() bool { q := l.queue(); return len(q) == 1 && q[0].State == queue.Running })
	for _, pid := range l.processes(queue.Flag) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	eventually(t, "the keeper is dead", func() bool { return len(l.processes(queue.Flag)) == 0 })
	for n := range 3 {
		l.runsBy(n)
	}
	writeFile(t, long, "", 0)
	eventually(t, "the first has ended", func() bool { return len(l.processes(queue.RunnerFlag)) == 0 })
	l.runsBy(3)
	for _, e := range l.history() {
		same(t, fmt.Sprint("job ", e.Number), e.State, queue.Done)
	}
}

// TestQueueGoesOnAfterAKill: of a killed keeper and runner the lock stays until the kernel has closed their files. What is
// handed in then runs all the same.
func TestQueueGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	l := newJobLine(t, 2)
	l.submits("sleep 300")
	eventually(t, "the first runs", func() bool { q := l.queue(); return len(q) == 1 && q[0].State == queue.Running && q[0].PID > 0 })
	for n := range soaked(300, 8) {
		for _, pid := range append(l.processes(queue.Flag), l.processes(queue.RunnerFlag)...) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		eventually(t, "both are dead", func() bool { return len(l.processes(queue.Flag))+len(l.processes(queue.RunnerFlag)) == 0 })
		l.runsBy(n)
	}
	same(t, "cancel", run(t, l.cmd("cancel", "1")).code, 0)
}

func (l *jobLine) submits(script string) {
	l.t.Helper()
	if got := run(l.t, l.submitting("--", "sh", "-c", script)); got.code != 0 {
		l.t.Fatalf("submit: %+v", got)
	}
}

// runsBy hands in a job, and waits for it without any other call of gpuard, which might start the queue.
func (l *jobLine) runsBy(n int) {
	l.t.Helper()
	mark := filepath.Join(l.marks, fmt.Sprint("ran-", n))
	l.submits("touch " + mark)
	eventually(l.t, fmt.Sprint("job ", n, " has run"), func() bool { _, err := os.Stat(mark); return err == nil })
}
