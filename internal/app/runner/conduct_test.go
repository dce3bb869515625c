package runner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/batchlog"
)

// TestConduct: how each run ended is written down, with a keeper and without.
func TestConduct(t *testing.T) {
	t.Parallel()
	ends := []struct {
		name, command string
		phase         batchlog.Phase
		starts, exit  int
		signal        string
		late          bool
		log           string
	}{
		{"ends with 0", "echo all is well", batchlog.OK, 1, 0, "", false, "all is well\n"},
		{"ends with 3", "exit 3", batchlog.Failed, 2, 3, "", false, ""},
		{"ends by a signal", "kill -USR1 $$", batchlog.Failed, 2, -1, "SIGUSR1", false, ""},
		{"succeeds when it is tried again", `echo "$N, restart ${GPUARD_RESTART-none}"; test -n "$GPUARD_RESTART"`, batchlog.OK, 2, 0, "", false, "3, restart none\n3, restart 1\n"},
		{"does not end in time", "exec sleep 60", batchlog.Failed, 1, 124, "", true, ""},
		{"leaves something that does not end in time", "trap '' TERM; sleep 60 & echo $! >$T/child; wait", batchlog.Failed, 1, 124, "", true, ""},
		{"cannot be started", "", batchlog.Failed, 1, 0, "", false, ""},
	}
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprint("kept ", kept), func(t *testing.T) {
			t.Parallel()
			tr := trial{Kept: kept, Retry: batchlog.Retry{Times: 1, Any: true}, Timeout: 2 * time.Second, Grace: 200 * time.Millisecond, AtOnce: len(ends)}
			for _, e := range ends {
				tr.Commands = append(tr.Commands, e.command)
			}
			done := newTrial(t, tr)
			done.conduct()
			state := done.state()
			for i, e := range ends {
				run := state.Runs[i]
				last := run.LastEvent()
				if e.command == "" {
					if run.Phase != batchlog.Failed || !strings.Contains(last.Problem, "there is no such program") {
						t.Errorf("%s: %+v", e.name, run)
					}
					continue
				}
				code := last.Exit
				if last.Late && !kept { // a keeper ends as timeout(1) does; the runner writes down how the command ended
					code = exit.TimedOut
				}
				log := done.lines(state.Folder(i) + "/log")
				own := slices.DeleteFunc(slices.Clone(log), func(line string) bool { return strings.HasPrefix(line, "# gpuard: ") })
				if run.Phase != e.phase || run.Starts != e.starts || code != e.exit || !last.Late && last.Signal != e.signal || last.Late != e.late || strings.Join(own, "\n") != strings.TrimSuffix(e.log, "\n") {
					t.Errorf("%s: %v after %d starts, exit %d, signal %q, late %v, log %q", e.name, run.Phase, run.Starts, last.Exit, last.Signal, last.Late, log)
				}
			}
			if pid, err := strconv.Atoi(strings.Join(done.lines("child"), "")); err != nil || !gone(pid) {
				t.Errorf("process %d, which a run has left that was ended, %v", pid, err)
			}
		})
	}
}

// gone reports whether the process is over.
func gone(pid int) bool { return syscall.Kill(pid, 0) != nil }

// TestConductAtOnce: no more runs at the same time than there may be, and as many as there may be.
func TestConductAtOnce(t *testing.T) {
	t.Parallel()
	tr := trial{AtOnce: 3}
	for range 12 {
		tr.Commands = append(tr.Commands, "mkdir -p $T/now; : >$T/now/$N; ls $T/now | wc -l >>$T/seen; sleep 0.05; rm $T/now/$N")
	}
	done := newTrial(t, tr)
	done.conduct()
	seen := done.lines("seen")
	if len(seen) != 12 || slices.Max(seen) != "3" {
		t.Errorf("of 12 runs, 3 at once, each saw so many: %q", seen)
	}
}

// waiting is a run that writes that it began, and ends with its number when it may, or when the trial is over.
const waiting = "echo $N >>$T/began; until test -e $T/go || ! test -d $T; do sleep 0.01; done; exit $N"

// waitingTrial has n of these.
func waitingTrial(t *testing.T, n int, tr trial) *trial {
	t.Helper()
	for range n {
		tr.Commands = append(tr.Commands, waiting)
	}
	return newTrial(t, tr)
}

// allEnded fails unless each run has begun once and ended with its number.
func (tr *trial) allEnded() {
	tr.t.Helper()
	began := tr.lines("began")
	slices.Sort(began)
	if len(began) != len(tr.Commands) || len(slices.Compact(began)) != len(tr.Commands) {
		tr.t.Errorf("of %d runs began %q; %q", len(tr.Commands), began, tr.lines("said"))
	}
	for i, run := range tr.state().Runs {
		if last := run.LastEvent(); last.Exit != i || run.Starts != 1 {
			tr.t.Errorf("run %d: %v after %d starts: %+v; %q", i, run.Phase, run.Starts, last, tr.lines("said"))
		}
	}
}

