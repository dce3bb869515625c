package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// claimKept claims a lease that outlives its command.
func claimKept(t *testing.T, f *Folder) *Held {
	t.Helper()
	h, err := f.Claim(testBoot, nil, func(View) (job.Lease, error) {
		return job.Lease{Devices: []gpu.UUID{"GPU-a"}, PID: 1, Kept: &job.Kept{File: "file"}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Lock.Close() })
	return h
}

// succeedKept takes over a kept lease for this process.
func succeedKept(own []job.Lease) (*job.Lease, bool) {
	i := slices.IndexFunc(own, func(l job.Lease) bool { return l.Kept != nil })
	if i < 0 {
		return nil, false
	}
	l := own[i]
	l.PID, l.Ended = os.Getpid(), false
	return &l, true
}

func returnFalse() bool { return false }

func linkCount(t *testing.T, file *os.File) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return uint64(st.Nlink) //nolint:unconvert // its type differs between processors
}

func TestSucceed(t *testing.T) {
	f := newStateFolder(t)
	if h, err := f.TakeOverLease(testBoot, succeedKept); h != nil || err != nil {
		t.Fatalf("nothing to take over, and it answers %+v, %v", h, err)
	}
	first := claimKept(t, f)
	until := time.Now().Truncate(time.Second)
	if err := f.KeepForNextStart(first.Lease, until, returnFalse); err != nil {
		t.Fatal(err)
	}
	if l, _ := f.Own(first.Lease.ID); !l.Ended || !l.WaitsUntil(until).Equal(until) {
		t.Errorf("a lease that waits for its next start is %+v", l)
	}
	before := readView(t, f, testBoot)
	second, err := f.TakeOverLease(testBoot, succeedKept)
	if err != nil || second == nil {
		t.Fatalf("%+v, %v", second, err)
	}
	defer second.Lock.Close() //nolint:errcheck // at the end
	if second.Lease.ID != first.Lease.ID || second.Lease.PID != os.Getpid() || linkCount(t, first.Lock) != 0 {
		t.Errorf("taken over as %+v; the first one's lock has %d names", second.Lease, linkCount(t, first.Lock))
	}
	if after := readView(t, f, testBoot); after.Changes["GPU-a"].Ended != before.Changes["GPU-a"].Ended {
		t.Error("taking over counts as an end")
	}
	// What the first holder still does concerns a lease that is no longer its own.
	late := second.Lease // what its holder reads when it is slow
	for _, l := range []job.Lease{first.Lease, late} {
		if err := f.KeepForNextStart(l, until, func() bool { return linkCount(t, first.Lock) == 0 }); err != nil {
			t.Error(err)
		}
	}
	_ = first.Lock.Close()
	if gone, err := f.EndIfUnheld(first.Lease, testBoot); gone || err != nil {
		t.Errorf("the first one's end removes it: %v, %v", gone, err)
	}
	if l, found := f.Own(second.Lease.ID); !found || l.Ended || l.PID != os.Getpid() {
		t.Errorf("after the first one's end it is %+v", l)
	}
	if _, err := f.Claim(testBoot, nil, claimIfNoneLive); !errors.Is(err, errBusy) {
		t.Errorf("a claim beside it: %v", err)
	}
	if h, err := f.TakeOverLease(testBoot, func(own []job.Lease) (*job.Lease, bool) { return &own[0], false }); h != nil || err != nil || linkCount(t, second.Lock) != 0 {
		t.Errorf("given back: %+v, %v", h, err)
	}
	checkUsable(t, f, "at the end")
}

// claimIfNoneLive claims a device only if no lease is alive.
func claimIfNoneLive(v View) (job.Lease, error) {
	if len(v.Held) > 0 {
		return job.Lease{}, errBusy
	}
	return job.Lease{Devices: []gpu.UUID{"GPU-a"}}, nil
}

// succeedOnly is a deed of roleTraced.
func succeedOnly(f *Folder, _ []gpu.UUID) (string, error) {
	h, err := f.TakeOverLease(testBoot, succeedKept)
	if err != nil || h == nil {
		return "", errors.Join(err, errBusy)
	}
	return h.Lease.ID, nil
}

// TestSucceedKilledAtEveryStep: kill -9 before each system call of Succeed. Either the first process still has the
// lease, and another can take it over, or no process has it and its device is free. A device of a live lease can never
// be claimed.
func TestSucceedKilledAtEveryStep(t *testing.T) {
	f := newStateFolder(t)
	checkUsable(t, f, "at first")
	reached, kept, ended := 0, 0, 0
	for step := 1; reached == step-1; step++ {
		first := claimKept(t, f)
		if err := f.KeepForNextStart(first.Lease, time.Now(), returnFalse); err != nil {
			t.Fatal(err)
		}
		said := traceDeed(t, f.Path, "succeed", func(c systemCall) bool {
			reached = max(reached, c.step)
			return c.entry && c.step == step
		})
		if killed := reached == step; killed == strings.HasPrefix(said, "claimed ") {
			t.Errorf("step %d: reached %d, and it said %q", step, reached, said)
		}
		leases, problems := f.Leases()
		switch renamed := linkCount(t, first.Lock) == 0; {
		case len(problems) > 0:
			t.Errorf("problems %v", problems)
		case renamed && len(leases) == 0:
			ended++
		case !renamed && len(leases) == 1 && leases[0].ID == first.Lease.ID && !leases[0].Unreadable:
			kept++
			again, err := f.TakeOverLease(testBoot, succeedKept)
			if err != nil || again == nil || again.Lease.ID != first.Lease.ID {
				t.Fatalf("step %d: taken over after it as %+v, %v", step, again, err)
			}
			_ = again.Lock.Close()
		default:
			t.Errorf("renamed %v, leases %+v", renamed, leases)
		}
		_ = first.Lock.Close()
		checkUsable(t, f, "killed at a step")
		if t.Failed() {
			t.Fatalf("at step %d", step)
		}
	}
	t.Logf("%d steps: %d times kept, %d times ended", reached, kept, ended)
	if kept < 10 || ended < 2 { // the last is the one that was not killed
		t.Errorf("%d times kept, %d times ended: is it being followed?", kept, ended)
	}
}

// TestSucceedFails: a lease that cannot be taken over stays with its holder.
func TestSucceedFails(t *testing.T) {
	f := newStateFolder(t)
	first := claimKept(t, f)
	occupied := filepath.Join(f.userFolder(ownUID()), newPrefix+first.Lease.ID+lockSuffix)
	if err := os.MkdirAll(filepath.Join(occupied, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if h, err := f.TakeOverLease(testBoot, succeedKept); err == nil || h != nil {
		t.Errorf("%+v, %v", h, err)
	}
	if l, found := f.Own(first.Lease.ID); !found || l.PID != 1 || linkCount(t, first.Lock) != 1 {
		t.Errorf("it is %+v", l)
	}
	if err := os.RemoveAll(occupied); err != nil {
		t.Fatal(err)
	}
}
