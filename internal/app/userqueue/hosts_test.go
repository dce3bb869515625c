package userqueue

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
	"gpuard/internal/host/journal"
	"gpuard/internal/host/proc"
)

// pretended is a host with this home. Only the machine id tells it from the one that the test runs on.
func pretended(t *testing.T, home, id string) *machine.Host {
	t.Helper()
	root := t.TempDir()
	err := errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o755), os.WriteFile(filepath.Join(root, "etc/machine-id"), []byte(strings.Repeat(id, 32)+"\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return &machine.Host{Root: root, Env: visible.Env{"HOME=" + home}, Proc: proc.New("/proc")}
}

func handIn(t *testing.T, q *Queue) {
	t.Helper()
	if _, _, err := q.Submit(batchlog.Job{Name: "train"}, Job{Command: []string{"true"}, Path: "/bin/true", Folder: "/"}, nil, nil, 0); err != nil {
		t.Fatal(err)
	}
}

// TestTwoHostsOneHome: a job that one host has, running or not, is none of another host's, which neither starts it nor
// calls it lost. It counts the jobs of the other, and is told nothing more.
func TestTwoHostsOneHome(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	a, b := pretended(t, home, "a"), pretended(t, home, "b")
	qa, err := Open(a, true)
	if err != nil {
		t.Fatal(err)
	}
	defer qa.Close()
	for range 3 {
		handIn(t, qa)
	}
	events(t, qa, batchlog.Event{Kind: batchlog.Begin, Run: 0, Boot: "of a"}, batchlog.Event{Kind: batchlog.Start, Run: 0, PID: 7}, batchlog.Event{Kind: batchlog.Begin, Run: 1}, batchlog.Event{Kind: batchlog.Start, Run: 1, PID: 8}, batchlog.Event{Kind: batchlog.End, Run: 1})
	lock, err := journal.TryLock(filepath.Join(qa.Dir, lockFile))
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	defer lock.Close()
	before, _ := os.ReadFile(filepath.Join(qa.Dir, journalFile))
	if q, err := Open(b, false); q != nil || err != nil {
		t.Fatalf("the other host has the queue %+v, %v", q, err)
	}
	qb, err := Open(b, true)
	if err != nil {
		t.Fatal(err)
	}
	defer qb.Close()
	if state, err := qb.Read(); qb.Dir == qa.Dir || err != nil || state.Count.All != 0 || state.HasStartable() || qb.HasKeeper() || !qa.HasKeeper() {
		t.Errorf("%s and %s: %+v, %v", qa.Dir, qb.Dir, state, err)
	}
	name, _ := os.Hostname()
	if list := OfOtherHosts(b); len(list) != 1 || list[0] != (HostJobs{Host: name, Jobs: 2, Folder: qa.Dir}) {
		t.Errorf("%+v", list)
	}
	if list := OfOtherHosts(a); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	if after, _ := os.ReadFile(filepath.Join(qa.Dir, journalFile)); string(after) != string(before) {
		t.Errorf("its journal was changed: %s", after)
	}
	events(t, qa, batchlog.Event{Kind: batchlog.End, Run: 0}, batchlog.Event{Kind: batchlog.Cancel, Run: 2})
	state, err := qa.Read()
	if err != nil {
		t.Fatal(err)
	}
	markSettled(qa.Dir, state, qa.journal.Offset())
	if list := OfOtherHosts(b); len(list) != 0 {
		t.Errorf("after all have ended: %+v", list)
	}
	handIn(t, qa)
	if list := OfOtherHosts(b); len(list) != 1 || list[0].Jobs != 1 {
		t.Errorf("after one was handed in: %+v", list)
	}
}

// TestQueueOfBefore: jobs in a queue that belongs to no host are named, and not started.
func TestQueueOfBefore(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	h := pretended(t, home, "a")
	q, err := Open(h, true)
	if err != nil {
		t.Fatal(err)
	}
	handIn(t, q)
	q.Close()
	before := filepath.Join(home, ".local/state/gpuard/queue")
	if err := os.Rename(q.Dir, before); err != nil {
		t.Fatal(err)
	}
	if list := OfOtherHosts(h); len(list) != 1 || list[0] != (HostJobs{Jobs: 1, Folder: before}) {
		t.Errorf("%+v", list)
	}
	if q, err := Open(h, false); q != nil || err != nil {
		t.Errorf("%+v, %v", q, err)
	}
}

// TestQueueOfARenamedMachine: a machine that was renamed before it booted cannot be told from a copy of its image, so it
// does not take the queue, and says how its user does. No other machine says so, nor does one that has a queue.
func TestQueueOfARenamedMachine(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	h := pretended(t, home, "a")
	if h.BootMark() == "" {
		t.Skip("this machine has no boot id, or is a container")
	}
	q, err := Open(h, true)
	if err != nil {
		t.Fatal(err)
	}
	handIn(t, q)
	q.Close()
	all := filepath.Dir(filepath.Dir(q.Dir))
	machineID, _, _ := strings.Cut(h.BootMark(), "-")
	err = errors.Join(os.Rename(filepath.Dir(q.Dir), filepath.Join(all, "old-0123456789ab")), os.Remove(filepath.Join(all, ".boot-"+h.BootMark())),
		os.Symlink("old-0123456789ab", filepath.Join(all, ".boot-"+machineID+"-0123456789ab")))
	if err != nil {
		t.Fatal(err)
	}
	if q, err := Open(h, false); q != nil || err != nil {
		t.Errorf("it takes %+v, %v", q, err)
	}
	if list := OfOtherHosts(h); len(list) != 1 || list[0].Host != "old" || list[0].Here != q.Dir {
		t.Errorf("%+v", list)
	}
	if list := OfOtherHosts(pretended(t, home, "b")); len(list) != 1 || list[0].Here != "" {
		t.Errorf("another machine: %+v", list)
	}
	if q, err = Open(h, true); err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if list := OfOtherHosts(h); len(list) != 1 || list[0].Here != "" {
		t.Errorf("with a queue of its own: %+v", list)
	}
}

// TestQueueBelowAGroup: jobs of a queue are run, so that it is opened nowhere where a member of a group could put
// another one in its place, nor behind a link of another user.
func TestQueueBelowAGroup(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	home := t.TempDir()
	h := pretended(t, home, "a")
	q, err := Open(h, true)
	if err != nil {
		t.Fatal(err)
	}
	handIn(t, q)
	q.Close()
	refused := func(says string) {
		t.Helper()
		for _, create := range []bool{false, true} {
			if q, err := Open(h, create); q != nil || err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%+v, %v", q, err)
			}
		}
		if _, err := RunnerWork(t.Context(), h, q.Dir); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("its jobs are run: %v", err)
		}
	}
	const group, mallory = 4077, 4003
	if err := errors.Join(os.Chown(home, 0, group), unix.Chmod(home, 0o2775), os.Chmod(filepath.Dir(home), 0o755)); err != nil {
		t.Fatal(err)
	}
	refused("the group 4077 may write in " + home + ", and could put another folder in its place; chmod g-w " + home)
	moved := filepath.Join(home, ".local2")
	if err := errors.Join(unix.Chmod(home, 0o1777), os.Rename(filepath.Join(home, ".local"), moved), os.Symlink(moved, filepath.Join(home, ".local")), os.Lchown(filepath.Join(home, ".local"), mallory, mallory)); err != nil {
		t.Fatal(err)
	}
	refused("is a symbolic link of uid 4003")
}
