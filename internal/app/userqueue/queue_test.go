package userqueue

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/proc"
)

// folder is a queue with n jobs, of which some have run.
func folder(t testing.TB, n int) *Queue {
	t.Helper()
	q := open(t, filepath.Join(t.TempDir(), "state"))
	for i := range n {
		number, logs, err := q.Submit(batchlog.Job{Name: fmt.Sprint("job ", i)}, Job{Command: []string{"true"}, Path: "/bin/true", Folder: "/"}, visible.Env{"A=b"}, nil, 0)
		if err != nil || number != i+1 || !strings.HasSuffix(logs[0], fmt.Sprintf("jobs/%d/log", i+1)) {
			t.Fatalf("job %d: number %d, %s, %v", i+1, number, logs, err)
		}
		if i%3 == 0 {
			events(t, q, batchlog.Event{Kind: batchlog.Begin, Run: i}, batchlog.Event{Kind: batchlog.Start, Run: i, PID: 7}, batchlog.Event{Kind: batchlog.End, Run: i})
		}
	}
	return q
}

func open(t testing.TB, home string) *Queue {
	t.Helper()
	host := &machine.Host{Env: visible.Env{"XDG_STATE_HOME=" + home}, Proc: proc.New("/proc")}
	q, err := Open(host, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q
}

func events(t testing.TB, q *Queue, all ...batchlog.Event) {
	t.Helper()
	for _, e := range all {
		line, err := json.Marshal(e)
		if err == nil {
			err = q.journal.Append(line)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestCut: a journal that was cut at any byte, as by a power cut, has every job whose line is whole, and takes more.
func TestCut(t *testing.T) {
	t.Parallel()
	q := folder(t, 7)
	text, err := os.ReadFile(filepath.Join(q.Dir, journalFile))
	if err != nil {
		t.Fatal(err)
	}
	count, err := os.ReadFile(filepath.Join(q.Dir, countFile))
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at <= len(text); at += 1 + at%11 {
		home := filepath.Join(t.TempDir(), "state")
		other := open(t, home)
		if err := os.WriteFile(filepath.Join(other.Dir, journalFile), text[:at], 0o600); err != nil {
			t.Fatal(err)
		}
		if at%2 == 0 { // the file with the number was written before, or not
			if err := os.WriteFile(filepath.Join(other.Dir, countFile), count, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		whole := text[:bytes.LastIndexByte(text[:at], '\n')+1]
		want := bytes.Count(whole, []byte(`"is":"submit"`))
		number, _, err := other.Submit(batchlog.Job{Name: "later"}, Job{Command: []string{"true"}}, nil, nil, 0)
		if err != nil || number != want+1 {
			t.Fatalf("cut at %d: number %d, want %d, %v", at, number, want+1, err)
		}
		state, err := other.Read()
		if err != nil || len(state.Runs) != want+1 {
			t.Fatalf("cut at %d: %d jobs, %v", at, len(state.Runs), err)
		}
		for run := range state.Runs {
			if j, err := other.ReadJob(run); err != nil || j.Command[0] != "true" {
				t.Fatalf("cut at %d: job %d is %+v, %v", at, run+1, j, err)
			}
		}
		other.Close()
	}
}

// TestManyWriters: jobs that are handed in at the same time get different numbers, and none is lost.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "state")
	numbers := make(chan int)
	const each, writers = 20, 8
	for range writers {
		q := open(t, home)
		go func() {
			for range each {
				n, _, err := q.Submit(batchlog.Job{Name: "x"}, Job{Command: []string{"true"}}, nil, nil, 0)
				if err != nil {
					t.Error(err)
				}
				numbers <- n
			}
		}()
	}
	seen := map[int]bool{}
	for range each * writers {
		n := <-numbers
		if seen[n] {
			t.Errorf("number %d was given twice", n)
		}
		seen[n] = true
	}
	state, err := open(t, home).Read()
	if err != nil || len(state.Runs) != each*writers {
		t.Errorf("%d jobs, %v", len(state.Runs), err)
	}
}

// TestList: where each job is, by its events.
func TestList(t *testing.T) {
	t.Parallel()
	q := open(t, filepath.Join(t.TempDir(), "state"))
	for i, what := range []batchlog.Job{{Name: "done"}, {Name: "failed"}, {Name: "lost"}, {Name: "cancelled"}, {Name: "held", Held: true}, {Name: "after", After: []batchlog.After{{Run: 5 - 1}}}, {Name: "running"}, {Name: "waiting"}} {
		if _, _, err := q.Submit(what, Job{Command: []string{"true"}}, nil, nil, 0); err != nil {
			t.Fatal(i, err)
		}
	}
	for run, end := range map[int]batchlog.Event{0: {Kind: batchlog.End}, 1: {Kind: batchlog.End, Exit: -1, Signal: "SIGKILL"}, 2: {Kind: batchlog.Gone}} {
		end.Run, end.At = run, time.Now()
		events(t, q, batchlog.Event{Kind: batchlog.Begin, Run: run}, batchlog.Event{Kind: batchlog.Start, Run: run}, end)
	}
	events(t, q, batchlog.Event{Kind: batchlog.Begin, Run: 6}, batchlog.Event{Kind: batchlog.Start, Run: 6, PID: 42, At: time.Now()})
	if err := q.Ask(t.Context(), batchlog.Cancel, 4); err != nil {
		t.Fatal(err)
	}
	list, err := q.List(func(State) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if next, more, err := q.NextJobs(2); err != nil || more != 1 || len(next) != 3 || next[2].State != Running {
		t.Errorf("the next: %+v, %d more, %v", next, more, err)
	}
	for _, e := range list {
		if string(e.State) != e.Name {
			t.Errorf("%+v", e)
		}
	}
	if code := list[1].Code(func(string) int { return 9 }); code != 137 || list[2].Why == "" || list[6].PID != 42 || list[5].Awaits[0] != 5 {
		t.Errorf("code %d, %+v", code, list)
	}
	for name, err := range map[string]error{
		"cannot cancel job 1: it has ended":          q.Ask(t.Context(), batchlog.Cancel, 1),
		"cannot hold job 7: it runs already":         q.Ask(t.Context(), batchlog.Hold, 7),
		"cannot find job 99: the last one is job 8":  q.Ask(t.Context(), batchlog.Cancel, 8, 99),
		"cannot queue job 1 again: it ended well":    q.Ask(t.Context(), batchlog.Again, 1),
		"cannot queue job 8 again: it has not ended": q.Ask(t.Context(), batchlog.Again, 8),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
	}
	if state, _ := q.Read(); state.Runs[7].Phase != batchlog.Waiting {
		t.Error("of two jobs one was cancelled, though the other does not exist")
	}
}

// FuzzJournal: no journal makes a queue panic.
func FuzzJournal(f *testing.F) {
	q := folder(f, 3)
	text, err := os.ReadFile(filepath.Join(q.Dir, journalFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"is":"submit","run":0,"job":{"after":[{"run":0}]}}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		began := time.Now()
		defer func() {
			if d := time.Since(began); d > 2*time.Second {
				t.Fatalf("%v for %q", d, text)
			}
		}()
		q := open(t, filepath.Join(t.TempDir(), "state"))
		if err := os.WriteFile(filepath.Join(q.Dir, journalFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := q.List(func(State) bool { return true })
		if err == nil {
			_, _, err = q.Submit(batchlog.Job{}, Job{Command: []string{"true"}}, nil, nil, 0)
		}
		if err == nil {
			_, _ = q.Read()
		}
	})
}

// TestQueueOfAllocation: in a Slurm job the queue is one of that job on this node; those that are over for long are
// removed, and the user's own is not.
func TestQueueOfAllocation(t *testing.T) {
	state, top := t.TempDir(), ""
	open := func(env ...string) string {
		t.Helper()
		q, err := Open(&machine.Host{Env: append(env, "XDG_STATE_HOME="+state)}, true)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		top = filepath.Dir(q.Dir)
		return filepath.Base(q.Dir)
	}
	own := open()
	first := open("SLURM_JOB_ID=7", "SLURMD_NODENAME=n1")
	second := open("SLURM_JOB_ID=8", "SLURMD_NODENAME=../n1")
	if own != "queue" || first != "queue-slurm-7-n1" || second != "queue-slurm-8-.._n1" {
		t.Errorf("%q, %q, %q", own, first, second)
	}
	old := time.Now().Add(-2 * removalAge)
	for _, name := range []string{own, first} {
		if err := os.Chtimes(filepath.Join(top, name, journalFile), old, old); err != nil {
			t.Fatal(err)
		}
	}
	open("SLURM_JOB_ID=9", "SLURMD_NODENAME=n1")
	for name, stays := range map[string]bool{own: true, first: false, second: true} {
		if _, err := os.Stat(filepath.Join(top, name)); (err == nil) != stays {
			t.Errorf("%s stays: %v", name, err == nil)
		}
	}
}
