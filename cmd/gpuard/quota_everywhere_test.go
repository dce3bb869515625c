package main

import (
	"os"
	"path/filepath"
	"testing"

	"gpuard/internal/app/userqueue"
)

// TestShareIsKept: a job that takes twice its share is ended, whichever command has started it.
func TestShareIsKept(t *testing.T) {
	t.Parallel()
	const greedy = "fakegpu-job --gpu 0 --mem 16G"
	t.Run("submit", func(t *testing.T) {
		t.Parallel()
		l := newQueueFixture(t, 1)
		checkEqual(t, "submit", runCommand(t, l.submitCommand("--share", "8G", "--require-quota", "watch", "--", "sh", "-c", "exec "+greedy)).code, 0)
		l.waitUntilAllEnded()
		job := l.endedJobs()[0]
		checkEqual(t, "how it ended", []any{job.State, job.Signal}, []any{userqueue.Failed, "SIGTERM"})
	})
	t.Run("sweep", func(t *testing.T) {
		t.Parallel()
		l, dir := newQueueFixture(t, 1), filepath.Join(quietDir(t), "sweep")
		got := runCommand(t, l.cmd("sweep", "--share", "8G", "--require-quota", "watch", "--over", "a=1", "--dir", dir, "--", "sh", "-c", ": {{.a}}; exec "+greedy))
		checkEqual(t, "the exit code of "+got.err, got.code, 1)
		logs, _ := filepath.Glob(filepath.Join(dir, "runs", "*", "log"))
		if len(logs) != 1 {
			t.Fatalf("logs: %q", logs)
		}
		log, _ := os.ReadFile(logs[0])
		checkContains(t, string(log), "Next time ask for --share 18G")
	})
	t.Run("run, started again elsewhere", func(t *testing.T) {
		t.Parallel()
		r := newFakeDriverMachine(t, makeA100s(2)...)
		got := r.runShellScript(`gpuard run $PRIVATE --no-wait --share 8G --retry 1 -- sh -c 'test "$GPUARD_RESTART" && exec fakegpu-job --gpu 1 --mem 16G
				echo 1 >$FAKEGPU_DIR/gpus/0/recovery; exit 9'`)
		checkContains(t, got.err, "starting it again elsewhere", "uses 16 GiB on GPU 1", "Next time ask for --share 18G")
	})
	t.Run("sweep, with what it leaves", func(t *testing.T) {
		t.Parallel()
		l, dir := newQueueFixture(t, 1), quietDir(t)
		left := "setsid sh -c 'while ! test -e " + dir + "/end; do sleep 0.1; done' >" + os.DevNull + " 2>&1 & echo {{.a}}"
		got := runCommand(t, l.cmd("sweep", "-q", "--jobs", "1", "--share", "8G", "--over", "a=1,2", "--dir", filepath.Join(dir, "sweep"), "--", "sh", "-c", left))
		checkEqual(t, "the exit code, while its processes live: "+got.err, got.code, 0)
		held := func() int { s, _ := l.readStatus(); return len(s.Devices[0].Leases) }
		checkEqual(t, "leases that they hold", held(), 2)
		writeFile(t, filepath.Join(dir, "end"), "", 0o600)
		waitUntil(t, "the leases end with them", func() bool { return held() == 0 })
	})
}
