package claim

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"gpuard/internal/core/job"
	"gpuard/internal/core/quota"
)

// TestDeskLeavesNoWatch: a process that waits for many devices, one after the other, keeps no descriptor of those
// waits: a user has 128 of their kind in all.
func TestDeskLeavesNoWatch(t *testing.T) {
	host, ids := newFourCardHost(t)
	desk, err := OpenAllocator(t.Context(), host, job.Spec{GPUs: len(ids)})
	if err != nil {
		t.Fatal(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector would close them some time
	before := countInotify(t)
	for range 5 {
		d, give := leaseUntilEnd(t, host, job.Spec{GPUs: len(ids)})
		timer := time.AfterFunc(20*time.Millisecond, give)
		seat, err := desk.Wait(t.Context(), "true", nil)
		timer.Stop()
		if err != nil || len(seat.Plan.Devices) != len(d.Plan.Devices) {
			t.Fatalf("the seat: %+v, %v", seat, err)
		}
		if err := seat.Release(); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(20 * time.Second); countInotify(t) > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d watches are left of 5 waits, and before there were %d", countInotify(t), before)
		}
	}
}

// TestSeatWhileFirstClaimed: a job without a device is over while the first claim of its process is made.
func TestSeatWhileFirstClaimed(t *testing.T) {
	host, _ := newFourCardHost(t)
	desk, err := OpenAllocator(t.Context(), host, job.Spec{GPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	other, err := desk.For(t.Context(), host, job.Spec{CPU: true})
	if err != nil {
		t.Fatal(err)
	}
	without, err := other.TryNow(t.Context(), "true")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error)
	go func() {
		if used := without.MeasuredUse(""); used != (quota.Measured{}) {
			t.Errorf("of a job without a device %+v was measured", used)
		}
		over <- without.Release()
	}()
	seat, err := desk.TryNow(t.Context(), "true")
	if err := errors.Join(err, <-over); err != nil {
		t.Fatal(err)
	}
	if err := seat.Release(); err != nil {
		t.Fatal(err)
	}
}

// countInotify counts the inotify descriptors of this process.
func countInotify(t *testing.T) (n int) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == "anon_inode:inotify" {
			n++
		}
	}
	return n
}