// TestRunnerKilled: what a killed runner has started goes on, its conductor sees how it ends, and another runner does the rest.
func TestRunnerKilled(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprint("kept ", kept), func(t *testing.T) {
			t.Parallel()
			tr := waitingTrial(t, 6, trial{AtOnce: 4, Kept: kept})
			conductor := tr.begin()
			tr.await("four began", func() bool { return len(tr.lines("began")) == 4 })
			if err := syscall.Kill(tr.runner(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			tr.write("go")
			if err := conductor.Wait(); err != nil {
				t.Fatalf("%v: %q", err, tr.lines("said"))
			}
			tr.allEnded()
		})
	}
}

// TestConductorKilled: the runner of a killed conductor starts nothing more and writes down how those end that run; the next
// conductor does the rest.
func TestConductorKilled(t *testing.T) {
	t.Parallel()
	tr := waitingTrial(t, 4, trial{AtOnce: 2})
	conductor := tr.begin()
	tr.await("two began", func() bool { return len(tr.lines("began")) == 2 })
	runner := tr.runner()
	_ = conductor.Process.Kill()
	_ = conductor.Wait()
	tr.write("go")
	tr.await("the runner has ended", func() bool { return gone(runner) })
	if began := tr.lines("began"); len(began) != 2 {
		t.Errorf("without a conductor began %q", began)
	}
	tr.conduct()
	tr.allEnded()
}

// TestBothKilled: runs that have lost both are waited for. Where the kernel does not say how they ended (before Linux 6.15), they are done again.
func TestBothKilled(t *testing.T) {
	t.Parallel()
	tr := waitingTrial(t, 3, trial{AtOnce: 2})
	conductor := tr.begin()
	tr.await("two began", func() bool { return len(tr.lines("began")) == 2 })
	runner := tr.runner()
	for _, pid := range []int{conductor.Process.Pid, runner} {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = conductor.Wait()
	tr.await("the runner is gone", func() bool { return gone(runner) })
	again := tr.begin()
	tr.await("they are waited for", func() bool {
		return strings.Contains(strings.Join(tr.lines("said"), "\n"), "runs of before go on (2): waiting for them")
	})
	if began := tr.lines("began"); len(began) != 2 {
		t.Errorf("while they run began %q", began)
	}
	tr.write("go")
	if err := again.Wait(); err != nil {
		t.Fatalf("%v: %q", err, tr.lines("said"))
	}
	starts := 0
	for i, run := range tr.state().Runs {
		starts += run.Starts
		if last := run.LastEvent(); last.Kind != batchlog.End || last.Exit != i {
			t.Errorf("run %d: %+v", i, last)
		}
	}
	if began := tr.lines("began"); len(began) != starts || starts != 3 && starts != 5 {
		t.Errorf("%d starts, and so many began: %q", starts, began)
	}
}

// TestKeeperKilled: the command of a killed keeper goes on, and its end is seen; also when its runner is killed next.
func TestKeeperKilled(t *testing.T) {
	t.Parallel()
	for _, runnerToo := range []bool{false, true} {
		t.Run(fmt.Sprint("its runner too ", runnerToo), func(t *testing.T) {
			t.Parallel()
			tr := waitingTrial(t, 3, trial{AtOnce: 3, Kept: true})
			conductor := tr.begin()
			tr.await("all began", func() bool { return len(tr.lines("began")) == 3 })
			keeper := 0
			tr.await("its keeper has written down the command", func() bool {
				born := tr.state().Runs[1].BirthEvent()
				keeper = born.PID
				return born.Command > 0
			})
			if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			tr.await("its command counts instead", func() bool { return !tr.state().Runs[1].BirthEvent().Kept })
			if runnerToo {
				if err := syscall.Kill(tr.runner(), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			tr.write("go")
			if err := conductor.Wait(); err != nil {
				t.Fatalf("%v: %q", err, tr.lines("said"))
			}
			tr.allEnded()
		})
	}
}

// TestConductStopped: a signal for the conductor ends what runs, with what that has started; it is not done, and the next conductor
// does it.
func TestConductStopped(t *testing.T) {
	t.Parallel()
	tr := newTrial(t, trial{AtOnce: 2, Grace: 100 * time.Millisecond, Commands: []string{
		"echo $N >>$T/began; test -e $T/go && exit 0; sleep 60; exit 1",
		"echo $N >>$T/began; test -e $T/go && exit 0; trap '' TERM; sleep 60 & echo $! >$T/child; wait; sleep 60",
		"echo $N >>$T/began",
	}})
	conductor := tr.begin()
	tr.await("two began", func() bool { return len(tr.lines("began")) == 2 && len(tr.lines("child")) == 1 })
	_ = conductor.Process.Signal(syscall.SIGTERM)
	if err := conductor.Wait(); err == nil {
		t.Error("it ended as if it had not been asked to")
	}
	state := tr.state()
	for i := range 3 {
		if run := state.Runs[i]; run.Phase != batchlog.Waiting {
			t.Errorf("run %d is %v: %+v", i, run.Phase, run.LastEvent())
		}
	}
	child, _ := strconv.Atoi(tr.lines("child")[0])
	if !gone(child) {
		t.Errorf("process %d of a run is still there", child)
	}
	tr.write("go")
	tr.conduct()
	if state = tr.state(); state.Count.CountDone() != 3 || state.Count.Failed > 0 {
		t.Errorf("%+v", state.Count)
	}
}
